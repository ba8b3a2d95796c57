"""float32 is float32, whatever torch's default is when a model is loaded, sized, or runs."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
import timm
import torch

import vitviz
from tests.engine.models.theirs import Apart, Scratch
from tests.engine.small import perturbed, saved
from vitviz.engine.defaults import in_float32
from vitviz.views import VIEWS, ViewContext

PICTURE = np.random.default_rng(0).integers(0, 255, (80, 60, 3), dtype=np.uint8)
# Rotary tables and a table of relative positions are computed when the model is built, and anew for another
# size.
KINDS = {
    "learned": ("vit_tiny_patch16_224", {}),
    "rotary": ("eva02_tiny_patch14_224", {"patch_size": 8}),
    "dinov3": ("vit_small_patch16_dinov3", {"patch_size": 8}),
    "relative": ("beit_base_patch16_224", {}),
}


@contextmanager
def default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A checkpoint of each kind in timm's local-dir form."""
    made = {}
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
        saved(model, folder / "model.safetensors")
        config = {
            "architecture": name,
            "num_classes": 7,
            "model_args": args,
            "pretrained_cfg": {"input_size": [3, 32, 32]},
        }
        (folder / "config.json").write_text(json.dumps(config))
        made[kind] = str(folder)
    return made


def numbers(inspector, size=None):
    """Tokens, attention and everything that a view takes home."""
    trace = inspector.trace(PICTURE, size=size)
    found = {f"tokens {i}": tokens.numpy() for i, tokens in enumerate(trace.tokens)} | {
        "logits": trace.logits.numpy()
    }
    found["readout"] = inspector.readout(trace).numpy()
    found["attention"] = trace.attention(1).numpy()
    subject = ViewContext(inspector, trace)
    for view in VIEWS:
        if view.unsupported(subject) is None:
            taken = view.numbers(subject, view.settings({}, subject.about))
            found |= {f"{view.slug} {name}": array for name, array in taken.items()}
    shuffled = inspector.experiment(trace.view, shuffle=1)
    return found | {"shuffled": shuffled.logits.numpy()}


@pytest.mark.sweep  # every view of each kind five times
@pytest.mark.parametrize("kind", KINDS)
def test_the_default_dtype_changes_nothing(folders, kind):
    inspector = vitviz.load(folders[kind], device="cpu")
    expected, wider = numbers(inspector), inspector.trace(PICTURE, size=48)
    for dtype in (torch.bfloat16, torch.float64):
        with default(dtype):
            nothing_changes(folders[kind], dtype, inspector, expected, wider)


def nothing_changes(folder, dtype, inspector, expected, wider):
    loaded = vitviz.load(folder, device="cpu")
    for name, tensor in [*loaded.model.named_parameters(), *loaded.model.named_buffers()]:
        assert not tensor.is_floating_point() or tensor.dtype == torch.float32, name
    for one in (loaded, inspector):  # one that is loaded now, and one from before
        found = numbers(one)
        assert found.keys() == expected.keys()
        for name in expected:
            assert found[name].dtype == expected[name].dtype, name
            np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name}, {dtype}")
        assert torch.equal(one.trace(PICTURE, size=48).logits, wider.logits)
    inspector.placed.sizes.clear()  # another size is made anew
    inspector.placed.sizes[inspector.preprocessing.size] = inspector.model
    assert torch.equal(inspector.trace(PICTURE, size=48).logits, wider.logits)
    assert torch.get_default_dtype() == dtype, "the default is its owner's again"


def test_a_proposed_mapping_is_proven_in_float32(tmp_path):
    path = saved(perturbed(Scratch(Apart)), tmp_path / "mine.safetensors")
    said = {"heads": 4, "mean": 0.5, "std": 0.5, "device": "cpu"}
    with pytest.warns(vitviz.AssumedWarning, match="what its tensors are"):
        expected = vitviz.load(path, **said).trace(PICTURE).logits
        with default(torch.bfloat16):
            assert torch.equal(vitviz.load(path, **said).trace(PICTURE).logits, expected)


def test_the_default_is_set_back_by_the_last():
    with default(torch.bfloat16):
        with in_float32():
            with in_float32():
                assert torch.zeros(1).dtype == torch.float32
            assert torch.zeros(1).dtype == torch.float32
        assert torch.zeros(1).dtype == torch.bfloat16
        with pytest.raises(ZeroDivisionError), in_float32():
            _ = 1 / 0
        assert torch.zeros(1).dtype == torch.bfloat16
