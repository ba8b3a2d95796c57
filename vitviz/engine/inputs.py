"""The size of a model's input as it is asked for: checked before anything is computed at it."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import nn

from vitviz.engine import memory
from vitviz.engine.passes import capture
from vitviz.errors import VitvizError
from vitviz.grid import Grid
from vitviz.sentence import Sentence

NOT_WHOLE = (
    "{name} cuts patches of {rows} x {cols} pixels: an input of {height} x {width} does not divide into them."
    " The nearest size that does is {tall} x {wide}."
)


@dataclass(frozen=True)
class Demand:
    """What one picture takes."""

    tokens: int
    operations: int  # multiplications of a pass


def demand_of(model: nn.Module, grid: Grid, size: tuple[int, int]) -> Demand:
    """At a size, from the grid at any other, so that nothing need be made for it."""
    tokens = (size[0] // grid.patch[0]) * (size[1] // grid.patch[1]) + grid.prefix
    layers = len(capture.transformer_blocks(model))
    return Demand(tokens, memory.operations_of_a_picture(tokens, model.embed_dim, layers))


def asked_size(size: int | tuple[int, int] | None, own: tuple[int, int]) -> tuple[int, int]:
    """(height, width) of what was asked for, the model's own for None; VitvizError for what is no size."""
    if size is None:
        return own
    try:
        height, width = map(operator.index, size if isinstance(size, tuple | list) else (size, size))
    except (TypeError, ValueError):
        raise VitvizError(
            f"Given size={size!r}; expected the input's pixels, a number or (height, width), such as {own}."
        ) from None
    return height, width


def require_size(
    size: tuple[int, int], grid: Grid, model: nn.Module, device: torch.device, name: str
) -> None:
    """VitvizError where the patch does not divide a size, with the nearest that it does; OutOfMemory where
    that needs too much.
    """
    (height, width), (rows, cols) = size, grid.patch
    if height < rows or width < cols or height % rows or width % cols:
        near = tuple(max(p, round(s / p) * p) for s, p in ((height, rows), (width, cols)))
        given = {"name": name, "rows": rows, "cols": cols, "height": height, "width": width}
        raise VitvizError(Sentence(NOT_WHOLE, **given, tall=near[0], wide=near[1]))
    tokens = (height // rows) * (width // cols) + grid.prefix
    needed = memory.bytes_of_a_picture(tokens, model.embed_dim, len(capture.transformer_blocks(model)))
    memory.require(needed, device, f"An input of {height} x {width} pixels, {tokens} tokens for {name},")
