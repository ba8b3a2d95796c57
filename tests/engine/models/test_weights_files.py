"""Weights files: wrapped, damaged and hostile."""

import argparse
import io
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import vitviz
from tests.engine.small_models import assert_same_logits, save_model, small_vit
from vitviz.engine import choices
from vitviz.engine.adapters import sidecar_config
from vitviz.engine.adapters.load import load
from vitviz.engine.formats.weights import read_tensors
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.engine.images.opening import open_image
from vitviz.errors import CheckpointError

WRAPPED = {
    "bare": lambda s: s,
    "state_dict and module.": lambda s: {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in s.items()}},
    "model and Namespace": lambda s: {"model": s, "args": argparse.Namespace(lr=0.1)},
    "Lightning": lambda s: {
        "state_dict": {f"model.{k}": v for k, v in s.items()},
        "pytorch-lightning_version": "2.5",
    },
    "compiled": lambda s: {"model": {f"_orig_mod.module.{k}": v for k, v in s.items()}},
    "EMA first": lambda s: {"model": {k: v + 1 for k, v in s.items()}, "model_ema": s},
    "model_state_dict": lambda s: {"epoch": 3, "model_state_dict": s, "optimizer_state_dict": {"state": {}}},
    "net": lambda s: {"net": {f"module.{k}": v for k, v in s.items()}, "acc": 91.5},
    "state_dict_ema": lambda s: {"state_dict": {k: v + 1 for k, v in s.items()}, "state_dict_ema": s},
    "DINO teacher": lambda s: {
        "teacher": {
            **{f"module.backbone.{k}": v for k, v in s.items()},
            "module.head.mlp.0.weight": torch.ones(2, 2),
        }
    },
    "MAE decoder": lambda s: {
        "model": {**s, "mask_token": torch.zeros(1, 1, 64), "decoder_embed.weight": torch.ones(2, 2)}
    },
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_wrappers_and_prefixes_are_removed(kind, tmp_path):
    model = small_vit()
    torch.save(WRAPPED[kind](model.state_dict()), tmp_path / "weights.pth")
    loaded = load(find_checkpoint(str(tmp_path / "weights.pth")))
    assert_same_logits(loaded, model)
    assert ("EMA" in loaded.checkpoint.note) == ("ema" in kind.lower()) and (
        "training" in loaded.checkpoint.note
    ) == (kind in ("DINO teacher", "MAE decoder"))


