"""Concurrent passes on one model: each has its own recording and hooks and can be cancelled."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.engine.random_inspectors import inspect, noise, perturbed
from vitviz.engine.forward import copies
from vitviz.engine.forward.hooks import HookHandle
from vitviz.errors import Stopped
from vitviz.traces import cancellation


@pytest.fixture
def inspector():
    return inspect(perturbed("vit_tiny_patch16_224", depth=3, img_size=64))


def same_trace(one, two) -> bool:
    """Compare everything that a pass records, bit by bit."""
    pairs = list(zip(one.tokens, two.tokens, strict=True)) + [(one.logits, two.logits)]
    pairs += [
        (getattr(a, n), getattr(b, n)) for a, b in zip(one.layers, two.layers, strict=True) for n in "qkv"
    ]
    pairs += [(one.patch_embedding, two.patch_embedding), (one.position_embedded, two.position_embedded)]
    return all(torch.equal(a, b) for a, b in pairs)


def test_two_passes_run_concurrently_in_one_model(inspector):
    """Each pass waits in the second layer for the other. Passes in turn would time out."""
    alone = [inspector.trace(noise(seed), size) for seed, size in ((0, None), (1, 96))]
    meeting = threading.Barrier(2, timeout=20)
    with (
        inspector.hook("blocks.1.input", lambda tensor: meeting.wait() and None or None),
        ThreadPoolExecutor(2) as threads,
    ):
        together = list(threads.map(inspector.trace, map(noise, (0, 1)), (None, 96)))
    assert all(map(same_trace, together, alone))
    meeting.reset()
    with (
        inspector.hook("blocks.1.input", lambda tensor: meeting.wait() and None or None),
        ThreadPoolExecutor(2) as threads,
    ):
        # the size is the same, so both passes share a module
        together = list(threads.map(inspector.trace, map(noise, (0, 2))))
    assert same_trace(together[0], alone[0]) and same_trace(together[1], inspector.trace(noise(2)))


@pytest.mark.long
def test_concurrent_threads_get_single_thread_results(inspector):
    def compute(number: int):
        image, size = noise(number % 5), (None, 48, (96, 64))[number % 3]
        if number % 4 == 0:
            return inspector.experiment(image, size, shuffle=number, positions=False)
        return inspector.trace(image, size)

    alone = [compute(number) for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(3):
            assert all(map(same_trace, threads.map(compute, range(24)), alone))
        hooked_modules = list(inspector.model.modules())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in hooked_modules)
    with (
        inspector.hook("blocks.1.mlp", torch.zeros_like),
        inspector.hook("blocks.2.input", lambda tensor: tensor * 2),
    ):
        hooked = [compute(number) for number in range(24)]
        assert not any(map(same_trace, hooked, alone))
        with ThreadPoolExecutor(8) as threads:
            assert all(map(same_trace, threads.map(compute, range(24)), hooked))
    with ThreadPoolExecutor(8) as threads:
        assert all(map(same_trace, threads.map(compute, range(24)), alone))


def test_hook_applies_only_to_passes_started_while_active(inspector):
    clean, started, go = inspector.trace(noise()), threading.Event(), threading.Event()
    with (
        inspector.hook("blocks.0.input", lambda tensor: started.set() or (go.wait(20) and None)),
        ThreadPoolExecutor(1) as executor,
    ):
        earlier = executor.submit(inspector.trace, noise())
        assert started.wait(20)
        with inspector.hook("blocks.2.mlp", torch.zeros_like):
            go.set()
            later = inspector.trace(noise())
            earlier = earlier.result()
    assert same_trace(earlier, clean) and not same_trace(later, clean)


def test_model_can_run_and_be_copied_during_pass(inspector):
    alone, pixels = (
        inspector.trace(noise()),
        torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)),
    )
    with torch.no_grad():
        expected = inspector.model(pixels)
    started, go = threading.Event(), threading.Event()
    with (
        inspector.hook("blocks.1.input", lambda tensor: started.set() or (go.wait(20) and None)),
        ThreadPoolExecutor(1) as executor,
    ):
        running = executor.submit(inspector.trace, noise())
        assert started.wait(20) and any(module._forward_hooks for module in inspector.model.modules())
        with torch.no_grad():
            assert torch.equal(inspector.model(pixels), expected)
        model_copies = [
            pickle.loads(pickle.dumps(inspector)).model,
            copies.resized_copy(inspector.model, (96, 96)),
            inspector.on("cpu").model,
        ]
        go.set()
        assert same_trace(running.result(), alone)
    for model in model_copies:
        # a later hook may reuse the number of a finished one
        assert not any(module._forward_pre_hooks_with_kwargs for module in model.modules())
        assert not any(
            isinstance(hook, HookHandle)
            for m in model.modules()
            for hook in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())
        )


def test_hook_may_trace_another_image(inspector):
    clean, other, nested = inspector.trace(noise()), inspector.trace(noise(1)), []

    def trace_other(tensor):
        if not nested:
            nested.append(None)
            nested.append(inspector.trace(noise(1)))

    with inspector.hook("blocks.1.input", trace_other):
        assert same_trace(inspector.trace(noise()), clean)
    assert same_trace(nested[1], other)


def test_foreign_hooks_remain_in_resized_copies(inspector):
    calls = []
    inspector.model.blocks[0].register_forward_hook(lambda module, args, output: calls.append(1))
    inspector.trace(noise(), 96)
    assert calls == [1]


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_cancelled_pass_stops_within_one_layer(inspector, layer):
    clean, reached, cancelled = inspector.trace(noise()), [], []

    def watch(number):
        return lambda tensor: reached.append(number) or (cancelled.append(1) if number == layer else None)

    with (
        inspector.hook("blocks.0.attn", watch(0)),
        inspector.hook("blocks.1.attn", watch(1)),
        inspector.hook("blocks.2.attn", watch(2)),
    ):
        with cancellation.when(lambda: bool(cancelled)):
            if layer == 2:  # the end of the last layer is the end of the pass
                inspector.trace(noise())
            else:
                with pytest.raises(Stopped, match="nobody waits"):
                    inspector.trace(noise())
    assert reached == list(range(layer + 1))
    assert same_trace(inspector.trace(noise()), clean)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in inspector.model.modules())


def test_cancellation_stops_only_its_own_pass(inspector):
    clean = inspector.trace(noise())

    def cancelled_then_traced():
        with cancellation.when(lambda: True):
            with pytest.raises(Stopped):
                inspector.trace(noise())
        return inspector.trace(noise())

    with ThreadPoolExecutor(4) as threads:
        futures = [
            threads.submit(cancelled_then_traced if n % 2 else lambda: inspector.trace(noise()))
            for n in range(12)
        ]
        assert all(same_trace(future.result(), clean) for future in futures)


def test_first_trace_at_a_size_runs_one_pass(inspector):
    passes = []
    inspector.model.norm.register_forward_hook(lambda module, args, output: passes.append(1))
    inspector.trace(noise())
    assert len(passes) == 1
    inspector.trace(noise(), 96)
    assert len(passes) == 2
