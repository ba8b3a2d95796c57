"""Objects that are sent to a ZeroGPU process survive pickling."""

import pickle

import pytest
import torch

import vitviz
from vitviz.errors import CheckpointError, HubError, ImageError, OutOfMemory, UnsupportedModel, VitvizError
from vitviz.server import zerogpu
from vitviz.traces.samples import sample_image


def test_trace_survives_pickling():
    trace = vitviz.load("vitviz-tiny", device="cpu").trace(sample_image("chelsea"))
    copy = pickle.loads(pickle.dumps(trace))
    assert torch.equal(copy.attention(2), trace.attention(2)) and torch.equal(copy.logits, trace.logits)
    assert (copy.view.picture == trace.view.picture).all() and copy.view.box == trace.view.box
    assert (copy.grid, copy.labels, copy.dtype) == (trace.grid, trace.labels, trace.dtype)


@pytest.mark.parametrize(
    "kind",
    [VitvizError, ImageError, CheckpointError, UnsupportedModel, HubError, OutOfMemory, zerogpu.Unavailable],
)
def test_errors_keep_type_and_message_after_pickling(kind):
    copy = pickle.loads(pickle.dumps(kind("What was given, and what to do.")))
    assert type(copy) is kind and str(copy) == "What was given, and what to do."


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        "beit_base_patch16_224",
        "eva02_tiny_patch14_224",
        "vit_base_patch16_siglip_224",
    ],
)
def test_inspector_of_each_family_survives_pickling(name):
    from tests.engine.random_inspectors import inspect, noise, perturbed

    inspector = inspect(perturbed(name, depth=1), name)
    inspector.forward.elsewhere = lambda *args: None  # bound to the process; a lambda cannot be pickled
    copy = pickle.loads(pickle.dumps(inspector))
    assert (
        torch.equal(copy.trace(noise()).attention(0), inspector.trace(noise()).attention(0))
        and copy.forward.elsewhere is None
    )
