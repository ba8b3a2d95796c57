"""Query tokens: convert a query by name, number or cell into a weight for every token of the sequence.

`auto` is what the classifier reads (see `vitviz.traces.readout`): the class token; the mean over the patches;
two such vectors, half each; for a maximum, the fraction of its numbers that come from each token; for
attention pooling (MAP) the pooling's own weights, mean over its own heads. Without classifier and pooling, it
is the class token, or the mean over the patches. A query selects what to look at, and says nothing about how
much the classifier makes of it.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.errors import VitvizError, quoted, whole_number
from vitviz.traces.grid import Grid
from vitviz.traces.readout import Readout
from vitviz.traces.trace import Trace

QueryToken = str | int | tuple[int, int]


def query_weights(trace: Trace, query: QueryToken = "auto") -> Float[Tensor, " token"]:
    """Return the weight of every token of the pass as a query: (token), float64, summing to 1.

    Args:
        trace: the trace.
        query: 'auto' (what the classifier reads; for a distilled model the class token), 'mean' (over the
            patches), a prefix token's name, a patch's sequence number from 0 (without prefix tokens), or its
            (row, col).

    Raises:
        VitvizError: any other query.

    >>> from vitviz.analyses.example import example_trace
    >>> query_weights(example_trace(Grid(1, 2, (4, 4), ("class",))), "mean").tolist()
    [0.0, 0.5, 0.5]
    """
    weights = torch.zeros(trace.length, dtype=torch.float64, device=trace.layers[0].q.device)
    if query == "auto":
        if trace.pool == "class and distillation":
            # the two heads are separate; the distillation token is available as a query of its own
            query = "class"
        elif trace.pool != "none":
            return _read_weights(trace).to(weights.device)
        else:
            query = "class" if "class" in trace.grid.prefix_names else "mean"
    if query == "mean":
        weights[trace.grid.prefix :] = 1 / (trace.length - trace.grid.prefix)
    else:
        weights[query_place(trace, query)] = 1
    return weights


def query_place(trace: Trace, query: QueryToken) -> int:
    """Return the index of a query's token in the pass, whose sequence lacks the dropped patches.

    The index equals `query_token` if no patch was dropped.

    Raises VitvizError as `query_token`, and for a patch that was dropped.

    >>> from vitviz.analyses.example import example_trace
    >>> query_place(example_trace(kept=(0, 2)), (0, 2))
    2
    """
    token, prefix = query_token(trace.grid, query), trace.grid.prefix
    if trace.kept is None or token < prefix:
        return token
    if token - prefix not in trace.kept:
        row, col = trace.grid.cell(token)
        raise VitvizError(
            f"Patch {token - prefix} (row {row}, col {col}) was left out of this pass, so it asks nothing and"
            " nobody asks it. Choose a patch that stayed, or put it back."
        )
    return prefix + trace.kept.index(token - prefix)


def query_token(grid: Grid, query: QueryToken) -> int:
    """Return the index of a query's token in the whole sequence: prefix tokens first, then all patches.

    Raises VitvizError for a name, number or cell that the grid does not have.

    >>> grid = Grid(2, 3, (16, 16), ("class", "distillation"))
    >>> query_token(grid, "distillation"), query_token(grid, 0), query_token(grid, (1, 2))
    (1, 2, 7)
    """
    if isinstance(query, str) and query in grid.prefix_names:
        return grid.prefix_names.index(query)
    if isinstance(query, tuple) and len(query) == 2:
        row, col = whole_number(query[0], below=grid.rows), whole_number(query[1], below=grid.cols)
        if row is not None and col is not None:
            return grid.token(row, col)
    elif (number := whole_number(query, below=grid.patches)) is not None:
        return grid.prefix + number
    names = ", ".join(repr(name) for name in ("auto", "mean", *grid.prefix_names))
    raise VitvizError(
        f"query={quoted(query)} is not valid; expected one of {names} ('auto' and 'mean' only where several"
        f" tokens can be the query), a patch's number from 0 to {grid.patches - 1}, or its (row, col) up to"
        f" ({grid.rows - 1}, {grid.cols - 1})."
    )


def _read_weights(trace: Trace) -> Float[Tensor, " token"]:
    """Return the weight of every token in the classifier's input; raise VitvizError if it is unknown."""
    if trace.pool == "attention":
        return _pooling_weights(trace)
    try:
        grid = trace.grid if trace.kept is None else trace.grid.sequence(len(trace.kept))
        readout = trace.readout or Readout.by_name(trace.pool, grid)
    except ValueError as error:
        detail = f"{error} Choose 'mean', or a patch"
        raise VitvizError(f"What the classifier of {trace.checkpoint} reads is unknown: {detail}.") from error
    if readout.linear:
        return readout.weights(trace.length)
    if trace.read is None:
        raise VitvizError(
            f"The classifier of {trace.checkpoint} reads {quoted(trace.pool)}, which depends on the image,"
            " and the trace does not hold which tokens that was, so 'auto' is unknown. Choose 'mean', or a"
            " patch."
        )
    return trace.read.double()


def _pooling_weights(trace: Trace) -> Float[Tensor, " token"]:
    """Return attention pooling's weight of every token, mean over heads and queries; 0 for unread ones."""
    if trace.pooling is None:
        raise VitvizError(
            f"The classifier of {trace.checkpoint} reads attention pooling, whose weights the trace does not"
            " hold, so 'auto' is unknown. Choose 'mean', or a patch."
        )
    own = trace.pooling.weights().mean(dim=(0, 1), dtype=torch.float64)
    # the tokens read are the last of the sequence: some models exclude the prefix
    return torch.nn.functional.pad(own, (trace.length - len(own), 0))
