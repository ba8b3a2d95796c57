"""Properties that a bare weights file does not determine: inferred where possible, otherwise assumed and
listed.
"""

import json
import warnings

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

import vitviz
from tests.engine.models.custom_vits import CustomViT, SeparateMatrices
from tests.engine.small_models import perturbed, save_model, small_vit
from tests.shared import shared_file
from tests.tiers import sweep
from vitviz.engine import choices
from vitviz.engine.adapters import sidecar_config
from vitviz.engine.formats import inference
from vitviz.engine.formats.overrides import Overrides
from vitviz.engine.images.opening import open_image
from vitviz.errors import CheckpointError, VitvizError

GENUINE = "weights/deit_tiny_patch16_224.safetensors"
ALL = {
    "mean": 0.5, "std": 0.5, "crop_pct": 1.0, "interpolation": "bilinear", "activation": "gelu",
    "epsilon": 1e-6, "pool": "class", "block": "pre-norm",
}  # fmt: skip


def train_on_noise(count, width=64, steps=60):
    """Return weights of a ViT trained for a few steps on labelled noise. Any training leaves structure."""
    torch.manual_seed(count)
    model = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=16,
        patch_size=4,
        embed_dim=width,
        depth=2,
        num_heads=count,
        num_classes=8,
    )
    images, labels = torch.randn(64, 3, 16, 16), torch.arange(64) % 8
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
    return model.state_dict()


@sweep("count", [2, 4, 8], quick=[4])
def test_head_count_is_inferred_from_trained_weights(count):
    assert inference.infer_heads(train_on_noise(count)) == count


def test_head_count_is_inferred_from_genuine_but_not_random_weights():
    genuine = load_file(shared_file(GENUINE))
    assert inference.infer_heads(genuine) == 3
    early = [
        shared_file(f"weights/vitviz-tiny-early/snapshots/step-0{step}.safetensors")
        for step in ("0000", "3000")
    ]
    assert [inference.infer_heads(load_file(path)) for path in early] == [None, 3]
    assert inference.infer_heads(perturbed(small_vit()).state_dict()) is None
    mixed = {
        key: value[torch.randperm(len(value))] if "qkv" in key else value for key, value in genuine.items()
    }
    assert inference.infer_heads(mixed) is None


