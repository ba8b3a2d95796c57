"""Hooks shared by all passes on a model; each dispatches to the pass of the calling thread.

Forward hooks belong to a model, so a pass with hooks of its own would receive the events of every other pass.
Shared hooks are registered with the first of several concurrent passes and removed with the last. They do
nothing in a thread that runs no vitviz pass on the model. The pass (`capture.Pass`) handles the events.

User hooks (`Hooks`) are requested by the name of a hook point and apply only to vitviz's passes. They are not
registered on the model: models are copied for other sizes and devices, and copied hooks would never be
removed.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vitviz.engine.forks import lock_of
from vitviz.engine.forward.branches import branch_points
from vitviz.engine.forward.recording import TensorChange, transformer_blocks
from vitviz.errors import VitvizError, quoted

MOMENTS = ("input", "attn", "mlp", "output")  # of a block, in the order of the paper's equations 2 and 3
# A pass: `on_event(moment, layer, args, output)` is called at each hook; its result replaces the tensor.
Listener = Any


class _Running(threading.local):
    """A thread's passes, the innermost last; a user's hook may run a pass on another image."""

    def __init__(self) -> None:
        self.passes: list[tuple[_ModelHooks, Listener]] = []


_running = _Running()


def innermost_listener() -> Listener | None:
    """Return the innermost pass of this thread, or None."""
    return _running.passes[-1][1] if _running.passes else None


class HookHandle:
    """A hook on a model. Copies and unpickled hooks are detached and do nothing."""

    def __init__(self, wires: _ModelHooks | None = None, moment: str = "", layer: int = -1):
        self._wires, self._moment, self._layer = wires, moment, layer

    def __call__(self, module: nn.Module, args: tuple, output: Any = None) -> Any:
        if not _running.passes or _running.passes[-1][0] is not self._wires:
            return None
        return _running.passes[-1][1].on_event(self._moment, self._layer, args, output)

    def __reduce__(self) -> tuple:
        return HookHandle, ()


class _ModelHooks:
    """Hook handles of a model, and counts of the passes that need them; key True: the truth check's hooks."""

    def __init__(self) -> None:
        self.needed: Counter[bool] = Counter()
        self.handles: dict[bool, list[RemovableHandle]] = {}


_wires: WeakKeyDictionary[nn.Module, _ModelHooks] = WeakKeyDictionary()
# serialises registering and removing hooks, and copying a model with its hooks
_lock = lock_of(sys.modules[__name__])


@contextmanager
def hooks_installed(
    model: nn.Module, blocks: list[nn.Module], listener: Listener, check: bool
) -> Iterator[None]:
    """Send hook events of this thread's passes to `listener`; with `check`, of all modules in blocks."""
    kinds = (False, True) if check else (False,)
    with _lock:
        wires = _wires.setdefault(model, _ModelHooks())
        for kind in kinds:
            wires.needed[kind] += 1
            if wires.needed[kind] == 1:
                wires.handles[kind] = (_attach_checks if kind else _attach_hooks)(model, blocks, wires)
    _running.passes.append((wires, listener))
    try:
        yield
    finally:
        _running.passes.pop()
        with _lock:
            for kind in kinds:
                wires.needed[kind] -= 1
                if wires.needed[kind] == 0:
                    for handle in wires.handles.pop(kind):
                        handle.remove()


def copy_without_hooks(model: nn.Module, replacements: dict[int, nn.Parameter]) -> nn.Module:
    """Return a copy with parameters replaced (`id` -> parameter), without vitviz's hooks; other hooks stay.

    Passes may run during the copy. Results of a recorded computation that modules hold are copied detached.
    """
    values = (value for module in model.modules() for value in vars(module).values())
    computed = [value for value in values if isinstance(value, Tensor) and not value.is_leaf]
    results = {id(tensor): tensor.detach().clone() for tensor in computed}
    with _lock:
        twin = copy.deepcopy(model, results | replacements)
    for module in twin.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            for number in [number for number, hook in hooks.items() if isinstance(hook, HookHandle)]:
                del hooks[number]
                module._forward_pre_hooks_with_kwargs.pop(number, None)
    return twin


def mlp_of(block: nn.Module) -> nn.Module | None:
    """Return the module whose output is the MLP's: the MLP, or its projection in a parallel block."""
    return getattr(block, "mlp", None) or getattr(block, "mlp_out_proj", None)


