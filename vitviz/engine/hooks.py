"""The user's own hooks on a model's layers: asked for at a point by name, and on a model only while it runs.

A model is copied for other sizes and devices; hooks that stayed on it would be copied too, and never end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vitviz.engine.capture import transformer_blocks
from vitviz.errors import VitvizError

Hook = Callable[[Tensor], "Tensor | None"]
POINTS = ("input", "attn", "mlp", "output")


class Hooks:
    """What the user has asked for on one inspector."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, Hook]] = []

    def __bool__(self) -> bool:
        return bool(self._asked)

    def asked(self, model: nn.Module, point: str, fn: Hook, name: str) -> AbstractContextManager[None]:
        """Holds for the passes made inside the `with`; VitvizError, at once, for a point that the model does not have."""
        module_at(model, point, name)
        if not callable(fn):
            raise VitvizError(f"Given {fn!r} for {point}; expected a function that takes a tensor and returns one, or None to leave it.")
        return self._held((point, fn))

    @contextmanager
    def _held(self, one: tuple[str, Hook]) -> Iterator[None]:
        self._asked.append(one)
        try:
            yield
        finally:
            self._asked = [other for other in self._asked if other is not one]

    @contextmanager
    def on(self, model: nn.Module, name: str) -> Iterator[None]:
        """All of them on the model that is about to run, whatever its size."""
        with ExitStack() as stack:
            for point, fn in self._asked:
                stack.callback(_registered(model, point, fn, name).remove)
            yield


def module_at(model: nn.Module, point: str, name: str) -> tuple[nn.Module, bool]:
    """The module of a point such as blocks.3.mlp, and whether what enters it is meant; VitvizError for no such point."""
    blocks, parts = transformer_blocks(model), point.split(".")
    if len(parts) != 3 or parts[0] != "blocks" or not parts[1].isdecimal() or int(parts[1]) >= len(blocks) or parts[2] not in POINTS:
        expected = f"blocks.N.{{{'|'.join(POINTS)}}} with N from 0 to {len(blocks) - 1}"
        raise VitvizError(f"There is no hook point {point!r}: expected {expected}.")
    block = blocks[int(parts[1])]
    if parts[2] in ("input", "output"):
        return block, parts[2] == "input"
    module = getattr(block, parts[2], None)
    if not isinstance(module, nn.Module):
        raise VitvizError(f"The blocks of {name} have no part {parts[2]!r} of its own; hook blocks.{parts[1]}.input or .output.")
    return module, False


def _registered(model: nn.Module, point: str, fn: Hook, name: str) -> RemovableHandle:
    module, before = module_at(model, point, name)

    def replaced(tensor: Tensor) -> Tensor | None:
        given = fn(tensor)
        if given is not None and not (isinstance(given, Tensor) and given.shape == tensor.shape):
            what = f"a tensor of shape {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)[:80]
            raise VitvizError(f"The hook at {point} returned {what}; expected a tensor of shape {tuple(tensor.shape)}, or None to leave it as it is.")
        return given

    def pre(module: nn.Module, args: tuple):
        given = replaced(args[0])
        return None if given is None else (given, *args[1:])

    return module.register_forward_pre_hook(pre) if before else module.register_forward_hook(lambda module, args, output: replaced(output))
