"""Entropy and redundancy of heads: entropy, cosine and Jensen-Shannon divergence of attention.

    H(l, h) = - mean_i sum_j A_ij ln A_ij, over all queries i, or the patches; prefix tokens' rows apart
    cosine  = <A^h, A^h'> / (|A^h| |A^h'|), all queries and keys in one vector
    JS      = mean_i H((a + b) / 2) - (H(a) + H(b)) / 2 for row i of both heads, in nats, from 0 to ln 2

H, in nats, is 0 if every query attends to one token, and ln N for uniform attention; exp H is a number of
tokens. Keys are all tokens; with `keys` "patches" the prefix columns are dropped and each row is divided by
its remaining mass. Sources: Vig and Belinkov 2019, section 4.3.3; Lin 1991. The measures do not show which
tokens a head attends to, nor how far. Heads with similar attention may still do different things, because
their values differ. A head that can be ablated without harm need not be redundant.
"""

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float, Float64
from torch import Tensor

from vitviz.analyses.distance import Distances, distances, head_sums
from vitviz.analyses.streaming import blocks, by_images
from vitviz.errors import VitvizError, quoted
from vitviz.traces.trace import Attention, Trace, TraceBatch


def attention_entropy(trace: Trace | TraceBatch, layer: int) -> Float[Tensor, "*image head"]:
    """Return the entropy of every head of one layer, mean over all queries: (head), in nats.

    0 ln 0 counts as 0. `layer` counts from 0; raises IndexError for an unknown layer. Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> attention_entropy(example_trace(), layer=0).exp().round().tolist()
    [4.0, 4.0]
    """
    attention = trace.layer(layer)
    return by_images(_entropies, attention).mean(dim=-1).to(attention.q)


@dataclass(frozen=True)
class HeadStatistics(Distances):
    """`Distances` of every head, and its entropy."""

    entropy: Float[Tensor, "*image layer head"]  # nats, mean over all queries


def head_statistics(trace: Trace | TraceBatch) -> HeadStatistics:
    """Return distances, prefix mass and entropy of every head; on a GPU each attention is made once.

    Source: see the functions of the three. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> head_statistics(example_trace()).entropy.shape
    torch.Size([2, 2])
    """
    if not trace.tokens[0].is_cpu:
        return HeadStatistics(*head_sums(trace, entropy=True))
    entropies = [attention_entropy(trace, layer) for layer in range(len(trace.layers))]
    return HeadStatistics(**vars(distances(trace)), entropy=torch.stack(entropies, dim=-2))


def query_information(trace: Trace, layer: int) -> Float[Tensor, " head"]:
    """Return the mutual information of query and key patch of every head of one layer: (head), in nats.

    Entropy of the mean row minus mean entropy of the rows, over patches alone, each row divided by its mass
    on patches. 0 if all queries attend alike, whether uniformly or to one patch; at most ln(patches).
    `layer` counts from 0.

    >>> from vitviz.analyses.example import example_trace
    >>> query_information(example_trace(), layer=0).abs().round(decimals=4).tolist()
    [0.0, 0.0]
    """
    weights = trace.attention(layer)[:, trace.grid.prefix :, trace.grid.prefix :].double()
    rows = weights / weights.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    whole, each = (torch.special.entr(one).sum(dim=-1) for one in (rows.mean(dim=1), rows))
    return whole - each.mean(dim=1)


def _entropies(attention: Attention, first: int = 0) -> Float64[Tensor, "*image head query"]:
    """Return the entropy of each row, over the keys from `first` on, divided by their mass."""
    rows = torch.zeros(attention.q.shape[:-1], dtype=torch.float64, device=attention.q.device)
    for block in blocks(attention):
        weights = block.weights()[..., first:]
        if first:
            weights = weights / weights.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        entropies = torch.special.entr(weights).sum(dim=-1, dtype=torch.float64)
        rows[..., block.heads, block.rows] = entropies
    return rows


KEYS = ("all", "patches")


@dataclass(frozen=True)
class HeadEntropy:
    """Entropy of every head's attention, in nats."""

    patches: Float[Tensor, " head"]  # mean over the patch queries
    prefix: Float[Tensor, "head token"]  # of each prefix token's query


def head_entropy(trace: Trace, layer: int, keys: str = "all") -> HeadEntropy:
    """Return the entropy of every head's attention, for patch queries (mean) and for each prefix token.

    Args:
        trace: the trace.
        layer: counts from 0.
        keys: "all" tokens, or "patches" (prefix columns dropped, rows renormalised).

    Returns:
        `HeadEntropy`: `patches` (head) and `prefix` (head, token), in nats; 0 ln 0 counts as 0.

    Raises:
        IndexError: the layer does not exist.
        VitvizError: unknown `keys`.

    Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> head_entropy(example_trace(), layer=0).patches.exp().round().tolist()
    [4.0, 4.0]
    """
    if keys not in KEYS:
        raise VitvizError(f"keys={quoted(keys)} is not valid; expected 'all' tokens or 'patches'.")
    attention, prefix = trace.layer(layer), trace.grid.prefix
    rows = _entropies(attention, prefix if keys == "patches" else 0)
    return HeadEntropy(rows[:, prefix:].mean(dim=1).to(attention.q), rows[:, :prefix].to(attention.q))


@dataclass(frozen=True)
class Redundancy:
    """Similarity of every two heads of a layer; both matrices are symmetric."""

    cosine: Float[Tensor, "head head2"]  # 1 on the diagonal; never negative, because attention is not
    divergence: Float[Tensor, "head head2"]  # Jensen-Shannon, nats: 0 on the diagonal, at most ln 2


def head_redundancy(trace: Trace, layer: int) -> Redundancy:
    """Return the similarity of the attention of every two heads of a layer, over all queries and keys.

    Returns:
        `Redundancy`: `cosine` from 0 to 1 and `divergence` in nats, both (head, head).

    `layer` counts from 0; raises IndexError for an unknown layer. Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> head_redundancy(example_trace(), layer=0).cosine.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    attention = trace.layer(layer)
    heads, queries = attention.heads, attention.q.shape[1]
    products = torch.zeros(heads, heads, dtype=torch.float64, device=attention.q.device)
    mixed, alone = torch.zeros_like(products), products.new_zeros(heads)
    for block in blocks(attention, all_heads=True):
        weights = block.weights()
        flat = rearrange(weights, "head row key -> head (row key)").double()
        products += flat @ flat.mT
        alone += torch.special.entr(weights).sum(dim=(1, 2), dtype=torch.float64)
        for head in range(heads - 1):
            half = (weights[head + 1 :] + weights[head]) / 2
            mixed[head, head + 1 :] += torch.special.entr(half).sum(dim=(1, 2), dtype=torch.float64)
    lengths = products.diagonal().sqrt()
    cosine = (products / (lengths[:, None] * lengths)).clamp_(0, 1).fill_diagonal_(1)
    above = torch.triu(mixed - (alone[:, None] + alone) / 2, diagonal=1) / queries
    divergence = (above + above.mT).clamp_(0, math.log(2))
    return Redundancy(cosine.to(attention.q), divergence.to(attention.q))
