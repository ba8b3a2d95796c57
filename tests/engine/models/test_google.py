"""Google's .npz archives against timm's own loader."""

import numpy as np
import pytest
import timm
import torch

from tests.engine.small_models import SMALL, assert_same_logits
from tests.tiers import sweep
from vitviz.engine.adapters.load import load
from vitviz.engine.formats import google
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.errors import CheckpointError, UnsupportedModel


def google_arrays(width=128, heads=2, depth=2, patch=8, grid=4, classes=7, big_vision=False):
    rng = np.random.default_rng(0)

    def random_array(*shape):
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)

    mha, mlp, second = (
        ("MultiHeadDotProductAttention_0", "MlpBlock_0", "LayerNorm_1")
        if big_vision
        else ("MultiHeadDotProductAttention_1", "MlpBlock_3", "LayerNorm_2")
    )
    arrays = {
        "embedding/kernel": random_array(patch, patch, 3, width),
        "embedding/bias": random_array(width),
        "cls": random_array(1, 1, width),
        "pos_embedding" if big_vision else "Transformer/posembed_input/pos_embedding": random_array(
            1, grid * grid + 1, width
        ),
        "Transformer/encoder_norm/scale": random_array(width),
        "Transformer/encoder_norm/bias": random_array(width),
        "head/kernel": random_array(width, classes),
        "head/bias": random_array(classes),
    }
    for layer in range(depth):
        block = f"Transformer/encoderblock_{layer}"
        for norm in ("LayerNorm_0", second):
            arrays |= {
                f"{block}/{norm}/scale": random_array(width),
                f"{block}/{norm}/bias": random_array(width),
            }
        for role in ("query", "key", "value"):
            arrays |= {
                f"{block}/{mha}/{role}/kernel": random_array(width, heads, width // heads),
                f"{block}/{mha}/{role}/bias": random_array(heads, width // heads),
            }
        arrays |= {
            f"{block}/{mha}/out/kernel": random_array(heads, width // heads, width),
            f"{block}/{mha}/out/bias": random_array(width),
        }
        arrays |= {
            f"{block}/{mlp}/Dense_0/kernel": random_array(width, 4 * width),
            f"{block}/{mlp}/Dense_0/bias": random_array(4 * width),
        }
        arrays |= {
            f"{block}/{mlp}/Dense_1/kernel": random_array(4 * width, width),
            f"{block}/{mlp}/Dense_1/bias": random_array(width),
        }
    return arrays


def stack_layers(arrays):
    """Stack the arrays of all layers, as big_vision's scanned layers do."""
    first = "Transformer/encoderblock_0/"
    names = [name.removeprefix(first) for name in arrays if name.startswith(first)]
    layers = {
        f"Transformer/encoderblock/{n}": np.stack(
            [arrays[f"Transformer/encoderblock_{i}/{n}"] for i in range(2)]
        )
        for n in names
    }
    return {n: a for n, a in arrays.items() if "encoderblock" not in n} | layers


ARCHIVES = {
    "paper": (google_arrays(heads=4), ""),
    "optimiser": (google_arrays(heads=4), "opt/target/"),
    "big_vision": (google_arrays(heads=4, big_vision=True), "params/"),
    "big_vision stacked": (stack_layers(google_arrays(heads=4, big_vision=True)), "params/"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_google_archive_equals_timm_loader(kind, tmp_path):
    arrays, prefix = ARCHIVES[kind]
    path = tmp_path / "Ti_8.npz"
    np.savez(path, **{prefix + name: value for name, value in arrays.items()})
    model = timm.create_model("vit_tiny_patch16_224", **{**SMALL, "num_heads": 4}).eval()
    model.load_pretrained(str(path))
    loaded = load(find_checkpoint(str(path)))
    assert_same_logits(loaded, model)
    assert loaded.model.blocks[0].attn.num_heads == 4 and "heads" not in loaded.checkpoint.note
    assert loaded.preprocessing.mean == (0.5, 0.5, 0.5)


def test_google_representation_layer_is_dropped_with_note(tmp_path):
    arrays = google_arrays() | {
        "pre_logits/kernel": np.ones((128, 128), np.float32),
        "pre_logits/bias": np.ones(128, np.float32),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    loaded = load(find_checkpoint(str(tmp_path / "a.npz")))
    assert loaded.model.num_classes == 0 and "representation layer" in loaded.checkpoint.note


def test_unexpected_google_array_is_named(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        **google_arrays(),
        **{"Transformer/encoderblock_1/Gate_0/kernel": np.ones(3, np.float32)},
    )
    with pytest.raises(CheckpointError, match="Gate_0"):
        load(find_checkpoint(str(tmp_path / "a.npz")))


def test_google_hybrid_stem_equals_timm_loader(tmp_path):
    from timm.models.vision_transformer_hybrid import _create_vision_transformer_hybrid, _resnetv2

    def hybrid():
        return _create_vision_transformer_hybrid(
            "vit_tiny_r_s16_p8_224", backbone=_resnetv2((1, 1)), **{**SMALL, "img_size": 32, "patch_size": 1}
        )

    model = hybrid()
    rng = np.random.default_rng(0)
    arrays = google_arrays(patch=1, grid=model.patch_embed.grid_size[0])
    arrays["embedding/kernel"] = rng.standard_normal(
        (1, 1, model.patch_embed.proj.in_channels, 128), dtype=np.float32
    )
    stem = model.patch_embed.backbone

    def norm(name, module):
        shape = (1, 1, 1, module.weight.shape[0])
        return {
            f"{name}/scale": rng.standard_normal(shape, dtype=np.float32),
            f"{name}/bias": rng.standard_normal(shape, dtype=np.float32),
        }

    def conv(name, module):
        o, i, h, w = module.weight.shape
        return {f"{name}/kernel": rng.standard_normal((h, w, i, o), dtype=np.float32)}

    arrays |= conv("conv_root", stem.stem.conv) | norm("gn_root", stem.stem.norm)
    for i, stage in enumerate(stem.stages):
        unit, block = f"block{i + 1}/unit1", stage.blocks[0]
        for r in (1, 2, 3):
            arrays |= conv(f"{unit}/conv{r}", getattr(block, f"conv{r}")) | norm(
                f"{unit}/gn{r}", getattr(block, f"norm{r}")
            )
        arrays |= conv(f"{unit}/conv_proj", block.downsample.conv) | norm(
            f"{unit}/gn_proj", block.downsample.norm
        )
    np.savez(tmp_path / "r.npz", **arrays)
    model.load_pretrained(str(tmp_path / "r.npz"))
    converted, _, _ = google.to_timm(
        {name: torch.from_numpy(value) for name, value in arrays.items()}, "r.npz"
    )
    assert converted.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(converted[name], value), name


@sweep("key", sorted(google_arrays(depth=1)), quick=3)
@pytest.mark.parametrize(
    "damage", [lambda a: a[..., :1], lambda a: a.ravel(), lambda a: a[None], lambda a: np.float32(0)]
)
def test_google_array_of_other_shape_is_rejected_or_loads(key, damage, tmp_path):
    """Damage to one array must give an error message or a model with finite logits."""
    arrays = google_arrays(depth=1)
    np.savez(tmp_path / "mine.npz", **{**arrays, key: damage(arrays[key])})
    try:
        loaded = load(find_checkpoint(str(tmp_path / "mine.npz")))
    except (CheckpointError, UnsupportedModel):
        return
    assert loaded.model(torch.zeros(1, 3, *loaded.preprocessing.size)).isfinite().all()
