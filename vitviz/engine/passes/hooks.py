"""The user's own hooks on a model's layers: asked for by a point's name, in force in our passes alone.

A model is copied for other sizes and devices; hooks that stayed on it would be copied too, and never end.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor, nn

from vitviz.engine.forks import lock_of
from vitviz.engine.passes.capture import Change, transformer_blocks
from vitviz.engine.passes.wiring import MOMENTS
from vitviz.errors import VitvizError


class Hooks:
    """What the user has asked for on one inspector."""

    def __init__(self) -> None:
        self._lock = lock_of(self)
        # replaced as a whole: a pass keeps what it began with
        self._asked: tuple[tuple[str, Change], ...] = ()

    def asked(self, model: nn.Module, point: str, fn: Change, name: str) -> AbstractContextManager[None]:
        """Holds for passes that begin inside the `with`; VitvizError, at once, for no such point."""
        require_point(model, point, name)
        if not callable(fn):
            raise VitvizError(
                f"Given {fn!r} for {point}; expected a function that takes a tensor and returns one, or None"
                " to leave it."
            )
        return self._held((point, fn))

    @contextmanager
    def _held(self, one: tuple[str, Change]) -> Iterator[None]:
        with self._lock:
            self._asked = (*self._asked, one)
        try:
            yield
        finally:
            with self._lock:
                self._asked = tuple(other for other in self._asked if other is not one)

    def changes(self) -> Mapping[tuple[str, int], Sequence[Change]]:
        """All of them as they are now, by place, for a pass that begins; empty where there are none."""
        found: defaultdict[tuple[str, int], list[Change]] = defaultdict(list)
        for point, fn in self._asked:
            _, layer, moment = point.split(".")
            found[moment, int(layer)].append(_checked(point, fn))
        return dict(found)


def require_point(model: nn.Module, point: str, name: str) -> None:
    """VitvizError for what is no point of the model such as blocks.3.mlp."""
    blocks, parts = transformer_blocks(model), point.split(".") if isinstance(point, str) else ()
    known = len(parts) == 3 and parts[0] == "blocks" and parts[1].isdecimal() and parts[2] in MOMENTS
    if not known or int(parts[1]) >= len(blocks):
        expected = f"blocks.N.{{{'|'.join(MOMENTS)}}} with N from 0 to {len(blocks) - 1}"
        raise VitvizError(f"There is no hook point {point!r}: expected {expected}.")
    part = getattr(blocks[int(parts[1])], parts[2], None)
    if parts[2] in ("attn", "mlp") and not isinstance(part, nn.Module):
        raise VitvizError(
            f"The blocks of {name} have no part {parts[2]!r} of its own; hook blocks.{parts[1]}.input or"
            " .output."
        )


def _checked(point: str, fn: Change) -> Change:
    def change(tensor: Tensor) -> Tensor | None:
        given = fn(tensor)
        if given is not None and not (isinstance(given, Tensor) and given.shape == tensor.shape):
            shape = tuple(given.shape) if isinstance(given, Tensor) else None
            what = f"a tensor of shape {shape}" if shape is not None else repr(given)[:80]
            raise VitvizError(
                f"The hook at {point} returned {what}; expected a tensor of shape {tuple(tensor.shape)}, "
                "or None to leave it as it is."
            )
        if given is not None and (given.dtype, given.device) != (tensor.dtype, tensor.device):
            kinds = [f"{one.dtype} on {one.device}".removeprefix("torch.") for one in (given, tensor)]
            raise VitvizError(
                f"The hook at {point} returned {kinds[0]}; expected {kinds[1]}. "
                "Convert it with .to(tensor), the one it was given."
            )
        return given

    return change
