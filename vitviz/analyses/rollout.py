"""Attention rollout: an estimate of which patches reach the classifier through all layers.

    A_l    = heads fused (mean, max or min), then the smallest entries of the patch columns discarded
    M_l    = r I + (1 - r) A_l, each row divided by its sum (a row that sums to 0 becomes the identity's row)
    R      = M_L ... M_1,   map = R[query, patches]

Only the query's row of R is propagated, from the last layer to the first: O(N^2) per layer, and R is never
built. Sources: Abnar and Zuidema 2020 (section 3, attention rollout); Dosovitskiy et al. 2021, figures 6 and
14, section D.8.

Rollout does not show what the values carry or what the MLPs do. The map is equal for every class.
"""

import operator
from collections.abc import Iterator

import numpy as np
import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.query import QueryToken, query_weights
from vitviz.analyses.streaming import blocks, read_layer
from vitviz.errors import VitvizError, quoted
from vitviz.traces import cancellation
from vitviz.traces.trace import Attention, Trace

FUSIONS = ("mean", "max", "min")
Layers = tuple[int, int] | None


def rollout(
    trace: Trace, query: QueryToken = "auto", fusion: str = "mean", discard: float = 0.0,
    residual: float = 0.5, layers: Layers = None
) -> Float[Tensor, "row col"]:  # fmt: skip
    """Return the attention rollout of one query over the patches, as a map.

    Args:
        trace: the trace.
        query: see `query_weights`.
        fusion: fusion of the heads: "mean", "max" or "min".
        discard: fraction of the patch columns' entries, the smallest, that are set to 0; from 0 to below 1.
        residual: weight r of the skip connection, from 0 to 1.
        layers: (first, last), counted from 0, both included; None for all.

    Returns:
        (row, col), without a unit; together with the prefix tokens' weights the map sums to 1. NaN for
            dropped patches.

    Raises:
        VitvizError: a value is outside its range.

    Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> rollout(example_trace(layers=1)).tolist()  # (I + J / 4) / 2
    [[0.125, 0.125, 0.125]]
    """
    row = rollout_row(trace, query, fusion, discard, residual, layers)
    return row[trace.grid.prefix :].unflatten(0, (trace.grid.rows, trace.grid.cols))


def rollout_row(
    trace: Trace, query: QueryToken = "auto", fusion: str = "mean", discard: float = 0.0,
    residual: float = 0.5, layers: Layers = None
) -> Float[Tensor, " token"]:  # fmt: skip
    """Return the attention rollout of one query over all tokens: (token), prefix tokens first.

    The row sums to 1; dropped patches are NaN. Args and Raises are those of `rollout`. Source: see the
    module.

    >>> from vitviz.analyses.example import example_trace
    >>> rollout_row(example_trace(layers=1)).tolist()
    [0.625, 0.125, 0.125, 0.125]
    """
    _check(fusion, discard, residual)
    first, last = _layer_range(len(trace.layers), layers)
    vector = query_weights(trace, query)
    for attention in reversed(trace.layers[first : last + 1]):
        cancellation.check()
        if fusion == "mean" and discard == 0:  # rows sum to 1 already
            carried = read_layer(attention, trace.grid.prefix, vector=vector).carried
            vector = mix_step(vector, carried, residual)
        else:
            vector = _carried(vector, _fused(attention, fusion, discard, trace.grid.prefix), residual)
    return trace.on_tokens(vector.to(trace.layers[0].q))


def mean_attention(trace: Trace, query: QueryToken = "auto") -> Float[Tensor, "layer row col"]:
    """Return the attention of one query to the patches in each layer, mean over heads: (layer, row, col).

    Layers are not multiplied. For a query of several tokens ('mean', attention pooling), the rows are
    averaged by their weights. Raises VitvizError for an unknown query. Source: paper, figure 6 computes its
    rollout from these.

    >>> from vitviz.analyses.example import example_trace
    >>> mean_attention(example_trace(layers=2))[1].tolist()
    [[0.25, 0.25, 0.25]]
    """
    vector = query_weights(trace, query)
    rows = [read_layer(attention, trace.grid.prefix, vector=vector).carried for attention in trace.layers]
    return trace.on_grid(torch.stack(rows))


