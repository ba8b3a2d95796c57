"""Attention read in blocks, so that no N x N of a layer ever exists.

Idea: for a block of queries and heads, exp(q k^T scale + bias) is written into one buffer, made once a layer and small
enough for the processor's cache, and left undivided. With z_i = sum_j exp(s_ij), everything wanted is a weighted sum:

    distance_i = (sum_j exp(s_ij) d_ij) / z_i          v A = sum_i (v_i / z_i) exp(s_i.)

so that dividing N x N numbers becomes dividing N. Subtracting each row's maximum, which keeps exp from overflowing, is
left out where |q_i| |k_j| scale shows that it cannot (DeiT-Tiny: at most 35 on a photograph, where 60 is allowed).

It does not show anything by itself: `distance`, `rollout` and `sweep` say what the sums mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from vitviz.trace import Attention

BLOCK = 2**19  # numbers in a block (2 MB): measured fastest or near it from 197 to 2305 tokens on two cores
SAFE = 60.0  # exp(60) times thousands of keys is far from float32's largest number, exp(-60) far from its smallest


@dataclass(frozen=True)
class Block:
    """exp(scores) of some heads and queries, each row up to a factor. The next block overwrites it."""

    heads: slice
    rows: slice
    powers: Float[Tensor, "head rows key"]

    def weights(self) -> Float[Tensor, "head rows key"]:
        """The attention itself: rows divided, in place, by their sums."""
        return self.powers.div_(self.powers.sum(dim=-1, keepdim=True))


def blocks(attention: Attention, rows: slice = slice(None), all_heads: bool = False) -> Iterator[Block]:
    """The attention of one call in blocks of about `BLOCK` numbers: queries in the outer loop, heads in the inner.

    With `all_heads` every block holds all of them, for what fuses heads.
    """
    (heads, queries, _), keys = attention.q.shape, attention.k.shape[1]
    start, stop, _ = rows.indices(queries)
    group, height = _block_shape(heads, stop - start, keys, all_heads)
    buffer = attention.q.new_empty(group, height, keys)
    safe = _largest_score(attention) <= SAFE
    for first in range(start, stop, height):
        part = slice(first, min(first + height, stop))
        for head in range(0, heads, group):
            some = slice(head, min(head + group, heads))
            scores = buffer[: some.stop - some.start, : part.stop - part.start]
            torch.baddbmm(scores, attention.q[some, part], attention.k[some].mT, beta=0, alpha=attention.scale, out=scores)
            if attention.bias is not None:
                scores.add_(attention.bias.rows(part, some))
            if not safe:
                scores.sub_(scores.amax(dim=-1, keepdim=True))
            yield Block(some, part, scores.exp_())


def _block_shape(heads: int, rows: int, keys: int, all_heads: bool) -> tuple[int, int]:
    """Heads and queries of a block: several heads only with all of the queries, so that a block lies in one piece."""
    if all_heads:
        return heads, max(1, min(rows, BLOCK // (heads * keys)))
    height = max(1, min(rows, BLOCK // keys))
    return (max(1, min(heads, BLOCK // (height * keys))) if height == rows else 1), height


def _largest_score(attention: Attention) -> float:
    """A bound of |score| by Cauchy and Schwarz; infinite or NaN where a mask shuts keys out."""
    ones = attention.q.new_ones(attention.q.shape[2])  # the square of a length as a product: torch's norm is slow here
    q, k = (torch.matmul(x.square(), ones).amax(dim=-1) for x in (attention.q, attention.k))
    bound = (q * k).sqrt().max() * abs(attention.scale)
    bias = attention.bias
    if bias is not None:
        bound = bound + (bias.table if bias.dense is None else bias.dense).abs().max()
    return bound.item()


@dataclass(frozen=True)
class Reading:
    """What one pass over a layer leaves: the carried row, and the sums over patch queries divided by their number."""

    carried: Float[Tensor, " key"] | None  # vector times the mean over heads of the attention
    distance: Float[Tensor, " head"] | None  # px, float64
    renormalised: Float[Tensor, " head"] | None  # px, float64; each row divided by its mass on patches
    prefix_mass: Float[Tensor, " head"] | None  # float64


def read_layer(
    attention: Attention, prefix: int, distances: Float[Tensor, "query key"] | None = None, vector: Float[Tensor, " query"] | None = None
) -> Reading:
    """One pass over a layer for the distances (zero in prefix rows and columns), the carried row vector, or both."""
    (heads, queries, _), keys = attention.q.shape, attention.k.shape[1]
    rows = range(queries) if distances is not None or vector is None else _support(vector)
    ones = attention.q.new_ones(keys)
    on_patches = torch.cat([ones.new_zeros(prefix), ones[prefix:]])
    sums = attention.q.new_zeros(3, heads * len(rows))  # of a row's powers on patches, on prefix tokens, and times the distances
    carried = None if vector is None else torch.zeros_like(ones)
    asking = None if vector is None else repeat(vector[rows.start : rows.stop].to(ones), "row -> (head row)", head=heads)
    for block in blocks(attention, slice(rows.start, rows.stop)):
        powers = rearrange(block.powers, "head row key -> (head row) key")
        first = block.heads.start * len(rows) + block.rows.start - rows.start
        on_patch, on_prefix, length = sums[:, first : first + len(powers)]
        torch.mv(powers, on_patches, out=on_patch)
        torch.mv(powers[:, :prefix], ones[:prefix], out=on_prefix)
        if vector is not None:
            carried.addmv_(powers.mT, asking[first : first + len(powers)] / (on_patch + on_prefix), alpha=1 / heads)
        if distances is not None:
            torch.mv(rearrange(block.powers.mul_(distances[block.rows]), "head row key -> (head row) key"), ones, out=length)
    return Reading(carried, *(_patch_means(rearrange(sums, "sum (head row) -> sum head row", head=heads), prefix) if distances is not None else [None] * 3))


def _patch_means(sums: Float[Tensor, "3 head query"], prefix: int) -> Float[Tensor, "3 head"]:
    """Distance, renormalised distance and prefix mass: the mean over the patch queries of the sums of their rows."""
    on_patches, on_prefix, lengths = sums[..., prefix:].double()
    row_sums = on_patches + on_prefix
    renormalised = lengths / on_patches.clamp_min(torch.finfo(torch.float64).tiny)  # 0 where nothing is on patches
    return torch.stack([lengths / row_sums, renormalised, on_prefix / row_sums]).mean(dim=-1)


def _support(vector: Float[Tensor, " query"]) -> range:
    """The queries from the first to the last whose weight is not zero: for one token, a single row."""
    asked = vector.nonzero().flatten().tolist()
    return range(asked[0], asked[-1] + 1) if asked else range(0)
