"""What a bare file does not say: told by structure and family where it shows, else marked, asked and kept."""

import json
import warnings

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

import vitviz
from tests.engine.models.theirs import Apart, Scratch
from tests.engine.small import perturbed, saved, small
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


def trained(count, width=64, steps=60):
    """A ViT of a few steps on noise with labels: structure comes from any training."""
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
    pictures, labels = torch.randn(64, 3, 16, 16), torch.arange(64) % 8
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimiser.step()
    return model.state_dict()


@sweep("count", [2, 4, 8], quick=[4])
def test_training_shows_where_a_head_ends(count):
    assert inference.infer_heads(trained(count)) == count


def test_heads_of_genuine_weights_show_and_those_of_random_ones_do_not():
    genuine = load_file(shared_file(GENUINE))
    assert inference.infer_heads(genuine) == 3
    early = [
        shared_file(f"weights/vitviz-tiny-early/snapshots/step-0{step}.safetensors")
        for step in ("0000", "3000")
    ]
    assert [inference.infer_heads(load_file(path)) for path in early] == [None, 3]
    assert inference.infer_heads(perturbed(small()).state_dict()) is None
    mixed = {
        key: value[torch.randperm(len(value))] if "qkv" in key else value for key, value in genuine.items()
    }
    assert inference.infer_heads(mixed) is None


