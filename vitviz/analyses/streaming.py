"""Attention read in blocks, so that no N x N of a layer ever exists.

Idea: for a block of queries and heads, exp(q k^T scale + bias) is written into one buffer, made once a layer
and small enough for the cache, and left undivided. With z_i = sum_j exp(s_ij), all are weighted sums:

    distance_i = (sum_j exp(s_ij) d_ij) / z_i          v A = sum_i (v_i / z_i) exp(s_i.)

so that dividing N x N numbers becomes dividing N. Each row's maximum, which keeps exp from overflowing, is
subtracted only once the sums of a block show that it must be: for most models never.

`blocks` is for the weights themselves, `read_layer` for the sums of distance, prefix mass and rollout, for
which every picture pays first. So two things are kept out of it. The loop over the heads holds as few
operations as it can: around each of them a thread asks for Python's lock, for which others wait. And where
threads read, the one that called them does nothing large enough for torch to share it out: its helpers would
spin on for milliseconds, on the very cores that those need. Each thread has queries of its own (`each`):
spread over the cores by torch, every small operation on a block would end with all threads waiting for the
slowest, and blocks would travel between the cores' caches.

It does not show anything by itself: `distance`, `rollout` and `sweep` say what the sums mean.
"""

import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Float64
from torch import Tensor

from vitviz.traces import cancellation
from vitviz.traces.trace import Attention

