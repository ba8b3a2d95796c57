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
from einops import rearrange
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
    bound = (attention.q.norm(dim=-1).amax(dim=-1) * attention.k.norm(dim=-1).amax(dim=-1)).max() * abs(attention.scale)
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
    heads, queries, _ = attention.q.shape
    on_patches = attention.k.new_ones(attention.k.shape[1])
    on_patches[:prefix] = 0
    totals = torch.zeros(3, heads, dtype=torch.float64, device=attention.q.device)
    carried = None if vector is None else torch.zeros_like(on_patches)
    for block in blocks(attention, slice(None) if distances is not None or vector is None else _support(vector)):
        powers = block.powers
        patch_sum, prefix_sum = torch.matmul(powers, on_patches), powers[..., :prefix].sum(dim=-1)
        row_sum = patch_sum + prefix_sum
        if vector is not None:
            shares = (vector[block.rows].to(powers) / row_sum).flatten()
            carried.addmv_(rearrange(powers, "head rows key -> key (head rows)"), shares)
        if distances is not None:
            lengths = torch.matmul(powers.mul_(distances[block.rows]), on_patches)
            patch_rows = slice(max(prefix - block.rows.start, 0), None)
            safe_sum = patch_sum.clamp_min(torch.finfo(powers.dtype).tiny)
            values = torch.stack([lengths / row_sum, lengths / safe_sum, prefix_sum / row_sum])
            totals[:, block.heads] += values[..., patch_rows].sum(dim=-1, dtype=torch.float64)
    if carried is not None:
        carried /= heads
    return Reading(carried, *(totals / (queries - prefix) if distances is not None else (None, None, None)))


def _support(vector: Float[Tensor, " query"]) -> slice:
    """The queries from the first to the last whose weight is not zero: for one token, a single row."""
    asked = vector.nonzero().flatten().tolist()
    return slice(asked[0], asked[-1] + 1) if asked else slice(0, 0)