def mix_step(
    vector: Float[Tensor, " token"], carried: Float[Tensor, " token"], residual: float
) -> Float[Tensor, " token"]:
    """Return one layer's rollout step r v + (1 - r) v A, given v (`vector`) and v A (`carried`)."""
    return residual * vector + (1 - residual) * carried


def _carried(
    vector: Float[Tensor, " token"], fused: Iterator[tuple[slice, Tensor]], residual: float
) -> Float[Tensor, " token"]:
    """Return one layer's rollout step of a row v, for any A: v diag(1 / row sums) (r I + (1 - r) A)."""
    result = torch.zeros_like(vector)
    for rows, attention in fused:
        sums = residual + (1 - residual) * attention.sum(dim=-1, dtype=vector.dtype)
        empty = sums <= 0
        shares = torch.where(empty, 0.0, vector[rows] / torch.where(empty, 1.0, sums))
        result[rows] += torch.where(empty, vector[rows], residual * shares)
        result += (1 - residual) * torch.mv(attention.mT, shares.to(attention))
    return result


def _fused(attention: Attention, fusion: str, discard: float, prefix: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows, attention fused over heads) by block; all rows at once if entries are discarded."""
    each, over_heads = blocks(attention, all_heads=True), "head rows key -> rows key"
    parts = ((block.rows, reduce(block.weights(), over_heads, fusion)) for block in each)
    if discard == 0:
        yield from parts
    else:
        whole = torch.cat([part for _, part in parts])
        whole[:, prefix:] = without_smallest(whole[:, prefix:], discard)
        yield slice(0, len(whole)), whole


def without_smallest(attention: Float[Tensor, "query patch"], discard: float) -> Float[Tensor, "query patch"]:
    """Return the attention with the floor(discard M) smallest of its M entries set to 0, first ones if equal.

    The threshold comes from a partition: at 2305 tokens 15 ms, where a sort takes 770 and kthvalue 90.
    """
    entries = rearrange(attention, "query patch -> (query patch)").clone()
    count = int(discard * entries.numel())
    if count > 0:
        threshold = float(np.partition(entries.cpu().numpy(), count - 1)[count - 1])
        below = entries < threshold
        equal = (entries == threshold).nonzero().flatten()[: count - int(below.sum())]
        entries.masked_fill_(below, 0)[equal] = 0
    return rearrange(entries, "(query patch) -> query patch", patch=attention.shape[1])


def _check(fusion: str, discard: float, residual: float) -> None:
    """Raise VitvizError for an unknown fusion, or a `discard` or `residual` outside its range."""
    fusions = ", ".join(FUSIONS)
    for given, fits, expected in (
        (f"{fusion=}", fusion in FUSIONS, f"one of {fusions}. Choose 'mean' for the paper's rollout."),
        (f"{discard=}", 0 <= discard < 1, "a share from 0 to below 1. Choose 0 to discard nothing."),
        (f"{residual=}", 0 <= residual <= 1, "a weight from 0 to 1. Choose 0.5 for the paper's rollout."),
    ):
        if not fits:
            raise VitvizError(f"{given} is not valid; expected {expected}")


def _layer_range(count: int, layers: Layers) -> tuple[int, int]:
    """Return the first and last layer of a rollout, from 0, both included.

    None means all `count` layers. Raise VitvizError for anything but two layers in order.
    """
    if layers is None:
        return 0, count - 1
    try:
        first, last = (operator.index(layer) for layer in layers)
    except (TypeError, ValueError):
        first, last = -1, -1
    if not 0 <= first <= last < count:
        raise VitvizError(
            f"layers={quoted(layers)} is not valid; expected (first, last), counted from 0, both included,"
            f" up to {count - 1}. Choose None for all."
        )
    return first, last
