"""Attention read in blocks, so that no N x N of a layer ever exists.

Idea: for a block of queries and heads, exp(q k^T scale + bias) is written into one buffer, made once a layer
and small enough for the cache, and left undivided. With z_i = sum_j exp(s_ij), all are weighted sums:

    distance_i = (sum_j exp(s_ij) d_ij) / z_i          v A = sum_i (v_i / z_i) exp(s_i.)

so that dividing N x N numbers becomes dividing N. Each row's maximum, which keeps exp from overflowing, is
subtracted only once the sums of a block show that it must be: for most models never.

`blocks` is for the weights themselves; the sums' loop is in `reading`. It does not show anything by itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.record.trace import Attention

# exp(s) = exp2(s LOG2_E): four times as fast where torch's exp goes through a foreign library's slow path
LOG2_E = math.log2(math.e)
# numbers in a block (2 MB): near the fastest from 197 to 2305 tokens, and few enough blocks for two cores
BLOCK = 2**19
SMALLEST, LARGEST = 1e-20, 1e30  # sums of a row between which float32 neither overflows nor loses what counts


@dataclass(frozen=True)
class Block:
    """exp(scores) of some heads and queries, rows up to a factor, and sums. The next overwrites it."""

    heads: slice
    rows: slice
    powers: Float[Tensor, "head row key"]
    sums: Float[Tensor, "head row"]

    def weights(self) -> Float[Tensor, "head row key"]:
        """The attention itself: rows divided, in place, by their sums."""
        return self.powers.div_(rearrange(self.sums, "head row -> head row 1"))


def blocks(attention: Attention, all_heads: bool = False) -> Iterator[Block]:
    """One call's attention in blocks of about `BLOCK` numbers: queries in the outer loop, heads in the inner.

    With `all_heads` every block holds all of them, for what fuses heads.
    """
    (heads, queries, _), keys = attention.q.shape, attention.k.shape[1]
    group, height = heads, max(1, min(queries, BLOCK // (heads * keys)))
    if not all_heads:
        group, height = block_shape(heads, queries, keys)
    buffer, shift = attention.q.new_empty(group, height, keys), False
    # over views of one q-k-v tensor the product costs a quarter more
    q, k = attention.q.contiguous(), attention.k.contiguous()
    for first in range(0, queries, height):
        rows = slice(first, min(first + height, queries))
        powers = buffer[:, : rows.stop - rows.start]
        for head in range(0, heads, group):
            some = slice(head, head + group)
            bias = None if attention.bias is None else attention.bias.rows(rows, some)
            while True:
                write_powers(powers, q[some, rows], k[some].mT, attention.scale, bias, shift)
                sums = powers.sum(dim=-1)
                if shift or within_range(sums):
                    break
                shift = True  # from here on in this call
            yield Block(some, rows, powers, sums)


def block_shape(heads: int, rows: int, keys: int) -> tuple[int, int]:
    """Heads (a divisor of all) and queries of a block; several heads with all queries, so in one piece."""
    height = max(1, min(rows, BLOCK // keys))
    most = max(1, BLOCK // (height * keys)) if height == rows else 1
    return max(group for group in range(1, heads + 1) if heads % group == 0 and group <= most), height


def write_powers(
    powers: Float[Tensor, "head row key"], q: Float[Tensor, "head row dim"], k: Float[Tensor, "head dim key"],
    scale: float, bias: Tensor | None, shift: bool,
) -> None:  # fmt: skip
    """exp(q k^T scale + bias), with `shift` each row divided by its largest."""
    torch.baddbmm(powers, q, k, beta=0, alpha=scale * LOG2_E, out=powers)
    if bias is not None:
        powers.add_(bias, alpha=LOG2_E)
    if shift:
        powers.sub_(powers.amax(dim=-1, keepdim=True))
    powers.exp2_()


def within_range(sums: Tensor) -> bool:
    """Whether sums of rows show that no score was too large or small to be taken to the power as it is."""
    smallest, largest = sums.aminmax()
    return smallest.item() >= SMALLEST and largest.item() <= LARGEST  # NaN is not
