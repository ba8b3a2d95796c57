"""User hooks work at every module and input size and are absent from copies made meanwhile."""

import os
import pickle
import threading

import pytest
import torch

from tests.engine.random_inspectors import inspect, noise, perturbed

OTHER_SIZE = (96, 96)


@pytest.fixture
def inspector():
    return inspect(perturbed("vit_tiny_patch16_224", depth=2))


@pytest.mark.parametrize("size", [None, OTHER_SIZE])
@pytest.mark.parametrize("traced_before", [True, False])
def test_hook_applies_at_every_size_until_context_ends(inspector, size, traced_before):
    clean = inspect(perturbed("vit_tiny_patch16_224", depth=2)).trace(noise(), size).logits
    if traced_before:
        inspector.trace(noise(), size)
    calls = []
    with inspector.hook("blocks.1.mlp", lambda tensor: calls.append(tensor.shape) or tensor * 0):
        hooked = inspector.trace(noise(), size).logits
    assert len(calls) == 1 and not torch.allclose(hooked, clean)
    assert torch.equal(inspector.trace(noise(), size).logits, clean) and len(calls) == 1


def test_twin_and_pickle_made_under_hook_have_no_hooks(inspector):
    clean = inspector.trace(noise()).logits
    with inspector.hook("blocks.1.mlp", lambda tensor: tensor * 0):
        twin, copied = inspector.on("cpu"), pickle.loads(pickle.dumps(inspector))
        assert torch.equal(twin.trace(noise()).logits, clean)
    assert torch.equal(twin.trace(noise()).logits, clean)
    assert torch.equal(copied.trace(noise()).logits, clean)


def test_twin_made_during_pass_has_no_hooks(inspector):
    """A forked process is in the same state: the model still carries the recording hooks."""
    twins = []
    with inspector.hook("blocks.0.input", lambda tensor: twins.append(inspector.on("cpu"))):
        inspector.trace(noise())
    twin = twins[-1]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in twin.model.modules())
    assert torch.equal(twin.trace(noise()).logits, inspector.trace(noise()).logits)


def test_attention_check_runs_without_user_hooks(inspector):
    """A hook that breaks the model must not mark its attention as unreadable for good."""
    with inspector.hook("blocks.0.input", lambda tensor: tensor * float("nan")):
        assert inspector.trace(noise()).logits.isnan().all()
    assert inspector.trace(noise()).logits.isfinite().all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_process_does_not_wait_for_missing_thread(inspector):
    locked, released = threading.Event(), threading.Event()

    def hold():
        with inspector.placed.lock:
            locked.set(), released.wait()

    thread = threading.Thread(target=hold)
    thread.start(), locked.wait()
    child = os.fork()
    if child == 0:  # the child only tries the lock: torch's own threads do not exist after a fork
        os._exit(0 if inspector.placed.lock.acquire(timeout=5) else 1)
    _, status = os.waitpid(child, 0)
    released.set(), thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