SETS = {
    "timm": (lambda a, b: {"epoch": 3, "state_dict": b, "state_dict_ema": a, "arch": "x"}, "state_dict_ema",
             "state_dict"),
    "DINO": (lambda a, b: {"student": {f"module.backbone.{k}": v for k, v in b.items()}, "teacher": a},
             "teacher", "student"),
    "own words": (lambda a, b: {"best": a, "last": {f"module.{k}": v for k, v in b.items()}}, "best", "last"),
    "Lightning": (lambda a, b: {"state_dict": {**{f"model.{k}": v for k, v in b.items()},
                                               **{f"ema_model.{k}": v for k, v in a.items()}}},
                  "state_dict.ema_model", "state_dict.model"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SETS)
def test_one_of_two_weight_sets_is_used_and_other_is_listed(kind, tmp_path):
    wrap, first, second = SETS[kind]
    model, other = small_vit(), small_vit()
    with torch.no_grad():
        other.head.weight.mul_(-1)
    state = {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": []}
    content = wrap(model.state_dict(), other.state_dict()) | {"optimizer": state}
    torch.save(content, tmp_path / "weights.pth")
    with pytest.warns(vitviz.AssumedWarning, match=rf"which of its sets .*\(weights={first}\)"):
        shown = vitviz.load(tmp_path / "weights.pth", device="cpu")
    (asked,) = [one for one in shown.checkpoint.assumed if one.name == "weights"]
    assert asked.choices == (f"weights={first}", f"weights={second}")
    assert_same_logits(shown, model)
    chosen = vitviz.load(tmp_path / "weights.pth", weights=second, mean=0.5, std=0.5, device="cpu")
    assert_same_logits(chosen, other)
    assert "weights" not in [one.name for one in chosen.checkpoint.assumed]
    image = open_image(vitviz.sample_image("coffee"))
    predictions = {
        text: found for _, text, found in choices.predictions_by_choice(shown, image, (asked,), (32, 32))
    }
    for one, inspector in ((first, shown), (second, chosen)):
        trace = inspector.trace(image) if one == first else vitviz.load(
            tmp_path / "weights.pth", weights=second, device="cpu").trace(image)  # fmt: skip
        assert predictions[f"weights={one}"] == pytest.approx(trace.top(1)[0])
    sidecar_config.write_config(chosen.checkpoint, chosen.model, chosen.preprocessing)
    assert_same_logits(vitviz.load(tmp_path / "weights.pth", device="cpu"), other)


def test_unknown_weight_set_is_rejected_with_known_sets(tmp_path):
    state = small_vit().state_dict()
    torch.save({"model": state, "ema": state}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match="no weights 'best'; expected one of ema, model"):
        vitviz.load(tmp_path / "a.pth", weights="best")
    torch.save({"model": state}, tmp_path / "b.pth")
    with pytest.raises(CheckpointError, match="a single set of weights"):
        vitviz.load(tmp_path / "b.pth", weights="ema")


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def hostile_zip(path, payload):
    torch.save({"model": payload}, path)


def hostile_plain(path, payload):
    path.write_bytes(pickle.dumps({"state_dict": payload}, protocol=2))


def hostile_arrays(path, payload):
    np.savez(path, **{"embedding/kernel": np.array([payload], dtype=object)})


@pytest.mark.parametrize(
    ("write", "name"),
    [(hostile_zip, "a.pth"), (hostile_plain, "a.pt"), (hostile_zip, "a.bin"), (hostile_arrays, "a.npz")],
)
def test_pickle_with_code_is_rejected_and_code_does_not_run(write, name, tmp_path):
    marker = tmp_path / "it-ran"
    write(tmp_path / name, Hostile(marker))
    with pytest.raises(CheckpointError, match="run code"):
        load(find_checkpoint(str(tmp_path / name)))
    assert not marker.exists()
    pickle.loads(pickle.dumps(Hostile(marker)))  # the payload works when unpickled
    assert marker.exists()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_float_tensors_become_float32_and_integers_stay(dtype, tmp_path):
    save_file(
        {"a": torch.ones(2, dtype=dtype), "i": torch.ones(2, dtype=torch.int64)}, tmp_path / "a.safetensors"
    )
    tensors = read_tensors(tmp_path / "a.safetensors").tensors
    assert (tensors["a"].dtype, tensors["i"].dtype) == (torch.float32, torch.int64)


def test_whole_pickled_model_is_rejected_with_advice(tmp_path):
    torch.save(small_vit(), tmp_path / "whole.pth")
    with pytest.raises(CheckpointError, match=r"timm\..*state_dict"):
        load(find_checkpoint(str(tmp_path / "whole.pth")))


def test_namespace_is_allowed_only_while_reading(tmp_path):
    torch.save({"model": small_vit().state_dict(), "args": argparse.Namespace()}, tmp_path / "a.pth")
    load(find_checkpoint(str(tmp_path / "a.pth")))
    assert argparse.Namespace not in torch.serialization.get_safe_globals()


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.bin", "a.npz"])
@pytest.mark.parametrize("content", ["empty", "noise", "half"])
def test_damaged_file_is_named_in_error(name, content, tmp_path):
    whole = io.BytesIO()
    if name.endswith(".safetensors"):
        whole = io.BytesIO(save_model(small_vit(), tmp_path / "b.safetensors").read_bytes())
    elif name.endswith(".npz"):
        np.savez(whole, a=np.ones(1000))
    else:
        torch.save(small_vit().state_dict(), whole)
    data = {
        "empty": b"",
        "noise": bytes(range(256)) * 9,
        "half": whole.getvalue()[: len(whole.getvalue()) // 2],
    }[content]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=name):
        load(find_checkpoint(str(tmp_path / name)))


def test_pickle_without_tensors_is_rejected(tmp_path):
    torch.save({"model": [1, 2]}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match="no named tensors"):
        load(find_checkpoint(str(tmp_path / "a.pth")))


def test_concurrent_reads_of_pickles_succeed(tmp_path):
    """torch's list of allowed classes is global: the end of one read must not affect another."""
    path = tmp_path / "harmless.pth"
    torch.save({"model": {"weight": torch.ones(2)}, "args": argparse.Namespace(lr=0.1)}, path)
    with ThreadPoolExecutor(4) as readers:
        for tensors, *_ in readers.map(read_tensors, [path] * 300):
            assert list(tensors) == ["weight"]
