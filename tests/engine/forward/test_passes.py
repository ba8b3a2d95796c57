"""Passes beside each other on one model: each has its own record, its own hooks, and an end when nobody
waits.
"""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.engine.looking import inspect, noise, perturbed
from vitviz.engine.forward import copies
from vitviz.engine.forward.hooks import HookHandle
from vitviz.errors import Stopped
from vitviz.traces import cancellation


@pytest.fixture
def inspector():
    return inspect(perturbed("vit_tiny_patch16_224", depth=3, img_size=64))


def same(one, two) -> bool:
    """To the bit, in everything a pass leaves."""
    pairs = list(zip(one.tokens, two.tokens, strict=True)) + [(one.logits, two.logits)]
    pairs += [
        (getattr(a, n), getattr(b, n)) for a, b in zip(one.layers, two.layers, strict=True) for n in "qkv"
    ]
    pairs += [(one.patch_embedding, two.patch_embedding), (one.position_embedded, two.position_embedded)]
    return all(torch.equal(a, b) for a, b in pairs)


def test_two_passes_meet_in_the_middle_of_one_model(inspector):
    """Each waits in the second block for the other: with turns they would wait for ever."""
    alone = [inspector.trace(noise(seed), size) for seed, size in ((0, None), (1, 96))]
    meeting = threading.Barrier(2, timeout=20)
    with (
        inspector.hook("blocks.1.input", lambda tensor: meeting.wait() and None or None),
        ThreadPoolExecutor(2) as threads,
    ):
        together = list(threads.map(inspector.trace, map(noise, (0, 1)), (None, 96)))
    assert all(map(same, together, alone))
    meeting.reset()
    with (
        inspector.hook("blocks.1.input", lambda tensor: meeting.wait() and None or None),
        ThreadPoolExecutor(2) as threads,
    ):
        together = list(threads.map(inspector.trace, map(noise, (0, 2))))  # of one size, so of one module
    assert same(together[0], alone[0]) and same(together[1], inspector.trace(noise(2)))


@pytest.mark.long
def test_many_threads_with_pictures_sizes_hooks_and_variants_of_their_own_get_the_answers_of_one(inspector):
    def asked(number: int):
        picture, size = noise(number % 5), (None, 48, (96, 64))[number % 3]
        if number % 4 == 0:
            return inspector.experiment(picture, size, shuffle=number, positions=False)
        return inspector.trace(picture, size)

    alone = [asked(number) for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(3):
            assert all(map(same, threads.map(asked, range(24)), alone))
        gone = list(inspector.model.modules())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in gone)
    with (
        inspector.hook("blocks.1.mlp", torch.zeros_like),
        inspector.hook("blocks.2.input", lambda tensor: tensor * 2),
    ):
        hooked = [asked(number) for number in range(24)]
        assert not any(map(same, hooked, alone))
        with ThreadPoolExecutor(8) as threads:
            assert all(map(same, threads.map(asked, range(24)), hooked))
    with ThreadPoolExecutor(8) as threads:
        assert all(map(same, threads.map(asked, range(24)), alone))


def test_a_hook_holds_for_passes_that_begin_while_it_does(inspector):
    clean, begun, go = inspector.trace(noise()), threading.Event(), threading.Event()
    with (
        inspector.hook("blocks.0.input", lambda tensor: begun.set() or (go.wait(20) and None)),
        ThreadPoolExecutor(1) as one,
    ):
        earlier = one.submit(inspector.trace, noise())
        assert begun.wait(20)
        with inspector.hook("blocks.2.mlp", torch.zeros_like):
            go.set()
            later = inspector.trace(noise())
            earlier = earlier.result()
    assert same(earlier, clean) and not same(later, clean)


def test_the_model_itself_can_be_run_and_copied_by_others_in_the_middle_of_a_pass(inspector):
    alone, pixels = (
        inspector.trace(noise()),
        torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)),
    )
    with torch.no_grad():
        expected = inspector.model(pixels)
    begun, go = threading.Event(), threading.Event()
    with (
        inspector.hook("blocks.1.input", lambda tensor: begun.set() or (go.wait(20) and None)),
        ThreadPoolExecutor(1) as one,
    ):
        running = one.submit(inspector.trace, noise())
        assert begun.wait(20) and any(module._forward_hooks for module in inspector.model.modules())
        with torch.no_grad():
            assert torch.equal(inspector.model(pixels), expected)
        made = [
            pickle.loads(pickle.dumps(inspector)).model,
            copies.resized_copy(inspector.model, (96, 96)),
            inspector.on("cpu").model,
        ]
        go.set()
        assert same(running.result(), alone)
    for model in made:
        assert not any(
            module._forward_pre_hooks_with_kwargs for module in model.modules()
        )  # a later hook may get that number
        assert not any(
            isinstance(hook, HookHandle)
            for m in model.modules()
            for hook in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())
        )


def test_a_hook_may_look_at_another_picture(inspector):
    clean, other, seen = inspector.trace(noise()), inspector.trace(noise(1)), []

    def look(tensor):
        if not seen:
            seen.append(None)
            seen.append(inspector.trace(noise(1)))

    with inspector.hook("blocks.1.input", look):
        assert same(inspector.trace(noise()), clean)
    assert same(seen[1], other)


def test_hooks_of_others_stay_in_copies(inspector):
    calls = []
    inspector.model.blocks[0].register_forward_hook(lambda module, args, output: calls.append(1))
    inspector.trace(noise(), 96)
    assert calls == [1]


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_pass_ends_within_a_layer_after_nobody_waits_and_the_next_is_whole(inspector, layer):
    clean, reached, gone = inspector.trace(noise()), [], []

    def watch(number):
        return lambda tensor: reached.append(number) or (gone.append(1) if number == layer else None)

    with (
        inspector.hook("blocks.0.attn", watch(0)),
        inspector.hook("blocks.1.attn", watch(1)),
        inspector.hook("blocks.2.attn", watch(2)),
    ):
        with cancellation.when(lambda: bool(gone)):
            if layer == 2:  # its end is the pass's
                inspector.trace(noise())
            else:
                with pytest.raises(Stopped, match="nobody waits"):
                    inspector.trace(noise())
    assert reached == list(range(layer + 1))
    assert same(inspector.trace(noise()), clean)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in inspector.model.modules())


def test_only_the_asker_is_stopped(inspector):
    clean = inspector.trace(noise())

    def refused():
        with cancellation.when(lambda: True):
            with pytest.raises(Stopped):
                inspector.trace(noise())
        return inspector.trace(noise())

    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(refused if n % 2 else lambda: inspector.trace(noise())) for n in range(12)]
        assert all(same(one.result(), clean) for one in found)


def test_the_first_look_at_a_size_is_one_pass(inspector):
    passes = []
    inspector.model.norm.register_forward_hook(lambda module, args, output: passes.append(1))
    inspector.trace(noise())
    assert len(passes) == 1
    inspector.trace(noise(), 96)
    assert len(passes) == 2
