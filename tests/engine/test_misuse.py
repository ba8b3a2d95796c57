"""What a notebook may do to an inspector: it answers as before, or says what was wrong."""

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

PICTURE = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "given",
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
def test_writing_into_what_was_given_changes_no_model(inspector, given):
    before = inspector.trace(PICTURE).logits
    given(inspector).zero_()
    assert torch.equal(inspector.trace(PICTURE).logits, before)


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_of_no_pictures_is_refused(inspector, batch):
    with pytest.raises(VitvizError, match="1 or more"):
        vitviz.survey([PICTURE] * 3, inspector, batch=batch)


def test_one_path_is_no_set_of_pictures(inspector):
    with pytest.raises(VitvizError, match="no folder or file picture.png; expected a folder"):
        vitviz.survey("/somewhere/picture.png", inspector)
    with pytest.raises(VitvizError, match=r"such as \[picture\]"):
        vitviz.survey(vitviz.sample_image("coffee"), inspector)


@pytest.mark.parametrize("size", ["64", (64,), 64.5, (64, 64, 3), "large"])
def test_a_size_that_is_none_is_said(inspector, size):
    with pytest.raises(VitvizError, match="expected the input's pixels"):
        inspector.trace(PICTURE, size=size)


def test_numpys_numbers_are_sizes(inspector):
    assert inspector.trace(PICTURE, size=np.int64(64)).grid == inspector.grid((64, 64))


@pytest.mark.parametrize(
    "ask",
    [lambda inspector: inspector.grid((100, 100)), lambda inspector: inspector.position_table((100, 100))],
    ids=["grid", "table"],
)
def test_no_size_is_answered_that_a_trace_would_refuse(inspector, ask):
    with pytest.raises(VitvizError, match="96 x 96|104 x 104"):
        ask(inspector)


def test_another_default_of_torch_changes_nothing(inspector):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        other = vitviz.load("vitviz-tiny", device="cpu").trace(PICTURE)
    finally:
        torch.set_default_dtype(before)
    assert other.logits.dtype == torch.float32 and torch.allclose(
        other.logits, inspector.trace(PICTURE).logits, atol=1e-5
    )


def test_automatic_precision_is_left_out(inspector):
    exact = inspector.trace(PICTURE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = inspector.trace(PICTURE)
        weights = exact.attention(3)
    assert torch.equal(seen.logits, exact.logits) and torch.equal(weights, exact.attention(3))


def test_numbers_that_are_not_finite_are_told():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    inspector.trace(PICTURE)
    with torch.no_grad():
        inspector.model.blocks[-1].mlp.fc2.bias[0] = float("nan")
    with pytest.raises(VitvizError, match="not finite"):
        inspector.trace(PICTURE)


@pytest.mark.parametrize(
    "given",
    [5, np.zeros(3), (torch.zeros(1),), torch.zeros(1, 196, 192)],
    ids=["number", "array", "tuple", "a token less"],
)
@pytest.mark.parametrize("point", ["blocks.1.input", "blocks.1.mlp"])
def test_a_hook_that_returns_something_else_is_named(inspector, point, given):
    with (
        inspector.hook(point, lambda tensor: given),
        pytest.raises(VitvizError, match=rf"The hook at {point} returned .*\(1, 197, 192\)"),
    ):
        inspector.trace(PICTURE)
    inspector.trace(PICTURE)


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
def test_a_hook_that_cannot_be_is_refused_at_once(inspector, point, fn):
    with pytest.raises(VitvizError, match="expected"):
        inspector.hook(point, fn)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite_are_told(value):
    """The tokens are sound; only the head is not, and a softmax over its logits would show 'nan' as
    probabilities.
    """
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    with torch.no_grad():
        inspector.model.head.bias[3] = value
    with pytest.raises(VitvizError, match="not finite"):
        inspector.trace(PICTURE)


@pytest.mark.parametrize("count", [-1, -(10**30), True])
def test_how_many_classes_is_a_whole_number(inspector, count):
    with pytest.raises(VitvizError, match="a whole number from 0"):
        inspector.trace(PICTURE).top(count)


def test_all_classes_and_none(inspector):
    trace = inspector.trace(PICTURE)
    assert trace.top(0) == [] and len(trace.top(10**9)) == len(trace.logits)


@pytest.mark.parametrize("seed", [-1, 1.5, "one", True])
def test_a_seed_is_a_whole_number(inspector, seed):
    with pytest.raises(VitvizError, match=r"Given shuffle=.*whole number from 0"):
        inspector.experiment(PICTURE, shuffle=seed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("point", ["blocks.1.input", "blocks.1.mlp", "blocks.3.output"])
def test_a_hook_that_returns_another_dtype_is_named(inspector, point, dtype):
    wrong = str(dtype).removeprefix("torch.")
    with (
        inspector.hook(point, lambda tensor: tensor.to(dtype)),
        pytest.raises(VitvizError, match=f"at {point} returned {wrong} on cpu; expected float32"),
    ):
        inspector.trace(PICTURE)
    inspector.trace(PICTURE)


def test_another_checkpoints_trace_is_not_read_out(inspector):
    trace = inspector.trace(PICTURE)
    with pytest.raises(VitvizError, match="Given a trace of another; expected one of vitviz-tiny"):
        inspector.readout(replace(trace, checkpoint="another"))
    inspector.readout(trace)


def test_hooks_of_many_threads_all_hold_and_all_end(inspector):
    """Each thread's own hook is called in each of its passes, whatever others open and close meanwhile."""
    hooks, missed, before = Hooks(), [], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def opens_and_closes():
        for _ in range(400):

            def mine(tensor):
                return None

            with hooks.asked(inspector.model, "blocks.1.mlp", mine, "some"):
                if all(fn is not mine for _, fn in hooks._asked):
                    missed.append(mine)

    threads = [threading.Thread(target=opens_and_closes) for _ in range(8)]
    try:
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    finally:
        sys.setswitchinterval(before)
    assert not missed and not hooks.changes()


def test_an_inspector_with_a_hook_is_pickled_without_it(inspector):
    with inspector.hook("blocks.1.mlp", lambda tensor: tensor * 0):
        twin = pickle.loads(pickle.dumps(inspector))
    assert not twin.placed.hooks.changes()
    assert torch.equal(twin.trace(PICTURE).logits, inspector.trace(PICTURE).logits)