Result = TypeVar("Result")
# exp(s) = exp2(s LOG2_E): four times as fast where torch's exp goes through a foreign library's slow path
LOG2_E = math.log2(math.e)
# Numbers in a block. On a CPU (2 MB) near the fastest from 197 to 2305 tokens, and few enough blocks for two
# cores; elsewhere, where each operation is a launch and a block's sums a wait, mostly a whole layer (128 MB).
BLOCK, BLOCK_ELSEWHERE = 2**19, 2**25
# numbers of attention for each thread; for fewer, handing them over costs more than it brings
WORTHWHILE = 2**20
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
    group, height = heads, max(1, min(queries, _numbers(attention) // (heads * keys)))
    if not all_heads:
        group, height = block_shape(attention, queries)
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


def _numbers(attention: Attention) -> int:
    return BLOCK if attention.q.is_cpu else BLOCK_ELSEWHERE


def block_shape(attention: Attention, rows: int) -> tuple[int, int]:
    """Heads (a divisor of all) and queries of a block; several heads with all queries, so in one piece."""
    heads, keys, size = attention.heads, attention.k.shape[1], _numbers(attention)
    height = max(1, min(rows, size // keys))
    most = max(1, size // (height * keys)) if height == rows else 1
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


def each(read: Callable[[slice], Result], rows: slice, width: int) -> list[Result]:
    """`read` for parts of the rows, in order, by torch.get_num_threads(); `width`: numbers in a row."""
    count = rows.stop - rows.start
    parts = min(torch.get_num_threads(), max(1, count * width // WORTHWHILE))
    if parts < 2:
        return [read(rows)]
    edges = [rows.start + count * part // parts for part in range(parts + 1)]
    return list(_threads(torch.get_num_threads()).map(read, map(slice, edges, edges[1:])))


@lru_cache(maxsize=1)
def _threads(count: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(count, "vitviz-read", initializer=_alone)
    begun = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(begun.wait)
        begun.wait()
    except BaseException:  # Ctrl-C in the middle: threads left waiting would keep the process from ending
        begun.abort()
        pool.shutdown(wait=False)
        raise
    # a thread that torch has not met yet gets what was set last, wherever that was
    torch.set_num_threads(count)
    return pool


def _alone() -> None:
    torch.get_num_threads()  # lets torch meet this thread, which would else undo the next line later
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not live on in a forked process


@dataclass(frozen=True)
class Reading:
    """What one pass over a layer leaves: the carried row, and means over the patch queries."""

    carried: Float[Tensor, " key"] | None  # vector times the mean over heads of the attention
    distance: Float64[Tensor, " head"] | None  # px
    renormalised: Float64[Tensor, " head"] | None  # px; each row divided by its mass on patches
    prefix_mass: Float64[Tensor, " head"] | None


def read_layer(
    attention: Attention, prefix: int, distances: Float[Tensor, "query key"] | None = None,
    vector: Float[Tensor, " query"] | None = None,
) -> Reading:  # fmt: skip
    """One pass over a layer for the distances (zero at prefix tokens), the carried row vector, or both."""
    cancellation.check()
    heads, queries, _ = attention.q.shape
    rows = slice(0, queries) if distances is not None or vector is None else _support(vector)
    asking = None if vector is None else vector.to(attention.q) / heads
    read = partial(_read_rows, attention, prefix, distances, asking)
    parts = each(read, rows, heads * attention.k.shape[1]) if attention.q.is_cpu else [read(rows)]
    carried, totals = (sum(values) for values in zip(*parts, strict=True))
    means = (None, None, None) if distances is None else totals / (queries - prefix)
    return Reading(None if vector is None else carried, *means)


def _read_rows(
    attention: Attention, prefix: int, distances: Float[Tensor, "query key"] | None,
    asking: Float[Tensor, " query"] | None, rows: slice,
) -> tuple[Float[Tensor, " key"], Float64[Tensor, "3 head"]]:  # fmt: skip
    """One thread's queries, a block at a time: what they add to the carried row and to the means' totals."""
    # over a view of one q-k-v tensor the product costs a quarter more
    attention = replace(attention, k=attention.k.contiguous())
    keys = attention.k.shape[1]
    group, height = block_shape(attention, rows.stop - rows.start)
    buffer, shift = attention.k.new_empty(group, height, keys), False
    carried = attention.k.new_zeros(keys)
    totals = attention.k.new_zeros(3, attention.heads, dtype=torch.float64)
    for first in range(rows.start, rows.stop, height):
        some = slice(first, min(first + height, rows.stop))
        apart, own = (None if one is None else one[some] for one in (distances, asking))
        read = partial(_read_block, attention, prefix, apart, own, some, buffer[:, : some.stop - first])
        with np.errstate(over="ignore", invalid="ignore"):  # the sums tell
            row, sums = read(shift)
        if not (shift or within_range(sums[0] + sums[1])):
            shift = True  # from here on in this part
            row, sums = read(shift)
        carried += row
        if distances is not None:
            totals += _totals(sums[..., max(0, prefix - first) :].double())
    return carried, totals


def _read_block(
    attention: Attention, prefix: int, distances: Float[Tensor, "row key"] | None,
    asking: Float[Tensor, " row"] | None, rows: slice, powers: Float[Tensor, "group row key"], shift: bool,
) -> tuple[Float[Tensor, " key"], Float[Tensor, "3 head row"]]:  # fmt: skip
    """One group of heads after the other: the carried row; rows' sums on patches, prefix, by distance."""
    (group, count, keys), heads = powers.shape, attention.heads
    flat, ones = powers.view(-1, keys), powers.new_ones(keys)
    on_patches, on_prefix, columns = flat[:, prefix:], flat[:, :prefix], flat.mT
    of_patches, of_prefix = ones[prefix:], ones[:prefix]
    carried, sums = powers.new_zeros(keys), powers.new_empty(3, heads // group, group * count)
    asking = None if asking is None else asking.repeat(group)
    weigh = None if distances is None else _weighing(powers, distances)
    q, k = attention.q[:, rows].contiguous().split(group), attention.k.mT.split(group)
    each = zip(range(0, heads, group), q, k, *sums, strict=True)
    for first, some_q, some_k, patch_sums, prefix_sums, weighed in each:
        some = slice(first, first + group)
        bias = None if attention.bias is None else attention.bias.rows(rows, some)
        write_powers(powers, some_q, some_k, attention.scale, bias, shift)
        torch.mv(on_patches, of_patches, out=patch_sums)
        torch.mv(on_prefix, of_prefix, out=prefix_sums)
        if asking is not None:
            carried.addmv_(columns, asking / (patch_sums + prefix_sums))
        if weigh is not None:
            weigh(weighed)
    return carried, sums.view(3, heads, count)


def _weighing(
    powers: Float[Tensor, "group row key"], distances: Float[Tensor, "row key"]
) -> Callable[[Tensor], object]:
    """A function that writes every row's sum of powers times distances; the products are written nowhere."""
    if not powers.is_cpu:
        return lambda out: torch.linalg.vecdot(powers, distances, out=out.view(powers.shape[:2]))
    powers, distances = powers.numpy(), distances.numpy()  # its way takes half as long as torch's
    return lambda out: np.vecdot(powers, distances, out=out.numpy().reshape(powers.shape[:2]))


def _totals(sums: Float64[Tensor, "3 head row"]) -> Float64[Tensor, "3 head"]:
    """Distance, renormalised distance and prefix mass, summed over patch queries."""
    on_patches, on_prefix, weighed = sums
    row_sums = on_patches + on_prefix
    # 0 where nothing is on patches
    renormalised = weighed / on_patches.clamp_min(torch.finfo(torch.float64).tiny)
    return torch.stack([weighed / row_sums, renormalised, on_prefix / row_sums]).sum(dim=-1)


def _support(vector: Float[Tensor, " query"]) -> slice:
    """The queries from the first to the last whose weight is not zero: for one token, a single row."""
    asked = vector.nonzero().flatten().tolist()
    return slice(asked[0], asked[-1] + 1) if asked else slice(0, 0)
