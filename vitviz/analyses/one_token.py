"""Attention of one token: its row of A^{l,h} or its column.

The row holds the keys that the token attends to, the column the queries that attend to the token. A public
tool draws columns and calls them rows. The two are different images, so each has its own function and name
here. Source: Dosovitskiy et al. 2021, appendix A (A_ij is the weight of query i on key j). Neither shows what
passes through the skip connection, nor the size of the values.

Attention received: the fraction of a head's attention that each token receives.

    r_j(l, h) = 1/N sum_i A_ij

over all N queries. The fractions of one head sum to 1, and are 1/N each if attention is uniform. A token that
receives much of it in many heads is a sink, often the class token, a register or a patch with a large norm
(Xiao et al. 2024, text; Darcet et al. 2024, images). The fraction does not show what is transferred: a sink's
value is often 0.

Worked row: the computation of one row of attention in numbers, step by step, from q and k to the weights.

For a query i and every key j of one head (paper appendix A, equations 5 and 6): the product q_i . k_j, times
the scale, plus the bias if the model has one, its exponential, and that divided by the sum of all. q and k
are those that enter the softmax: after query-key norm and rotary embedding where a model has them. Computed
in float64 from the float32 of the trace, so that the last shown digit is not rounding. An ablated head still
has weights, but its output is the replacement. Not shown: how q and k themselves were computed.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.query import QueryToken, query_place
from vitviz.analyses.streaming import blocks
from vitviz.errors import VitvizError
from vitviz.traces.trace import Trace


def attends_to(trace: Trace, layer: int, query: QueryToken) -> Float[Tensor, "head token"]:
    """Return the attention of one token to all tokens, for every head: its row of A.

    Args:
        trace: the trace.
        layer: counts from 0.
        query: a prefix token's name, a patch's number from 0, or its (row, col).

    Returns:
        (head, token), prefix tokens first; rows sum to 1. NaN for dropped patches.

    Raises:
        VitvizError: the query does not exist.
        IndexError: the layer does not exist.

    >>> from vitviz.analyses.example import example_trace
    >>> attends_to(example_trace(), layer=0, query=(0, 2))[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    token = query_place(trace, query)
    return trace.on_tokens(trace.layer(layer).weights(slice(token, token + 1))[:, 0])


def attended_by(trace: Trace, layer: int, key: QueryToken) -> Float[Tensor, "head token"]:
    """Return the attention of all tokens to one token, for every head: its column of A.

    Args:
        trace: the trace.
        layer: counts from 0.
        key: a prefix token's name, a patch's number from 0, or its (row, col).

    Returns:
        (head, token), prefix tokens first. Each entry belongs to another row, so the sum is not fixed. NaN
            for dropped patches.

    Raises:
        VitvizError: the key does not exist.
        IndexError: the layer does not exist.

    >>> from vitviz.analyses.example import example_trace
    >>> attended_by(example_trace(), layer=0, key="class")[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    token, attention = query_place(trace, key), trace.layer(layer)
    column = attention.q.new_empty(attention.heads, trace.length)
    for block in blocks(attention):
        column[block.heads, block.rows] = block.powers[..., token] / block.sums
    return trace.on_tokens(column)


def attention_received(trace: Trace, layer: int) -> Float[Tensor, "head token"]:
    """Return the fraction of every head's attention that each token receives: (head, token).

    Prefix tokens come first; rows sum to 1. `layer` counts from 0; raises IndexError for an unknown layer.
    Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> attention_received(example_trace(), layer=0)[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    attention = trace.layer(layer)
    total = torch.zeros(attention.heads, attention.k.shape[1], dtype=torch.float64, device=attention.q.device)
    for block in blocks(attention):
        total[block.heads] += block.weights().sum(dim=1, dtype=torch.float64)
    return (total / attention.q.shape[1]).to(attention.q)


LARGE = 30.0  # exp(30) is 1e13; above it, the largest score is subtracted from all, which changes no weight


@dataclass(frozen=True)
class WorkedRow:
    """Intermediate results of one row of attention.

    weights = powers / total, powers = exp(scores - shift), scores = products * scale + bias.
    """

    token: int  # position of the query in the sequence
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
    output: Float[Tensor, " dim2"]  # the head's output: the weighted values, or their replacement
    replaced: bool  # True if the head was ablated and `output` is its replacement


def worked_row(trace: Trace, layer: int, head: int, query: QueryToken) -> WorkedRow:
    """Return the intermediate results by which a head computes one query's attention row, in float64.

    Args:
        trace: the trace.
        layer: counts from 0.
        head: counts from 0.
        query: a prefix token's name, a patch's number from 0, or its (row, col).

    Raises:
        VitvizError: the query or head does not exist.
        IndexError: the layer does not exist.

    >>> from vitviz.analyses.example import example_trace
    >>> row = worked_row(example_trace(), layer=0, head=0, query=(0, 2))
    >>> row.total, row.weights.tolist()
    (4.0, [0.25, 0.25, 0.25, 0.25])
    """
    token, attention = query_place(trace, query), trace.layer(layer)
    if not 0 <= head < attention.heads:
        detail = f"{trace.checkpoint} has heads 0 to {attention.heads - 1}"
        raise VitvizError(f"Head {head} does not exist: {detail}.")
    q, k, v = attention.q[head, token].double(), attention.k[head].double(), attention.v[head].double()
    products, bias = k @ q, None
    scores = products * attention.scale
    if attention.bias is not None:
        bias = attention.bias.rows(slice(token, token + 1), slice(head, head + 1))[0, 0].double()
        scores = scores + bias
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
