"""Models stay float32 for any default dtype of torch during loading, resizing and forward passes."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
import timm
import torch

import vitviz
from tests.engine.models.custom_vits import CustomViT, SeparateMatrices
from tests.engine.small_models import perturbed, save_model
from vitviz.engine.defaults import in_float32
from vitviz.views import VIEWS, ViewContext
from vitviz.views.routes import parse_settings

IMAGE = np.random.default_rng(0).integers(0, 255, (80, 60, 3), dtype=np.uint8)
# Rotary tables and tables of relative positions are computed when the model is built,
# and again for another size.
KINDS = {
    "learned": ("vit_tiny_patch16_224", {}),
    "rotary": ("eva02_tiny_patch14_224", {"patch_size": 8}),
    "dinov3": ("vit_small_patch16_dinov3", {"patch_size": 8}),
    "relative": ("beit_base_patch16_224", {}),
}


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Create a checkpoint of each kind in timm's local-dir format."""
    paths = {}
    for kind, (name, changes) in KINDS.items():
        folder = tmp_path_factory.mktemp(kind)
        args = {
            "img_size": 32,
            "patch_size": 8,
            "embed_dim": 128,
            "depth": 2,
            "num_heads": 2,
            "num_classes": 7,
            **changes,
        }
        model = perturbed(timm.create_model(name, pretrained=False, **args))
        save_model(model, folder / "model.safetensors")
        config = {
            "architecture": name,
            "num_classes": 7,
            "model_args": args,
            "pretrained_cfg": {"input_size": [3, 32, 32]},
        }
        (folder / "config.json").write_text(json.dumps(config))
        paths[kind] = str(folder)
    return paths


def all_numbers(inspector, size=None):
    """Return tokens, attention and all exported numbers of views."""
    trace = inspector.trace(IMAGE, size=size)
    arrays = {f"tokens {i}": tokens.numpy() for i, tokens in enumerate(trace.tokens)} | {
        "logits": trace.logits.numpy()
    }
    arrays["readout"] = inspector.readout(trace).numpy()
    arrays["attention"] = trace.attention(1).numpy()
    subject = ViewContext(inspector, trace)
    for view in VIEWS:
        if view.unsupported(subject) is None:
            view_arrays = view.numbers(subject, parse_settings(view, {}, subject.about))
            arrays |= {f"{view.slug} {name}": array for name, array in view_arrays.items()}
    shuffled = inspector.experiment(trace.view, shuffle=1)
    return arrays | {"shuffled": shuffled.logits.numpy()}


@pytest.mark.sweep  # every view of each kind, five times
@pytest.mark.parametrize("kind", KINDS)
def test_default_dtype_does_not_change_results(folders, kind, fast_faithfulness, fast_perturbation):
    inspector = vitviz.load(folders[kind], device="cpu")
    expected, wider = all_numbers(inspector), inspector.trace(IMAGE, size=48)
    for dtype in (torch.bfloat16, torch.float64):
        with default_dtype(dtype):
            assert_nothing_changes(folders[kind], dtype, inspector, expected, wider)


def assert_nothing_changes(folder, dtype, inspector, expected, wider):
    loaded = vitviz.load(folder, device="cpu")
    for name, tensor in [*loaded.model.named_parameters(), *loaded.model.named_buffers()]:
        assert not tensor.is_floating_point() or tensor.dtype == torch.float32, name
    for checked in (loaded, inspector):  # a model loaded now, and one from before
        actual = all_numbers(checked)
        assert actual.keys() == expected.keys()
        for name in expected:
            assert actual[name].dtype == expected[name].dtype, name
            np.testing.assert_array_equal(actual[name], expected[name], err_msg=f"{name}, {dtype}")
        assert torch.equal(checked.trace(IMAGE, size=48).logits, wider.logits)
    inspector.placed.sizes.clear()  # another size is built again
    inspector.placed.sizes[inspector.preprocessing.size] = inspector.model
    assert torch.equal(inspector.trace(IMAGE, size=48).logits, wider.logits)
    assert torch.get_default_dtype() == dtype, "the default dtype was not restored"


def test_proposed_mapping_is_verified_in_float32(tmp_path):
    path = save_model(perturbed(CustomViT(SeparateMatrices)), tmp_path / "mine.safetensors")
    stated = {"heads": 4, "mean": 0.5, "std": 0.5, "device": "cpu"}
    with pytest.warns(vitviz.AssumedWarning, match="the names of its tensors"):
        expected = vitviz.load(path, **stated).trace(IMAGE).logits
        with default_dtype(torch.bfloat16):
            assert torch.equal(vitviz.load(path, **stated).trace(IMAGE).logits, expected)


def test_nested_float32_contexts_restore_default():
    with default_dtype(torch.bfloat16):
        with in_float32():
            with in_float32():
                assert torch.zeros(1).dtype == torch.float32
            assert torch.zeros(1).dtype == torch.float32
        assert torch.zeros(1).dtype == torch.bfloat16
        with pytest.raises(ZeroDivisionError), in_float32():
            _ = 1 / 0
        assert torch.zeros(1).dtype == torch.bfloat16
