"""Attention read in blocks, so that no N x N of a layer ever exists.

Idea: for a block of queries and heads, exp(q k^T scale + bias) is written into one buffer, made once a layer and small
enough for the processor's cache, and left undivided. With z_i = sum_j exp(s_ij), everything wanted is a weighted sum:

    distance_i = (sum_j exp(s_ij) d_ij) / z_i          v A = sum_i (v_i / z_i) exp(s_i.)

so that dividing N x N numbers becomes dividing N. Each row's maximum, which keeps exp from overflowing, is subtracted
only once the sums of a block show that it must be: for most models never.

It does not show anything by itself: `distance`, `rollout` and `sweep` say what the sums mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses import workers
from vitviz.trace import Attention

LOG2_E = math.log2(math.e)  # exp(s) = exp2(s LOG2_E): four times as fast where torch's exp goes through a foreign library's slow path
BLOCK = 2**19  # numbers in a block (2 MB): near the fastest from 197 to 2305 tokens, and few enough blocks for two cores
SMALLEST, LARGEST = 1e-20, 1e30  # sums of a row between which float32 neither overflows nor loses what counts


@dataclass(frozen=True)
class Block:
    """exp(scores) of some heads and queries, each row up to a factor, and its sums. The next block overwrites it."""

    heads: slice
    rows: slice
    powers: Float[Tensor, "head row key"]
    on_patches: Float[Tensor, "head row"]  # sums over the keys that are patches
    on_prefix: Float[Tensor, "head row"]  # and over those that are prefix tokens

    @property
    def sums(self) -> Float[Tensor, "head row"]:
        return self.on_patches + self.on_prefix

    def weights(self) -> Float[Tensor, "head row key"]:
        """The attention itself: rows divided, in place, by their sums."""
        return self.powers.div_(rearrange(self.sums, "head row -> head row 1"))


def blocks(attention: Attention, prefix: int = 0, rows: slice = slice(None), all_heads: bool = False) -> Iterator[Block]:
    """The attention of one call in blocks of about `BLOCK` numbers: queries in the outer loop, heads in the inner.

    With `all_heads` every block holds all of them, for what fuses heads.
    """
    # The record keeps views of one q-k-v tensor; over them the product costs a quarter more.
    attention = replace(attention, q=attention.q.contiguous(), k=attention.k.contiguous())
    (heads, queries, _), keys = attention.q.shape, attention.k.shape[1]
    start, stop, _ = rows.indices(queries)
    group, height = _block_shape(heads, stop - start, keys, all_heads)
    buffer = attention.q.new_empty(group, height, keys)
    is_prefix = (torch.arange(keys, device=buffer.device) < prefix).to(buffer)
    is_patch, shift = 1 - is_prefix, False
    for first in range(start, stop, height):
        part = slice(first, min(first + height, stop))
        for head in range(0, heads, group):
            some = slice(head, min(head + group, heads))
            powers = buffer[: some.stop - some.start, : part.stop - part.start]
            while True:
                _write_powers(powers, attention, some, part, shift)
                on_patches, on_prefix = torch.matmul(powers, is_patch), torch.matmul(powers[..., :prefix], is_prefix[:prefix])
                if shift or _within_range(on_patches + on_prefix):
                    break
                shift = True  # from here on in this call
            yield Block(some, part, powers, on_patches, on_prefix)


def _write_powers(powers: Float[Tensor, "head row key"], attention: Attention, heads: slice, rows: slice, shift: bool) -> None:
    torch.baddbmm(powers, attention.q[heads, rows], attention.k[heads].mT, beta=0, alpha=attention.scale * LOG2_E, out=powers)
    if attention.bias is not None:
        powers.add_(attention.bias.rows(rows, heads), alpha=LOG2_E)
    if shift:
        powers.sub_(powers.amax(dim=-1, keepdim=True))
    powers.exp2_()


def _within_range(sums: Float[Tensor, "head row"]) -> bool:
    smallest, largest = sums.aminmax()
    return smallest.item() >= SMALLEST and largest.item() <= LARGEST  # NaN is not


def _block_shape(heads: int, rows: int, keys: int, all_heads: bool) -> tuple[int, int]:
    """Heads and queries of a block: several heads only with all of the queries, so that a block lies in one piece."""
    if all_heads:
        return heads, max(1, min(rows, BLOCK // (heads * keys)))
    height = max(1, min(rows, BLOCK // keys))
    return (max(1, min(heads, BLOCK // (height * keys))) if height == rows else 1), height


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
    attention = replace(attention, q=attention.q.contiguous(), k=attention.k.contiguous())  # once, and not in every thread
    sums = attention.q.new_zeros(3, heads, queries)  # of every row's powers: on patches, on prefix tokens, times the distances
    rows = slice(0, queries) if distances is not None or vector is None else _support(vector)
    read = partial(_read_rows, attention, prefix, distances, None if vector is None else vector.to(sums) / heads, sums)
    carried = [row for row in workers.each(read, rows, heads * attention.k.shape[1]) if row is not None]
    return Reading(sum(carried[1:], carried[0]) if carried else None, *(_patch_means(sums, prefix) if distances is not None else (None, None, None)))


def _read_rows(
    attention: Attention, prefix: int, distances: Float[Tensor, "query key"] | None, asking: Float[Tensor, " query"] | None, sums: Float[Tensor, "3 head query"], rows: slice
) -> Float[Tensor, " key"] | None:
    """Some of a layer's queries: writes their sums and returns what they add to the carried row."""
    ones = attention.k.new_ones(attention.k.shape[1])
    carried = None if asking is None else torch.zeros_like(ones)
    for block in blocks(attention, prefix, rows):
        if asking is not None:
            shares = rearrange(asking[block.rows] / block.sums, "head row -> head 1 row")
            carried += torch.bmm(shares, block.powers).sum(dim=(0, 1))
        if distances is not None:
            lengths = torch.matmul(block.powers.mul_(distances[block.rows]), ones)
            for total, value in zip(sums, (block.on_patches, block.on_prefix, lengths), strict=True):
                total[block.heads, block.rows] = value
    return carried


def _patch_means(sums: Float[Tensor, "3 head query"], prefix: int) -> Float[Tensor, "3 head"]:
    """Distance, renormalised distance and prefix mass: the mean over the patch queries of the sums of their rows."""
    on_patches, on_prefix, lengths = sums[..., prefix:].double()
    row_sums = on_patches + on_prefix
    renormalised = lengths / on_patches.clamp_min(torch.finfo(torch.float64).tiny)  # 0 where nothing is on patches
    return torch.stack([lengths / row_sums, renormalised, on_prefix / row_sums]).mean(dim=-1)


def _support(vector: Float[Tensor, " query"]) -> slice:
    """The queries from the first to the last whose weight is not zero: for one token, a single row."""
    asked = vector.nonzero().flatten().tolist()
    return slice(asked[0], asked[-1] + 1) if asked else slice(0, 0)
