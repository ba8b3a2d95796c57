"""What travels to the process that a Space with shared GPUs lends can be pickled, and is the same when it
arrives.
"""

import pickle

import pytest
import torch

import vitviz
from vitviz.errors import CheckpointError, HubError, ImageError, OutOfMemory, UnsupportedModel, VitvizError
from vitviz.server import zerogpu
from vitviz.traces.samples import sample_image


def test_a_trace_is_the_same_after_its_journey():
    trace = vitviz.load("vitviz-tiny", device="cpu").trace(sample_image("chelsea"))
    travelled = pickle.loads(pickle.dumps(trace))
    assert torch.equal(travelled.attention(2), trace.attention(2)) and torch.equal(
        travelled.logits, trace.logits
    )
    assert (travelled.view.picture == trace.view.picture).all() and travelled.view.box == trace.view.box
    assert (travelled.grid, travelled.labels, travelled.dtype) == (trace.grid, trace.labels, trace.dtype)


@pytest.mark.parametrize(
    "kind",
    [VitvizError, ImageError, CheckpointError, UnsupportedModel, HubError, OutOfMemory, zerogpu.Unavailable],
)
def test_every_error_keeps_its_words(kind):
    travelled = pickle.loads(pickle.dumps(kind("What was given, and what to do.")))
    assert type(travelled) is kind and str(travelled) == "What was given, and what to do."


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        "beit_base_patch16_224",
        "eva02_tiny_patch14_224",
        "vit_base_patch16_siglip_224",
    ],
)
def test_every_familys_model_can_be_sent(name):
    from tests.engine.looking import inspect, noise, perturbed

    inspector = inspect(perturbed(name, depth=1), name)
    inspector.forward.elsewhere = lambda *args: None  # belongs to its process, and could not be pickled
    travelled = pickle.loads(pickle.dumps(inspector))
    assert (
        torch.equal(travelled.trace(noise()).attention(0), inspector.trace(noise()).attention(0))
        and travelled.forward.elsewhere is None
    )