@pytest.mark.long
def test_the_contrast_is_that_of_plain_loops():
    tensors = small().double().state_dict()
    found = inference.head_count_contrasts({key: value.float() for key, value in tensors.items()})[4]
    inside, outside = [], []
    for row in range(128):
        for col in range(row + 1, 128):
            alike = 0.0
            for layer in range(2):
                q, k, v = tensors[f"blocks.{layer}.attn.qkv.weight"].chunk(3)
                readers = tensors[f"blocks.{layer}.attn.proj.weight"].T
                for one, other in ((q, k), (v, readers)):
                    cosines = [
                        (m[row] @ m[col] / (m[row].norm() * m[col].norm())).item() for m in (one, other)
                    ]
                    alike += cosines[0] * cosines[1]
            (inside if row // 32 == col // 32 else outside).append(alike)
    a, b = torch.tensor(inside, dtype=torch.float64), torch.tensor(outside, dtype=torch.float64)
    share, gap = len(a) * len(b) / (len(a) + len(b)), a.mean() - b.mean()
    spread = torch.cat([a, b]).std()
    assert found == pytest.approx(
        ((share * gap * gap.abs()).item(), (gap / spread * share**0.5).item()), rel=1e-3
    )


def bare(tmp_path, name="mine.safetensors"):
    save_file(load_file(shared_file(GENUINE)), tmp_path / name)
    return tmp_path / name


def test_what_was_assumed_is_said(tmp_path):
    with pytest.warns(vitviz.AssumedWarning, match=r"mean and deviation \(mean=0.485") as told:
        inspector = vitviz.load(bare(tmp_path), device="cpu")
    names = [one.name for one in inspector.checkpoint.assumed]
    asked = ["pool", "block", "normalisation", "crop_pct", "interpolation", "activation", "epsilon"]
    assert names == asked  # heads show
    assert "heads" not in str(told[0].message)
    assert all(
        one.taken == one.choices[0] and len(set(one.choices)) == len(one.choices) > 1
        for one in inspector.checkpoint.assumed
    )


@pytest.mark.long
def test_a_family_is_known_by_its_name_or_parts(tmp_path):
    for name, mean in (
        ("my-deit", 0.485), ("dinov2_vits", 0.485), ("clip14-ours", 0.48145466), ("vit.MAE.finetuned", 0.485),
        ("flexivit-dinosaurs", 0.5), ("clipart", 0.485), ("my_maestro-siglip2", 0.5), ("googled", 0.485),
    ):  # fmt: skip
        found = vitviz.load(bare(tmp_path, f"{name}.safetensors"), device="cpu")
        assert found.preprocessing.mean[0] == mean, name
        assert "normalisation" in [one.name for one in found.checkpoint.assumed], "a name proves nothing"
    half = vitviz.load(bare(tmp_path, "augreg-tuned.safetensors"), device="cpu")
    assert half.preprocessing.mean == (0.5, 0.5, 0.5)
    clip = vitviz.load(saved(small(pre_norm=True), tmp_path / "mine.safetensors"), device="cpu")
    assert clip.preprocessing.mean == (0.48145466, 0.4578275, 0.40821073)
    asked = {one.name: one.choices for one in clip.checkpoint.assumed}
    assert asked["normalisation"][0].startswith("mean=0.48145466")
    assert "activation=quick_gelu" in asked["activation"]


WAYS = {"class": {}, "average": {"global_pool": "avg"}, "max": {"global_pool": "max"},
        "average and max": {"global_pool": "avgmax"},
        "average of all": {"global_pool": "avg", "pool_include_prefix": True}}  # fmt: skip


@pytest.mark.parametrize("block", ["pre-norm", "res-post-norm", "post-norm"])
@pytest.mark.parametrize("pool", WAYS)
def test_what_fits_the_same_tensors_is_asked_and_followed(tmp_path, pool, block):
    """timm's own forward of each form; of PyTorch's, whose norms stand behind each sum, a loop by hand."""
    from timm.models.vision_transformer import Block, ResPostBlock

    timms = {"res-post-norm": ResPostBlock}.get(block, Block)
    theirs = small(fc_norm=False, block_fn=timms, **WAYS[pool])
    path, noise = saved(theirs, tmp_path / "best.safetensors"), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        wanted = theirs(noise)
        if block == "post-norm":
            x = theirs._pos_embed(theirs.patch_embed(noise))
            for one in theirs.blocks:
                x = one.norm1(x + one.attn(x))
                x = one.norm2(x + one.mlp(x))
            wanted = theirs.forward_head(theirs.norm(x))
    with pytest.warns(
        vitviz.AssumedWarning, match=r"reads \(pool=class\), where its norms stand \(block=pre"
    ):
        silent = vitviz.load(path, heads=2, device="cpu")
    asked = {one.name: one.choices for one in silent.checkpoint.assumed}
    assert len(asked["pool"]) == 5 and len(asked["block"]) == 3
    inspector = vitviz.load(path, heads=2, pool=pool, block=block, mean=0.5, std=0.5, device="cpu")
    torch.testing.assert_close(inspector.model(noise), wanted)
    assert not {"pool", "block"} & {one.name for one in inspector.checkpoint.assumed}
    trace = inspector.trace(vitviz.sample_image("coffee"))
    assert trace.pool == pool and trace.attention(1).isfinite().all()
    sidecar_config.write_config(inspector.checkpoint, inspector.model, inspector.preprocessing)
    again = vitviz.load(path, device="cpu")
    assert again.checkpoint.assumed == () and again.model(noise).equal(inspector.model(noise))


def test_what_tensors_exclude_is_not_asked(tmp_path):
    def asked(**parts):
        path = saved(small(**parts), tmp_path / "best.safetensors")
        return {one.name: one.choices for one in vitviz.load(path, device="cpu").checkpoint.assumed}

    assert "block" not in asked(init_values=1e-5), "LayerScale stands in pre-norm blocks alone"
    mapped = asked(global_pool="map", class_token=False)
    assert "pool" not in mapped and "block" in mapped
    assert asked(global_pool="map")["pool"] == ("pool=attention", "pool=attention+of+all")
    bare = asked(global_pool="avg", class_token=False)["pool"]
    assert bare == ("pool=average", "pool=max", "pool=average+and+max")
    wrong = saved(small(init_values=1e-5), tmp_path / "best.safetensors")
    with pytest.raises(CheckpointError, match="LayerScale"):
        vitviz.load(wrong, block="post-norm", device="cpu")
    with pytest.raises(CheckpointError, match="cannot read 'attention'; expected class or"):
        vitviz.load(wrong, pool="attention", device="cpu")


def test_what_is_said_is_followed_and_nothing_left_to_assume(tmp_path):
    path = saved(small(), tmp_path / "mine.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error", vitviz.AssumedWarning)
        inspector = vitviz.load(path, heads=4, **ALL, labels=list("abcdefg"), device="cpu")
    assert inspector.preprocessing.std == (0.5,) * 3 and inspector.preprocessing.interpolation == "bilinear"
    assert [block.attn.num_heads for block in inspector.model.blocks] == [4, 4]
    assert inspector.labels == tuple("abcdefg") and inspector.checkpoint.assumed == ()
    assert inspector.checkpoint.note == "", "nor does it say so"
    by_name = vitviz.load(inspector.checkpoint.name.replace("mine.safetensors", str(path)), device="cpu")
    picture = vitviz.sample_image("coffee")
    assert by_name.trace(picture).logits.equal(inspector.trace(picture).logits)


def test_heads_epsilon_and_activation_are_those_of_a_model_built_with_them(tmp_path):
    from functools import partial

    from timm.layers import LayerNorm

    other = small(num_heads=8, act_layer="quick_gelu", norm_layer=partial(LayerNorm, eps=1e-2))
    path = saved(other, tmp_path / "mine.safetensors")
    inspector = vitviz.load(
        path, heads=8, activation="quick_gelu", epsilon=1e-2, mean=0.5, std=0.5, device="cpu"
    )
    noise = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(inspector.model(noise), other(noise))


def test_heads_that_an_architecture_has_otherwise_are_followed(tmp_path):
    name = "vit_tiny_patch16_224"
    other = perturbed(timm.create_model(name, num_heads=6, img_size=32, num_classes=7))
    path = saved(other, tmp_path / "mine.safetensors")
    inspector = vitviz.load(path, architecture=name, heads=6, device="cpu")
    noise = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(inspector.model(noise), other(noise))
        for block in inspector.model.blocks:
            block.attn.fused_attn = False  # as exports compute it: with the scale that stands in the model
        torch.testing.assert_close(inspector.model(noise), other(noise))


@pytest.mark.parametrize(
    "wrong",
    [{"heads": 0}, {"heads": 2.5}, {"mean": "red"}, {"std": 0}, {"std": (1, 1)}, {"activation": "sine"},
     {"epsilon": -1}, {"pool": "avg"}, {"block": "sandwich"}, {"crop_pct": 0}, {"interpolation": "soft"},
     {"mean": float("nan")}],
)  # fmt: skip
def test_what_cannot_be_said_is_refused(wrong):
    with pytest.raises(VitvizError, match=next(iter(wrong))):
        vitviz.load("vitviz-tiny", **wrong)


@pytest.mark.parametrize("text", ["heads=many", "width=3", "heads", "heads=3&heads=4", "mean=1,2", "x" * 500])
def test_a_name_that_says_nonsense_is_refused(text):
    with pytest.raises(VitvizError):
        vitviz.load(f"vitviz-tiny?{text}")


def test_a_text_is_read_as_it_was_written():
    given = Overrides(6, (0.48145466, 0.1, 0.2), (0.5,) * 3, 0.875, "squash", "bicubic", "relu", 1e-12)
    assert Overrides.parse(given.text()) == given


def test_heads_that_do_not_divide_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="128 does not divide"):
        vitviz.load(saved(small(), tmp_path / "mine.safetensors"), heads=3)


