"""The user's hooks: at every point and input size, and gone afterwards from whatever was made meanwhile."""

import os
import pickle
import threading

import pytest
import torch

from tests.engine.looking import inspect, noise, perturbed

OTHER = (96, 96)


@pytest.fixture
def inspector():
    return inspect(perturbed("vit_tiny_patch16_224", depth=2))


@pytest.mark.parametrize("size", [None, OTHER])
@pytest.mark.parametrize("seen_before", [True, False])
def test_a_hook_works_at_every_size_and_ends(inspector, size, seen_before):
    clean = inspect(perturbed("vit_tiny_patch16_224", depth=2)).trace(noise(), size).logits
    if seen_before:
        inspector.trace(noise(), size)
    calls = []
    with inspector.hook("blocks.1.mlp", lambda tensor: calls.append(tensor.shape) or tensor * 0):
        hooked = inspector.trace(noise(), size).logits
    assert len(calls) == 1 and not torch.allclose(hooked, clean)
    assert torch.equal(inspector.trace(noise(), size).logits, clean) and len(calls) == 1


def test_a_twin_and_a_pickle_made_inside_have_no_hooks(inspector):
    clean = inspector.trace(noise()).logits
    with inspector.hook("blocks.1.mlp", lambda tensor: tensor * 0):
        twin, copied = inspector.on("cpu"), pickle.loads(pickle.dumps(inspector))
        assert torch.equal(twin.trace(noise()).logits, clean)
    assert torch.equal(twin.trace(noise()).logits, clean)
    assert torch.equal(copied.trace(noise()).logits, clean)


def test_a_twin_made_in_the_middle_of_a_pass_keeps_nothing_of_it(inspector):
    """As a forked process would: the model still carries what records the pass."""
    twins = []
    with inspector.hook("blocks.0.input", lambda tensor: twins.append(inspector.on("cpu"))):
        inspector.trace(noise())
    twin = twins[-1]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in twin.model.modules())
    assert torch.equal(twin.trace(noise()).logits, inspector.trace(noise()).logits)


def test_the_check_of_the_capture_is_not_hooked(inspector):
    """A hook that breaks the model must not make its attention look unreadable for good."""
    with inspector.hook("blocks.0.input", lambda tensor: tensor * float("nan")):
        assert inspector.trace(noise()).logits.isnan().all()
    assert inspector.trace(noise()).logits.isfinite().all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have(inspector):
    held, over = threading.Event(), threading.Event()

    def hold():
        with inspector.placed.lock:
            held.set(), over.wait()

    thread = threading.Thread(target=hold)
    thread.start(), held.wait()
    child = os.fork()
    if child == 0:  # nothing but the lock: torch's own threads are not there either
        os._exit(0 if inspector.placed.lock.acquire(timeout=5) else 1)
    _, status = os.waitpid(child, 0)
    over.set(), thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
