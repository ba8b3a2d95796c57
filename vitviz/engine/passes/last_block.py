"""The last block once more, its heads handing on what they are given, with or without the rest of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from vitviz.engine.passes import capture
from vitviz.engine.tails import PARALLEL, scale_of


class _Given:
    """A pass through one block whose attention call gives what was given; keeps what its branch adds."""

    def __init__(self, handed: Tensor):
        self._handed, self.added = handed, None

    def heard(self, moment: str, layer: int, args: tuple, output: Any) -> None:
        if moment == "added attention":
            self.added = output

    def attend(self, kernel: Callable[..., Tensor], *args, **named) -> Tensor:
        return self._handed[None]


def given(
    model: nn.Module, tokens: Float[Tensor, "token width"], handed: Float[Tensor, "head token dim"],
    alone: bool,
) -> Float[Tensor, "token width"]:  # fmt: skip
    """What the last block makes of the tokens that enter it; `alone`: what its attention adds, and no more.

    Neither a table of positions nor a mask is handed to it, which only the scores would need.
    """
    blocks = capture.transformer_blocks(model)
    one, block = _Given(handed), blocks[-1]
    with capture.heard(model, blocks, one):
        whole = block(tokens[None])[0]
    if not alone:
        return whole
    scale = scale_of(block.ls) if type(block).__name__ == PARALLEL else None
    return one.added[0] if scale is None else one.added[0] * scale.to(tokens)
