"""Who asks: a query by name, number or cell becomes a weight for every token of the sequence.

`auto` is what the classifier reads (see `record.readout`): the class token, the mean over the patches, two
such vectors half and half, for a maximum the share of its numbers that each token has the largest of, and
with attention pooling (MAP) the pooling's own weights, mean over its own heads. Where nothing is read,
because there is no classifier and no pooling, it is the class token, or the mean over the patches. It is a
choice of what to look at, and says nothing about how much the classifier makes of it.
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
    """The weight of every token of the pass as a query, float64, summing to 1.

    `query`: 'auto' (what the classifier reads; of a distilled model the class token), 'mean' (over the
    patches), a prefix token's name, a patch's sequence number from 0 (prefix tokens not counted), or its
    (row, col). Raises VitvizError for anything else.

    >>> from vitviz.analyses.example import example_trace
    >>> query_weights(example_trace(Grid(1, 2, (4, 4), ("class",))), "mean").tolist()
    [0.0, 0.5, 0.5]
    """
    weights = torch.zeros(trace.length, dtype=torch.float64, device=trace.layers[0].q.device)
    if query == "auto":
        if trace.pool == "class and distillation":
            query = "class"  # the two heads are told apart; the distillation token is there on request
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
    """Where the one token that is meant stands in a trace; `query_token` where no patch was left out.

    Raises VitvizError as that does, and for a patch that was left out.

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
    """The place in the sequence, prefix tokens counted, of the one token that is meant.

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
        f"There is no query {quoted(query)} here. Expected one of {names} ('auto' and 'mean' only where"
        f" several tokens may ask), a patch's number from 0 to {grid.patches - 1}, or its (row, col) up to"
        f" ({grid.rows - 1}, {grid.cols - 1}). Choose one of these."
    )


def _read_weights(trace: Trace) -> Float[Tensor, " token"]:
    """How much of what the classifier is given each token is."""
    if trace.pool == "attention":
        return _pooling_weights(trace)
    try:
        grid = trace.grid if trace.kept is None else trace.grid.sequence(len(trace.kept))
        readout = trace.readout or Readout.by_name(trace.pool, grid)
    except ValueError as error:
        raise VitvizError(
            f"What the classifier of {trace.checkpoint} reads is unknown: {error} Choose 'mean', or a patch."
        ) from error
    if readout.linear:
        return readout.weights(trace.length)
    if trace.read is None:
        raise VitvizError(
            f"The classifier of {trace.checkpoint} reads {quoted(trace.pool)}, which depends on the"
            " picture, and"
            " the trace does not hold which tokens that was, so 'auto' is unknown. Choose 'mean', or a patch."
        )
    return trace.read.double()


def _pooling_weights(trace: Trace) -> Float[Tensor, " token"]:
    """What attention pooling gives to every token: mean over heads and queries; 0 to prefixes not read."""
    if trace.pooling is None:
        raise VitvizError(
            f"The classifier of {trace.checkpoint} reads attention pooling, whose weights the trace does not"
            " hold, so 'auto' is unknown. Choose 'mean', or a patch."
        )
    own = trace.pooling.weights().mean(dim=(0, 1), dtype=torch.float64)
    # the last of the sequence: some models leave the prefix out
    return torch.nn.functional.pad(own, (trace.length - len(own), 0))