def _attach_hooks(model: nn.Module, blocks: list[nn.Module], wires: _ModelHooks) -> list[RemovableHandle]:
    """Register the hooks of blocks, patch embedding, positions and branches; return their handles."""
    handles = []
    for layer, block in enumerate(blocks):
        handles.append(block.register_forward_pre_hook(HookHandle(wires, "input", layer), with_kwargs=True))
        for part, module in (("attn", getattr(block, "attn", None)), ("mlp", mlp_of(block))):
            if isinstance(module, nn.Module):
                handles.append(module.register_forward_hook(HookHandle(wires, part, layer)))
        handles.append(block.register_forward_hook(HookHandle(wires, "output", layer)))
    if isinstance(getattr(model, "patch_embed", None), nn.Module):
        handles.append(model.patch_embed.register_forward_hook(HookHandle(wires, "patches")))
    dropped = getattr(model, "pos_drop", None)
    if getattr(model, "pos_embed", None) is not None and isinstance(dropped, nn.Module):
        handles.append(dropped.register_forward_pre_hook(HookHandle(wires, "positions")))
    for module, entering, moment in branch_points(model, blocks):
        hook = module.register_forward_pre_hook if entering else module.register_forward_hook
        handles.append(hook(HookHandle(wires, moment)))
    return handles


def _attach_checks(model: nn.Module, blocks: list[nn.Module], wires: _ModelHooks) -> list[RemovableHandle]:
    """Register the truth check's pre-hooks on the modules in blocks; return their handles."""
    watch = []
    for layer, block in enumerate(blocks):
        # in parallel blocks, MLP modules run between the call and its projection
        parallel = getattr(block, "attn_out_proj", None)
        watch += [(layer, module) for module in (block.modules() if parallel is None else [parallel])]
    return [module.register_forward_pre_hook(HookHandle(wires, "entering", layer)) for layer, module in watch]


class Hooks:
    """User hooks of an inspector."""

    def __init__(self) -> None:
        self._lock = lock_of(self)
        # an immutable tuple, so that a pass keeps the hooks that it began with
        self._user_hooks: tuple[tuple[str, TensorChange], ...] = ()

    def add(self, model: nn.Module, point: str, fn: TensorChange, name: str) -> AbstractContextManager:
        """Return a context that applies `fn` to passes begun in it; raise VitvizError at an unknown point."""
        require_point(model, point, name)
        if not callable(fn):
            raise VitvizError(
                f"The hook for {point} is {quoted(fn)}; expected a function that takes a tensor and returns"
                " one, or None to keep it."
            )
        return self._held((point, fn))

    @contextmanager
    def _held(self, hook: tuple[str, TensorChange]) -> Iterator[None]:
        """Keep a user hook (hook point, function) registered inside the `with`."""
        with self._lock:
            self._user_hooks = (*self._user_hooks, hook)
        try:
            yield
        finally:
            with self._lock:
                self._user_hooks = tuple(other for other in self._user_hooks if other is not hook)

    def changes(self) -> Mapping[tuple[str, int], Sequence[TensorChange]]:
        """Return the current hooks by (moment, layer) for a new pass."""
        by_place: defaultdict[tuple[str, int], list[TensorChange]] = defaultdict(list)
        for point, fn in self._user_hooks:
            _, layer, moment = point.split(".")
            by_place[moment, int(layer)].append(_checking_hook(point, fn))
        return dict(by_place)


def require_point(model: nn.Module, point: str, name: str) -> None:
    """Raise VitvizError if `point` is no hook point of the model, such as blocks.3.mlp."""
    blocks, parts = transformer_blocks(model), point.split(".") if isinstance(point, str) else ()
    known = len(parts) == 3 and parts[0] == "blocks" and parts[1].isdecimal() and parts[2] in MOMENTS
    if not known or int(parts[1]) >= len(blocks):
        expected = f"blocks.N.{{{'|'.join(MOMENTS)}}} with N from 0 to {len(blocks) - 1}"
        raise VitvizError(f"There is no hook point {quoted(point)}: expected {expected}.")
    part = getattr(blocks[int(parts[1])], parts[2], None)
    if parts[2] in ("attn", "mlp") and not isinstance(part, nn.Module):
        raise VitvizError(
            f"The blocks of {name} have no separate part {quoted(parts[2])}; hook blocks.{parts[1]}.input or"
            " .output."
        )


def _checking_hook(point: str, fn: TensorChange) -> TensorChange:
    """Wrap a user hook to raise VitvizError if its result has another shape, dtype or device."""

    def change(tensor: Tensor) -> Tensor | None:
        result = fn(tensor)
        if result is not None and not (isinstance(result, Tensor) and result.shape == tensor.shape):
            shape = tuple(result.shape) if isinstance(result, Tensor) else None
            what = f"a tensor of shape {shape}" if shape is not None else repr(result)[:80]
            raise VitvizError(
                f"The hook at {point} returned {what}; expected a tensor of shape {tuple(tensor.shape)}, or"
                " None to keep it."
            )
        if result is not None and (result.dtype, result.device) != (tensor.dtype, tensor.device):
            kinds = [f"{one.dtype} on {one.device}".removeprefix("torch.") for one in (result, tensor)]
            raise VitvizError(
                f"The hook at {point} returned {kinds[0]}; expected {kinds[1]}. Convert it with .to(tensor),"
                " where tensor is the hook's argument."
            )
        return result

    return change
