"""Unusual use of an inspector from a notebook: the results stay correct, or an error explains the problem."""

import pickle
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

import vitviz
from vitviz.engine.forward.hooks import Hooks
from vitviz.errors import VitvizError

IMAGE = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "get_tensor",
    [
        lambda inspector: inspector.position_table(),
        lambda inspector: inspector.patch_filters(),
        lambda inspector: inspector.parts().classifier.weight,
        lambda inspector: inspector.parts().classifier.bias,
        lambda inspector: inspector.parts().embedding.weight,
        lambda inspector: inspector.parts().embedding.bias,
        lambda inspector: inspector.parts().prefix,
        lambda inspector: inspector.parts().positions,
    ],
    ids=[
        "positions",
        "filters",
        "classifier",
        "its bias",
        "embedding",
        "bias of that",
        "class token",
        "all positions",
    ],
)
def test_writing_into_returned_tensors_does_not_change_model(inspector, get_tensor):
    before = inspector.trace(IMAGE).logits
    get_tensor(inspector).zero_()
    assert torch.equal(inspector.trace(IMAGE).logits, before)


@pytest.mark.parametrize("batch", [0, -3])
def test_batch_below_one_is_rejected(inspector, batch):
    with pytest.raises(VitvizError, match="1 or more"):
        vitviz.survey([IMAGE] * 3, inspector, batch=batch)


def test_single_image_is_rejected_as_survey_set(inspector):
    with pytest.raises(VitvizError, match="no folder or file picture.png; expected a folder"):
        vitviz.survey("/somewhere/picture.png", inspector)
    with pytest.raises(VitvizError, match=r"such as \[image\]"):
        vitviz.survey(vitviz.sample_image("coffee"), inspector)


@pytest.mark.parametrize("size", ["64", (64,), 64.5, (64, 64, 3), "large"])
def test_invalid_size_is_rejected(inspector, size):
    with pytest.raises(VitvizError, match="expected the input's pixels"):
        inspector.trace(IMAGE, size=size)


def test_numpy_integer_is_accepted_as_size(inspector):
    assert inspector.trace(IMAGE, size=np.int64(64)).grid == inspector.grid((64, 64))


@pytest.mark.parametrize(
    "compute",
    [lambda inspector: inspector.grid((100, 100)), lambda inspector: inspector.position_table((100, 100))],
    ids=["grid", "table"],
)
def test_size_rejected_by_trace_is_rejected_everywhere(inspector, compute):
    with pytest.raises(VitvizError, match="96 x 96|104 x 104"):
        compute(inspector)


def test_default_dtype_does_not_change_logits(inspector):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        other = vitviz.load("vitviz-tiny", device="cpu").trace(IMAGE)
    finally:
        torch.set_default_dtype(before)
    assert other.logits.dtype == torch.float32 and torch.allclose(
        other.logits, inspector.trace(IMAGE).logits, atol=1e-5
    )


def test_autocast_does_not_change_trace(inspector):
    exact = inspector.trace(IMAGE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast_trace = inspector.trace(IMAGE)
        weights = exact.attention(3)
    assert torch.equal(autocast_trace.logits, exact.logits) and torch.equal(weights, exact.attention(3))


def test_nan_weights_are_reported():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    inspector.trace(IMAGE)
    with torch.no_grad():
        inspector.model.blocks[-1].mlp.fc2.bias[0] = float("nan")
    with pytest.raises(VitvizError, match="not finite"):
        inspector.trace(IMAGE)


@pytest.mark.parametrize(
    "output",
    [5, np.zeros(3), (torch.zeros(1),), torch.zeros(1, 196, 192)],
    ids=["number", "array", "tuple", "a token less"],
)
@pytest.mark.parametrize("point", ["blocks.1.input", "blocks.1.mlp"])
def test_hook_with_invalid_return_value_is_rejected(inspector, point, output):
    with (
        inspector.hook(point, lambda tensor: output),
        pytest.raises(VitvizError, match=rf"The hook at {point} returned .*\(1, 197, 192\)"),
    ):
        inspector.trace(IMAGE)
    inspector.trace(IMAGE)


@pytest.mark.parametrize(
    ("point", "fn"),
    [
        ("bogus", print),
        (5, print),
        (None, print),
        ("blocks.99.mlp", print),
        ("blocks.1.mlp", None),
        ("blocks.1.mlp", "x"),
    ],
)
def test_invalid_hook_is_rejected_on_registration(inspector, point, fn):
    with pytest.raises(VitvizError, match="expected"):
        inspector.hook(point, fn)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_logits_are_reported(value):
    """Only the head is faulty. A softmax over these logits would show NaN as probabilities."""
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    with torch.no_grad():
        inspector.model.head.bias[3] = value
    with pytest.raises(VitvizError, match="not finite"):
        inspector.trace(IMAGE)


@pytest.mark.parametrize("count", [-1, -(10**30), True])
def test_invalid_class_count_is_rejected(inspector, count):
    with pytest.raises(VitvizError, match="a whole number from 0"):
        inspector.trace(IMAGE).top(count)


def test_top_accepts_zero_and_large_counts(inspector):
    trace = inspector.trace(IMAGE)
    assert trace.top(0) == [] and len(trace.top(10**9)) == len(trace.logits)


@pytest.mark.parametrize("seed", [-1, 1.5, "one", True])
def test_invalid_seed_is_rejected(inspector, seed):
    with pytest.raises(VitvizError, match=r"shuffle=.*whole number from 0"):
        inspector.experiment(IMAGE, shuffle=seed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("point", ["blocks.1.input", "blocks.1.mlp", "blocks.3.output"])
def test_hook_returning_another_dtype_is_rejected(inspector, point, dtype):
    wrong = str(dtype).removeprefix("torch.")
    with (
        inspector.hook(point, lambda tensor: tensor.to(dtype)),
        pytest.raises(VitvizError, match=f"at {point} returned {wrong} on cpu; expected float32"),
    ):
        inspector.trace(IMAGE)
    inspector.trace(IMAGE)


def test_readout_of_another_checkpoints_trace_is_rejected(inspector):
    trace = inspector.trace(IMAGE)
    with pytest.raises(VitvizError, match="The trace is of another; expected one of vitviz-tiny"):
        inspector.readout(replace(trace, checkpoint="another"))
    inspector.readout(trace)


def test_hooks_of_concurrent_threads_are_called_and_removed(inspector):
    """Each thread's own hook is registered during all its passes, while other threads add and
    remove hooks.
    """
    hooks, missed, before = Hooks(), [], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def add_and_remove():
        for _ in range(400):

            def own_hook(tensor):
                return None

            with hooks.add(inspector.model, "blocks.1.mlp", own_hook, "some"):
                if all(fn is not own_hook for _, fn in hooks._asked):
                    missed.append(own_hook)

    threads = [threading.Thread(target=add_and_remove) for _ in range(8)]
    try:
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    finally:
        sys.setswitchinterval(before)
    assert not missed and not hooks.changes()


def test_pickled_inspector_has_no_hooks(inspector):
    with inspector.hook("blocks.1.mlp", lambda tensor: tensor * 0):
        twin = pickle.loads(pickle.dumps(inspector))
    assert not twin.placed.hooks.changes()
    assert torch.equal(twin.trace(IMAGE).logits, inspector.trace(IMAGE).logits)
