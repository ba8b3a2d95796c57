"""The tokens of a depth, raw or through the final norm, and where the patches among them lie.

Depth 0 is what enters block 1, depth l the output of block l, depth L the last block's. Raw is the residual
stream itself, whose lengths differ from token to token; through the model's own final norm all are about
equally long (the square root of the width), which is what the classifier and users of features get. Patches
that were withheld from the model have no token: they are left out here and are not-a-number on a map. It does
not show anything by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.errors import VitvizError
from vitviz.trace import Trace


@runtime_checkable
class FinalNorm(Protocol):
    """What applies a model's final norm, such as the `vitviz.Inspector` that made the trace."""

    def final_norm(self, trace: Trace, layer: int) -> Float[Tensor, "token width"]: ...


def tokens_at(trace: Trace, layer: int, norm: FinalNorm | None = None) -> Float[Tensor, "token width"]:
    """All tokens of a depth, prefix first: `layer` 0 enters block 1, L is the raw output of the last block.

    With `norm`, an inspector, through its final norm. Raises IndexError for a depth that does not exist.

    >>> from vitviz import Grid
    >>> from vitviz.analyses.example import example_trace
    >>> tokens_at(example_trace(Grid(1, 2, (4, 4), ("class",)), layers=2), 2).shape
    torch.Size([3, 8])
    """
    if not 0 <= layer < len(trace.tokens):
        raise IndexError(
            f"There are no tokens at layer {layer}: {trace.checkpoint} has 0 (what enters block 1) to "
            f"{len(trace.tokens) - 1} (the last block's output)."
        )
    return trace.tokens[layer] if norm is None else norm.final_norm(trace, layer)


def patches_at(trace: Trace, layer: int, norm: FinalNorm | None = None) -> Float[Tensor, "patch width"]:
    """The same for the patches alone: those that the model was given. Raises IndexError as `tokens_at`.

    >>> from vitviz import Grid
    >>> from vitviz.analyses.example import example_trace
    >>> patches_at(example_trace(Grid(1, 2, (4, 4), ("class",)), layers=2), 0).shape
    torch.Size([2, 8])
    """
    return tokens_at(trace, layer, norm)[trace.grid.prefix :]


def present(trace: Trace) -> Int[Tensor, " patch"]:
    """The numbers, from 0 without prefix tokens, of the patches that have a token: all, unless some were
    withheld.

    Raises nothing.

    >>> from vitviz import Grid
    >>> from vitviz.analyses.example import example_trace
    >>> present(example_trace(Grid(1, 3, (4, 4), ("class",)))).tolist()
    [0, 1, 2]
    """
    kept: Sequence[int] | None = getattr(trace, "kept", None)
    numbers = torch.arange(trace.grid.patches)
    return numbers if kept is None else torch.as_tensor(kept, dtype=numbers.dtype)


def place(trace: Trace, patch: int | tuple[int, int]) -> int:
    """Which of the patches that have a token a patch is, by its number from 0 or its (row, col).

    Raises VitvizError for one that the grid does not have or that was withheld.

    >>> from vitviz import Grid
    >>> from vitviz.analyses.example import example_trace
    >>> place(example_trace(Grid(2, 3, (4, 4), ("class",))), (1, 0))
    3
    """
    grid = trace.grid
    try:
        number = grid.token(*patch) - grid.prefix if isinstance(patch, tuple) else patch
        known = not isinstance(number, bool) and 0 <= number < grid.patches and number == int(number)
    except (IndexError, TypeError):
        known = False
    if not known:
        raise VitvizError(
            f"Given patch={patch!r}; expected a patch's number from 0 to {grid.patches - 1}, or its (row,"
            f" col) on the grid of {grid.rows} x {grid.cols}."
        )
    found = (present(trace) == int(number)).nonzero().flatten()
    if not len(found):
        raise VitvizError(
            f"Patch {number} was withheld from the model, so it has no token. Choose one that was kept."
        )
    return int(found[0])


def over_grid(trace: Trace, values: Float[Tensor, patch * rest]) -> Float[Tensor, "row col *rest"]:
    """Numbers of the patches that have a token as a map; not-a-number where one was withheld. Raises nothing.

    >>> from vitviz import Grid
    >>> from vitviz.analyses.example import example_trace
    >>> over_grid(example_trace(Grid(2, 2, (4, 4), ("class",))), torch.arange(4.0)).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    grid = trace.grid
    laid = values.new_full((grid.patches, *values.shape[1:]), float("nan"))
    laid[present(trace)] = values
    return laid.unflatten(0, (grid.rows, grid.cols))


def over_sequence(trace: Trace, values: Float[Tensor, "*rest token"]) -> Float[Tensor, "*rest token2"]:
    """Numbers of the tokens that there are, along the whole sequence; not-a-number for patches that were
    withheld.

    Raises nothing.

    >>> from vitviz import Grid
    >>> from vitviz.analyses.example import example_trace
    >>> over_sequence(example_trace(Grid(1, 2, (4, 4), ("class",))), torch.arange(3.0)).tolist()
    [0.0, 1.0, 2.0]
    """
    grid = trace.grid
    laid = values.new_full((*values.shape[:-1], grid.tokens), float("nan"))
    laid[..., : grid.prefix] = values[..., : grid.prefix]
    laid[..., grid.prefix + present(trace)] = values[..., grid.prefix :]
    return laid