@pytest.mark.long
def test_each_choice_says_what_it_would_answer(tmp_path):
    path = saved(small(), tmp_path / "mine.safetensors")
    inspector = vitviz.load(path, device="cpu")
    picture = open_image(vitviz.sample_image("chelsea"))
    found = list(
        choices.predictions_by_choice(
            inspector, picture, inspector.checkpoint.assumed, inspector.preprocessing.size
        )
    )
    assert len(found) == sum(len(one.choices) for one in inspector.checkpoint.assumed)
    for name, choice, answer in found:
        if name in ("normalisation", "activation", "pool", "block"):
            alone = vitviz.load(f"{path}?{choice}", device="cpu").trace(picture).top(1)[0]
            assert answer == pytest.approx(alone), choice
    assert inspector.trace(picture).top(1)[0] == pytest.approx(found[0][2])


def test_an_answer_is_kept_in_timms_form(tmp_path):
    other = small(num_heads=4, act_layer="relu")
    path = saved(other, tmp_path / "mine.safetensors")
    first = vitviz.load(
        path, heads=4, activation="relu", mean=0.3, std=0.2, labels=list("abcdefg"), device="cpu"
    )
    written = sidecar_config.write_config(first.checkpoint, first.model, first.preprocessing, first.labels)
    assert written.name == "mine.config.json" and not list(tmp_path.glob(".*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", vitviz.AssumedWarning)
        again = vitviz.load(path, device="cpu")
    assert again.preprocessing == first.preprocessing and again.labels == first.labels
    picture = vitviz.sample_image("coffee")
    assert again.trace(picture).logits.equal(first.trace(picture).logits)
    with pytest.raises(CheckpointError, match="config.json already"):
        sidecar_config.write_config(again.checkpoint, again.model, again.preprocessing)
    folder = tmp_path / "folder"
    folder.mkdir()
    path.rename(folder / "model.safetensors"), written.rename(folder / "config.json")
    alone = timm.create_model(f"local-dir:{folder}", pretrained=True)
    noise = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(alone.eval()(noise), other(noise))


def test_an_epsilon_and_a_mapping_are_kept_too(tmp_path):
    model = perturbed(Scratch(Apart))
    path = tmp_path / "mine.safetensors"
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, path)
    first = vitviz.load(path, heads=4, epsilon=1e-5, mean=0.5, std=0.5, device="cpu")
    sidecar_config.write_config(first.checkpoint, first.model, first.preprocessing, first.labels)
    assert json.loads((tmp_path / "mine.config.json").read_text())["vitviz"] == {"epsilon": 1e-5}
    again = vitviz.load(path, device="cpu")
    noise = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(again.model(noise), model(noise)[0], atol=1e-4, rtol=1e-4)
    assert again.checkpoint.assumed == ()


def test_what_is_shipped_or_on_the_hub_is_not_written_to():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    with pytest.raises(CheckpointError, match="no file of this machine"):
        sidecar_config.write_config(inspector.checkpoint, inspector.model, inspector.preprocessing)