@pytest.mark.long
def test_head_count_contrast_equals_plain_loops():
    tensors = small_vit().double().state_dict()
    contrast = inference.head_count_contrasts({key: value.float() for key, value in tensors.items()})[4]
    inside, outside = [], []
    for row in range(128):
        for col in range(row + 1, 128):
            similarity = 0.0
            for layer in range(2):
                q, k, v = tensors[f"blocks.{layer}.attn.qkv.weight"].chunk(3)
                output_weights = tensors[f"blocks.{layer}.attn.proj.weight"].T
                for one, other in ((q, k), (v, output_weights)):
                    cosines = [
                        (m[row] @ m[col] / (m[row].norm() * m[col].norm())).item() for m in (one, other)
                    ]
                    similarity += cosines[0] * cosines[1]
            (inside if row // 32 == col // 32 else outside).append(similarity)
    a, b = torch.tensor(inside, dtype=torch.float64), torch.tensor(outside, dtype=torch.float64)
    weight, gap = len(a) * len(b) / (len(a) + len(b)), a.mean() - b.mean()
    spread = torch.cat([a, b]).std()
    assert contrast == pytest.approx(
        ((weight * gap * gap.abs()).item(), (gap / spread * weight**0.5).item()), rel=1e-3
    )


def save_bare_file(tmp_path, name="mine.safetensors"):
    save_file(load_file(shared_file(GENUINE)), tmp_path / name)
    return tmp_path / name


def test_assumptions_are_reported_and_listed(tmp_path):
    with pytest.warns(vitviz.AssumedWarning, match=r"mean and deviation \(mean=0.485") as warnings_raised:
        inspector = vitviz.load(save_bare_file(tmp_path), device="cpu")
    names = [assumption.name for assumption in inspector.checkpoint.assumed]
    expected = ["pool", "block", "normalisation", "crop_pct", "interpolation", "activation", "epsilon"]
    assert names == expected  # heads show
    assert "heads" not in str(warnings_raised[0].message)
    assert all(
        assumption.taken == assumption.choices[0]
        and len(set(assumption.choices)) == len(assumption.choices) > 1
        for assumption in inspector.checkpoint.assumed
    )


@pytest.mark.long
def test_normalisation_is_assumed_from_family_name_or_parts(tmp_path):
    for name, mean in (
        ("my-deit", 0.485), ("dinov2_vits", 0.485), ("clip14-ours", 0.48145466), ("vit.MAE.finetuned", 0.485),
        ("flexivit-dinosaurs", 0.5), ("clipart", 0.485), ("my_maestro-siglip2", 0.5), ("googled", 0.485),
    ):  # fmt: skip
        inspector = vitviz.load(save_bare_file(tmp_path, f"{name}.safetensors"), device="cpu")
        assert inspector.preprocessing.mean[0] == mean, name
        assert "normalisation" in [assumption.name for assumption in inspector.checkpoint.assumed], (
            "a name proves nothing"
        )
    half = vitviz.load(save_bare_file(tmp_path, "augreg-tuned.safetensors"), device="cpu")
    assert half.preprocessing.mean == (0.5, 0.5, 0.5)
    clip = vitviz.load(save_model(small_vit(pre_norm=True), tmp_path / "mine.safetensors"), device="cpu")
    assert clip.preprocessing.mean == (0.48145466, 0.4578275, 0.40821073)
    choices_by_name = {assumption.name: assumption.choices for assumption in clip.checkpoint.assumed}
    assert choices_by_name["normalisation"][0].startswith("mean=0.48145466")
    assert "activation=quick_gelu" in choices_by_name["activation"]


POOLS = {"class": {}, "average": {"global_pool": "avg"}, "max": {"global_pool": "max"},
        "average and max": {"global_pool": "avgmax"},
        "average of all": {"global_pool": "avg", "pool_include_prefix": True}}  # fmt: skip


@pytest.mark.parametrize("block", ["pre-norm", "res-post-norm", "post-norm"])
@pytest.mark.parametrize("pool", POOLS)
def test_ambiguous_pooling_and_block_are_listed_and_followed(tmp_path, pool, block):
    """The oracle is timm's own forward. For PyTorch's post-norm blocks it is a loop over the layers."""
    from timm.models.vision_transformer import Block, ResPostBlock

    timm_block = {"res-post-norm": ResPostBlock}.get(block, Block)
    oracle = small_vit(fc_norm=False, block_fn=timm_block, **POOLS[pool])
    path, noise = save_model(oracle, tmp_path / "best.safetensors"), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = oracle(noise)
        if block == "post-norm":
            x = oracle._pos_embed(oracle.patch_embed(noise))
            for one in oracle.blocks:
                x = one.norm1(x + one.attn(x))
                x = one.norm2(x + one.mlp(x))
            expected = oracle.forward_head(oracle.norm(x))
    with pytest.warns(
        vitviz.AssumedWarning, match=r"reads \(pool=class\), the positions of its norms \(block=pre"
    ):
        assumed_inspector = vitviz.load(path, heads=2, device="cpu")
    asked = {one.name: one.choices for one in assumed_inspector.checkpoint.assumed}
    assert len(asked["pool"]) == 5 and len(asked["block"]) == 3
    inspector = vitviz.load(path, heads=2, pool=pool, block=block, mean=0.5, std=0.5, device="cpu")
    torch.testing.assert_close(inspector.model(noise), expected)
    assert not {"pool", "block"} & {one.name for one in inspector.checkpoint.assumed}
    trace = inspector.trace(vitviz.sample_image("coffee"))
    assert trace.pool == pool and trace.attention(1).isfinite().all()
    sidecar_config.write_config(inspector.checkpoint, inspector.model, inspector.preprocessing)
    reloaded = vitviz.load(path, device="cpu")
    assert reloaded.checkpoint.assumed == () and reloaded.model(noise).equal(inspector.model(noise))


def test_properties_fixed_by_tensors_are_not_assumed(tmp_path):
    def choices_of(**parts):
        path = save_model(small_vit(**parts), tmp_path / "best.safetensors")
        return {
            assumption.name: assumption.choices
            for assumption in vitviz.load(path, device="cpu").checkpoint.assumed
        }

    assert "block" not in choices_of(init_values=1e-5), "only pre-norm blocks have LayerScale"
    mapped = choices_of(global_pool="map", class_token=False)
    assert "pool" not in mapped and "block" in mapped
    assert choices_of(global_pool="map")["pool"] == ("pool=attention", "pool=attention+of+all")
    save_bare_file = choices_of(global_pool="avg", class_token=False)["pool"]
    assert save_bare_file == ("pool=average", "pool=max", "pool=average+and+max")
    layer_scale_file = save_model(small_vit(init_values=1e-5), tmp_path / "best.safetensors")
    with pytest.raises(CheckpointError, match="LayerScale"):
        vitviz.load(layer_scale_file, block="post-norm", device="cpu")
    with pytest.raises(CheckpointError, match="cannot read 'attention'; expected class or"):
        vitviz.load(layer_scale_file, pool="attention", device="cpu")


def test_stated_properties_are_used_and_not_assumed(tmp_path):
    path = save_model(small_vit(), tmp_path / "mine.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error", vitviz.AssumedWarning)
        inspector = vitviz.load(path, heads=4, **ALL, labels=list("abcdefg"), device="cpu")
    assert inspector.preprocessing.std == (0.5,) * 3 and inspector.preprocessing.interpolation == "bilinear"
    assert [block.attn.num_heads for block in inspector.model.blocks] == [4, 4]
    assert inspector.labels == tuple("abcdefg") and inspector.checkpoint.assumed == ()
    assert inspector.checkpoint.note == "", "the note reports an assumption"
    by_name = vitviz.load(inspector.checkpoint.name.replace("mine.safetensors", str(path)), device="cpu")
    image = vitviz.sample_image("coffee")
    assert by_name.trace(image).logits.equal(inspector.trace(image).logits)


def test_stated_heads_epsilon_and_activation_are_used(tmp_path):
    from functools import partial

    from timm.layers import LayerNorm

    other = small_vit(num_heads=8, act_layer="quick_gelu", norm_layer=partial(LayerNorm, eps=1e-2))
    path = save_model(other, tmp_path / "mine.safetensors")
    inspector = vitviz.load(
        path, heads=8, activation="quick_gelu", epsilon=1e-2, mean=0.5, std=0.5, device="cpu"
    )
    noise = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(inspector.model(noise), other(noise))


def test_stated_heads_override_the_architecture(tmp_path):
    name = "vit_tiny_patch16_224"
    other = perturbed(timm.create_model(name, num_heads=6, img_size=32, num_classes=7))
    path = save_model(other, tmp_path / "mine.safetensors")
    inspector = vitviz.load(path, architecture=name, heads=6, device="cpu")
    noise = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(inspector.model(noise), other(noise))
        for block in inspector.model.blocks:
            # as an export computes it, with the scale stored in the model
            block.attn.fused_attn = False
        torch.testing.assert_close(inspector.model(noise), other(noise))


@pytest.mark.parametrize(
    "wrong",
    [{"heads": 0}, {"heads": 2.5}, {"mean": "red"}, {"std": 0}, {"std": (1, 1)}, {"activation": "sine"},
     {"epsilon": -1}, {"pool": "avg"}, {"block": "sandwich"}, {"crop_pct": 0}, {"interpolation": "soft"},
     {"mean": float("nan")}],
)  # fmt: skip
def test_invalid_override_is_rejected(wrong):
    with pytest.raises(VitvizError, match=next(iter(wrong))):
        vitviz.load("vitviz-tiny", **wrong)


@pytest.mark.parametrize(
    "name", ["beit_base_patch16_224", "eva02_tiny_patch14_224", "vit_relpos_small_patch16_224"]
)
def test_heads_of_position_dependent_attention_cannot_be_changed(name):
    model = timm.create_model(name, img_size=64 if "eva" not in name else 56, depth=1).eval()
    with pytest.raises(CheckpointError, match="cannot have 4 heads: its .* the number"):
        Overrides(heads=4).applied(model, name)


@pytest.mark.parametrize("text", ["heads=many", "width=3", "heads", "heads=3&heads=4", "mean=1,2", "x" * 500])
def test_invalid_override_in_name_is_rejected(text):
    with pytest.raises(VitvizError):
        vitviz.load(f"vitviz-tiny?{text}")


def test_overrides_survive_conversion_to_text():
    overrides = Overrides(6, (0.48145466, 0.1, 0.2), (0.5,) * 3, 0.875, "squash", "bicubic", "relu", 1e-12)
    assert Overrides.parse(overrides.text()) == overrides


def test_heads_that_do_not_divide_width_are_rejected(tmp_path):
    with pytest.raises(CheckpointError, match="128 is not divisible"):
        vitviz.load(save_model(small_vit(), tmp_path / "mine.safetensors"), heads=3)


@pytest.mark.long
def test_choices_show_their_predictions(tmp_path):
    path = save_model(small_vit(), tmp_path / "mine.safetensors")
    inspector = vitviz.load(path, device="cpu")
    image = open_image(vitviz.sample_image("chelsea"))
    predictions = list(
        choices.predictions_by_choice(
            inspector, image, inspector.checkpoint.assumed, inspector.preprocessing.size
        )
    )
    assert len(predictions) == sum(len(assumption.choices) for assumption in inspector.checkpoint.assumed)
    for name, choice, answer in predictions:
        if name in ("normalisation", "activation", "pool", "block"):
            alone = vitviz.load(f"{path}?{choice}", device="cpu").trace(image).top(1)[0]
            assert answer == pytest.approx(alone), choice
    assert inspector.trace(image).top(1)[0] == pytest.approx(predictions[0][2])


def test_written_config_is_read_by_vitviz_and_timm(tmp_path):
    other = small_vit(num_heads=4, act_layer="relu")
    path = save_model(other, tmp_path / "mine.safetensors")
    first = vitviz.load(
        path, heads=4, activation="relu", mean=0.3, std=0.2, labels=list("abcdefg"), device="cpu"
    )
    written = sidecar_config.write_config(first.checkpoint, first.model, first.preprocessing, first.labels)
    assert written.name == "mine.config.json" and not list(tmp_path.glob(".*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", vitviz.AssumedWarning)
        reloaded = vitviz.load(path, device="cpu")
    assert reloaded.preprocessing == first.preprocessing and reloaded.labels == first.labels
    image = vitviz.sample_image("coffee")
    assert reloaded.trace(image).logits.equal(first.trace(image).logits)
    with pytest.raises(CheckpointError, match="already has a config.json"):
        sidecar_config.write_config(reloaded.checkpoint, reloaded.model, reloaded.preprocessing)
    folder = tmp_path / "folder"
    folder.mkdir()
    path.rename(folder / "model.safetensors"), written.rename(folder / "config.json")
    alone = timm.create_model(f"local-dir:{folder}", pretrained=True)
    noise = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(alone.eval()(noise), other(noise))


def test_written_config_keeps_epsilon_of_custom_model(tmp_path):
    model = perturbed(CustomViT(SeparateMatrices))
    path = tmp_path / "mine.safetensors"
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, path)
    first = vitviz.load(path, heads=4, epsilon=1e-5, mean=0.5, std=0.5, device="cpu")
    sidecar_config.write_config(first.checkpoint, first.model, first.preprocessing, first.labels)
    assert json.loads((tmp_path / "mine.config.json").read_text())["vitviz"] == {"epsilon": 1e-5}
    reloaded = vitviz.load(path, device="cpu")
    noise = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(reloaded.model(noise), model(noise)[0], atol=1e-4, rtol=1e-4)
    assert reloaded.checkpoint.assumed == ()


def test_config_of_shipped_or_hub_checkpoint_is_not_written():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    with pytest.raises(CheckpointError, match="not a file on this machine"):
        sidecar_config.write_config(inspector.checkpoint, inspector.model, inspector.preprocessing)
