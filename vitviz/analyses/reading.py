"""One pass over a layer's attention for the sums that distance, prefix mass and rollout are made of.

The formulas stand in `streaming`. Every picture pays for this first, so two things are kept out of it. The
loop over the heads holds as few operations as it can: around each of them a thread asks for Python's lock,
for which others wait. And where threads read, the one that called them does nothing large enough
for torch to share it out: its helpers would spin on for milliseconds, on the very cores that those need.

Each thread has queries of its own (`each`): spread over the cores by torch, every small operation on a block
would end with all threads waiting for the slowest, and blocks would travel between the cores' caches.

It does not show anything by itself: `distance`, `rollout` and `sweep` say what the sums mean.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vitviz.analyses.streaming import block_shape, within_range, write_powers
from vitviz.record import stopping
from vitviz.record.trace import Attention

Result = TypeVar("Result")
# numbers of attention for each thread; for fewer, handing them over costs more than it brings
WORTHWHILE = 2**20


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
    stopping.check()
    heads, queries, _ = attention.q.shape
    rows = slice(0, queries) if distances is not None or vector is None else _support(vector)
    asking = None if vector is None else vector.to(attention.q) / heads
    read = partial(_read_rows, attention, prefix, distances, asking)
    parts = each(read, rows, heads * attention.k.shape[1])
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
    group, height = block_shape(attention.heads, rows.stop - rows.start, keys)
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
