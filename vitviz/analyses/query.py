"""Who asks: a query by name, number or cell becomes a weight for every token of the sequence.

`auto` is what the classifier reads: the class token; the mean over the patches where the classifier averages them; with
attention pooling (MAP), the pooling's own weights, mean over its own heads. It is a choice of what to look at, and
says nothing about how much the classifier makes of it.
"""

from __future__ import annotations

import operator

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.streaming import blocks
from vitviz.errors import VitvizError
from vitviz.grid import Grid
from vitviz.trace import Trace

Query = str | int | tuple[int, int]


def query_weights(trace: Trace, query: Query = "auto") -> Float[Tensor, " token"]:
    """The weight of every token as a query, float64, summing to 1.

    `query`: 'auto', 'mean' (over the patches), a prefix token's name, a patch's sequence number from 0 (prefix tokens
    not counted), or its (row, col). Raises VitvizError for anything else.

    >>> from vitviz.analyses.example import example_trace
    >>> query_weights(example_trace(Grid(1, 2, (4, 4), ("class",))), "mean").tolist()
    [0.0, 0.5, 0.5]
    """
    weights = torch.zeros(trace.grid.tokens, dtype=torch.float64, device=trace.layers[0].q.device)
    if query == "auto":
        if trace.pool == "attention":
            return _pooling_weights(trace)
        query = "class" if trace.pool == "class" or (trace.pool == "none" and "class" in trace.grid.prefix_names) else "mean"
    if query == "mean":
        weights[trace.grid.prefix :] = 1 / trace.grid.patches
    else:
        weights[query_token(trace.grid, query)] = 1
    return weights


def query_token(grid: Grid, query: Query) -> int:
    """The place in the sequence, prefix tokens counted, of the one token that is meant.

    Raises VitvizError for a name, number or cell that the grid does not have.

    >>> grid = Grid(2, 3, (16, 16), ("class", "distillation"))
    >>> query_token(grid, "distillation"), query_token(grid, 0), query_token(grid, (1, 2))
    (1, 2, 7)
    """
    if isinstance(query, str) and query in grid.prefix_names:
        return grid.prefix_names.index(query)
    try:
        if isinstance(query, tuple):
            row, col = query
            return grid.token(operator.index(row), operator.index(col))
        number = operator.index(query)
        if not isinstance(query, bool) and 0 <= number < grid.patches:
            return grid.prefix + number
    except (TypeError, ValueError, IndexError):
        pass
    names = ", ".join(repr(name) for name in ("auto", "mean", *grid.prefix_names))
    raise VitvizError(
        f"There is no query {query!r} here. Expected one of {names} ('auto' and 'mean' only where several tokens may ask), "
        f"a patch's number from 0 to {grid.patches - 1}, or its (row, col) up to ({grid.rows - 1}, {grid.cols - 1}). Choose one of these."
    )


def _pooling_weights(trace: Trace) -> Float[Tensor, " token"]:
    """What attention pooling gives to every token: the mean over its heads and queries. Prefix tokens that it does not read get 0."""
    if trace.pooling is None:
        raise VitvizError(
            f"The classifier of {trace.checkpoint} reads attention pooling, whose weights the trace does not hold, so 'auto' is unknown. "
            "Choose 'mean', or a patch."
        )
    total = torch.zeros(trace.grid.tokens, dtype=torch.float64, device=trace.pooling.q.device)
    read = total[-trace.pooling.k.shape[1] :]  # the last of the sequence: some models leave the prefix out
    for block in blocks(trace.pooling):
        read += block.weights().sum(dim=(0, 1), dtype=torch.float64)
    return total / (trace.pooling.heads * trace.pooling.q.shape[1])
