"""One row of attention worked out in numbers: from q and k to the weights, one step after the other.

For a query i and every key j of one head (paper appendix A, equations 5 and 6): the product q_i . k_j, times
the scale, plus the bias if the model has one, its exponential, and that divided by the sum of all. q and k
are those that enter the softmax: after query-key norm and rotary embedding where a model has them. Computed
in float64 from the float32 of the trace, so that the last shown digit is not the machine's. A head that was
taken away has weights of its own still, but hands on what was put in its place. Not shown: how q and k
themselves were made of a token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.query import Query, query_place
from vitviz.errors import VitvizError
from vitviz.trace import Trace

LARGE = 30.0  # exp(30) is 1e13: above it the largest score is subtracted from all, which changes no weight


@dataclass(frozen=True)
class WorkedRow:
    """weights = powers / total, powers = exp(scores - shift), scores = products * scale + bias."""

    token: int  # the query's place in the sequence
    q: Float[Tensor, " dim"]
    k: Float[Tensor, "key dim"]
    products: Float[Tensor, " key"]
    scale: float
    bias: Float[Tensor, " key"] | None
    scores: Float[Tensor, " key"]
    shift: float
    powers: Float[Tensor, " key"]
    total: float
    weights: Float[Tensor, " key"]
    output: Float[Tensor, " dim2"]  # what the head hands on for this query: the weighted values, unless
    replaced: bool  # the head was taken away, and this was put in their place


def worked_row(trace: Trace, layer: int, head: int, query: Query) -> WorkedRow:
    """Every number between q, k and one row of a head's attention; layer and head count from 0.

    `query`: a prefix token's name, a patch's number from 0, or its (row, col). Raises VitvizError for a query
    or head that does not exist, IndexError for such a layer.

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> row = worked_row(example_trace(Grid(1, 3, (4, 4), ("class",))), layer=0, head=0, query=(0, 2))
    >>> row.total, row.weights.tolist()
    (4.0, [0.25, 0.25, 0.25, 0.25])
    """
    token, attention = query_place(trace, query), trace.layer(layer)
    if not 0 <= head < attention.heads:
        raise VitvizError(
            f"Head {head} does not exist: {trace.checkpoint} has heads 0 to {attention.heads - 1}."
        )
    q, k, v = attention.q[head, token].double(), attention.k[head].double(), attention.v[head].double()
    products = k @ q
    bias = (
        None
        if attention.bias is None
        else attention.bias.rows(slice(token, token + 1), slice(head, head + 1))[0, 0].double()
    )
    scores = products * attention.scale + (0.0 if bias is None else bias)
    largest = scores.max().item()
    shift = largest if largest > LARGE or largest < -LARGE else 0.0
    powers = torch.exp(scores - shift)
    total = powers.sum().item()
    weights = powers / total
    replaced = head in attention.replaced
    output = attention.given[attention.replaced.index(head), token].double() if replaced else weights @ v
    return WorkedRow(
        token, q, k, products, attention.scale, bias, scores, shift, powers, total, weights, output, replaced
    )
