"""Attention read in blocks, so that no N x N matrix of a layer ever exists.

For a block of queries and heads, exp(q k^T scale + bias) is written into one buffer, which is allocated once
per layer, fits into the cache, and is left undivided. With z_i = sum_j exp(s_ij), all results are weighted
sums:

    distance_i = (sum_j exp(s_ij) d_ij) / z_i          v A = sum_i (v_i / z_i) exp(s_i.)

so N divisions replace N x N. Each row's maximum, which prevents an overflow of exp, is subtracted only if the
sums of a block show that it must be: for most models never.

`blocks` yields the weights themselves. `read_layer` computes the sums of distance, prefix mass and rollout,
whose cost every image pays first. Two measures keep it fast. The loop over the heads has as few operations as
possible, because each operation acquires Python's lock, for which other threads wait. While threads read, the
calling thread runs nothing large enough for torch to parallelise: torch's helper threads would spin for
milliseconds on the cores that the readers need. Each thread has its own queries (`each`): if torch spread
every small operation over the cores, each would end with all threads waiting for the slowest, and blocks
would travel between the cores' caches.

On other devices every operation is a launch and every number read a synchronisation. There a block is the
softmax of a whole layer, or of some images of a batch, and no number is read before the results.

It does not show anything by itself: `distance`, `rollout` and `sweep` interpret the sums.
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
from vitviz.traces.trace import Attention, select_images

Result = TypeVar("Result")
# exp(s) = exp2(s LOG2_E): four times as fast where torch's exp uses a slow path of another library
LOG2_E = math.log2(math.e)
# Numbers in a block. On a CPU 2 MB is close to the fastest from 197 to 2305 tokens, with few enough blocks
# for two cores. On other devices each operation is a launch, so a block is mostly a whole layer (128 MB).
BLOCK, BLOCK_ELSEWHERE = 2**19, 2**25
# numbers of attention per thread; below, handing them over costs more than it saves
WORTHWHILE = 2**20
# between these sums of a row, float32 neither overflows nor loses significant terms
SMALLEST, LARGEST = 1e-20, 1e30


@dataclass(frozen=True)
class Block:
    """exp(scores) of some heads and queries, up to a factor per row, and the row sums.

    The next block overwrites the buffer.
    """

    heads: slice
    rows: slice
    powers: Float[Tensor, "*image head row key"]
    sums: Float[Tensor, "*image head row"]

    def weights(self) -> Float[Tensor, "*image head row key"]:
        """Return the attention: rows divided, in place, by their sums."""
        return self.powers.div_(self.sums.unsqueeze(-1)) if self.powers.is_cpu else self.powers


def blocks(attention: Attention, all_heads: bool = False) -> Iterator[Block]:
    """Yield one call's attention as `Block`s of about `BLOCK` numbers; the inner loop is over heads.

    With `all_heads` every block holds all heads, for analyses that fuse heads. On another device than a CPU
    the attention may have an image axis.
    """
    (heads, queries, _), keys = attention.q.shape[-3:], attention.k.shape[-2]
    if not attention.q.is_cpu:
        ones = attention.q.new_ones(()).expand(attention.q.shape[:-1])
        for rows in row_blocks(attention, slice(0, queries)):
            yield Block(slice(0, heads), rows, attention.weights(rows), ones[..., rows])
        return
    group, height = heads, max(1, min(queries, BLOCK // (heads * keys)))
    if not all_heads:
        group, height = block_shape(attention, queries)
    buffer, shift = attention.q.new_empty(group, height, keys), False
    # on views of one q-k-v tensor the product is a quarter slower
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
                if shift or scores_in_range(sums):
                    break
                shift = True  # for the rest of this call
            yield Block(some, rows, powers, sums)


def block_shape(attention: Attention, rows: int) -> tuple[int, int]:
    """Return the number of heads (a divisor of all) and the number of queries in a block.

    A block has several heads only if it has all queries, so that it is contiguous.
    """
    heads, keys = attention.heads, attention.k.shape[1]
    height = max(1, min(rows, BLOCK // keys))
    most = max(1, BLOCK // (height * keys)) if height == rows else 1
    return max(group for group in range(1, heads + 1) if heads % group == 0 and group <= most), height


def write_powers(
    powers: Float[Tensor, "head row key"], q: Float[Tensor, "head row dim"], k: Float[Tensor, "head dim key"],
    scale: float, bias: Tensor | None, shift: bool,
) -> None:  # fmt: skip
    """Write exp(q k^T scale + bias) into `powers`; with `shift`, each row is divided by its maximum."""
    torch.baddbmm(powers, q, k, beta=0, alpha=scale * LOG2_E, out=powers)
    if bias is not None:
        powers.add_(bias, alpha=LOG2_E)
    if shift:
        powers.sub_(powers.amax(dim=-1, keepdim=True))
    powers.exp2_()


def scores_in_range(sums: Tensor) -> bool:
    """Return True if the rows' sums show that no score was too large or small for exp without a shift."""
    smallest, largest = sums.aminmax()
    return smallest.item() >= SMALLEST and largest.item() <= LARGEST  # false for NaN


def map_row_parts(read: Callable[[slice], Result], rows: slice, width: int) -> list[Result]:
    """Return the result of `read` for each part of `rows`, in order; the parts are computed by threads.

    There are torch.get_num_threads() threads. `width` is the number of values in a row.
    """
    count = rows.stop - rows.start
    parts = min(torch.get_num_threads(), max(1, count * width // WORTHWHILE))
    if parts < 2:
        return [read(rows)]
    edges = [rows.start + count * part // parts for part in range(parts + 1)]
    return list(_threads(torch.get_num_threads()).map(read, map(slice, edges, edges[1:])))


@lru_cache(maxsize=1)
def _threads(count: int) -> ThreadPoolExecutor:
    """Start `count` threads and return their pool, cached; torch uses one thread in each of them.

    Torch's thread count elsewhere is set to `count` again.
    """
    pool = ThreadPoolExecutor(count, "vitviz-read", initializer=_alone)
    begun = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(begun.wait)
        begun.wait()
    except BaseException:  # after Ctrl-C, waiting threads would keep the process from ending
        begun.abort()
        pool.shutdown(wait=False)
        raise
    # torch gives a new thread the thread count that was set last, in any thread
    torch.set_num_threads(count)
    return pool


def _alone() -> None:
    """Limit torch to one thread in the calling pool thread; run once when that thread starts."""
    # registers this thread with torch, which would otherwise undo the next line later
    torch.get_num_threads()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not survive a fork


@dataclass(frozen=True)
class Reading:
    """Results of one pass over a layer: the carried row, and means over the patch queries."""

    carried: Float[Tensor, " key"] | None  # vector times the mean over heads of the attention
    distance: Float64[Tensor, " head"] | None  # px
    renormalised: Float64[Tensor, " head"] | None  # px; each row divided by its mass on patches
    prefix_mass: Float64[Tensor, " head"] | None


def read_layer(
    attention: Attention, prefix: int, distances: Float[Tensor, "query key"] | None = None,
    vector: Float[Tensor, " query"] | None = None,
) -> Reading:  # fmt: skip
    """Read a layer once; return its mean attention distances, `vector` times its attention, or both."""
    cancellation.check()
    heads, queries, _ = attention.q.shape
    rows = slice(0, queries) if distances is not None or vector is None else _nonzero_range(vector)
    vector = None if vector is None else vector.to(attention.q) / heads
    if not attention.q.is_cpu:
        columns = None if distances is None else sum_columns(prefix, distances)
        sums, carried = row_sums(attention, columns, rows, vector)
        carried = attention.k.new_zeros(attention.k.shape[1]) if carried is None else carried
        totals = None if sums is None else distance_totals(sums[:, prefix:])
    else:
        read = partial(_read_rows, attention, prefix, distances, vector)
        parts = map_row_parts(read, rows, heads * attention.k.shape[1])
        carried, totals = (sum(values) for values in zip(*parts, strict=True))
    means = (None, None, None) if distances is None else totals / (queries - prefix)
    return Reading(None if vector is None else carried, *means)


def by_images(read: Callable[[Attention], Tensor], attention: Attention) -> Tensor:
    """Return `read(attention)`; for a batch, the results of its images joined along a first image axis.

    On a CPU `read` is called for each image, without the axis; elsewhere for as many as make up a block.
    """
    if attention.q.ndim == 3:
        return read(attention)
    count, each_image = len(attention.q), attention.q[0, ..., 0].numel() * attention.k.shape[-2]
    if attention.q.is_cpu:
        return torch.stack([read(select_images(attention, image)) for image in range(count)])
    group = max(1, BLOCK_ELSEWHERE // each_image)
    parts = [read(select_images(attention, slice(first, first + group))) for first in range(0, count, group)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def sum_columns(prefix: int, distances: Float[Tensor, "query key"]) -> Float[Tensor, "query key 3"]:
    """Return the weights of each key in `row_sums`: 1 for patches, 1 for the prefix, and the distance."""
    columns = torch.stack([torch.ones_like(distances), torch.zeros_like(distances), distances], dim=-1)
    columns[:, :prefix, 0], columns[:, :prefix, 1] = 0, 1
    return columns


def row_sums(
    attention: Attention, columns: Float[Tensor, "query key sum"] | None, rows: slice = slice(None),
    vector: Float[Tensor, " query"] | None = None, entropy: bool = False,
) -> tuple[Float[Tensor, "*image head row total"] | None, Float[Tensor, "*image key"] | None]:  # fmt: skip
    """Return the rows' sums weighted by `columns`, and `vector` times the attention; not on a CPU.

    No number is read. All sums of a query, over all images and heads, are one matrix product. With `entropy`
    the last sum is each row's entropy.
    """
    sums, carried = [], []
    for some in row_blocks(attention, slice(*rows.indices(attention.q.shape[-2])[:2])):
        weights = attention.weights(some)
        if vector is not None:
            carried.append((vector[some] @ weights).sum(dim=-2))
        if columns is not None:
            weights = weights.flatten(0, -3)
            by_query = rearrange(weights, "head row key -> row head key")
            result = rearrange(by_query @ columns[some], "row head sum -> head row sum")
            if entropy:
                own = torch.special.entr(weights).sum(dim=-1, keepdim=True, dtype=torch.float64)
                result = torch.cat([result, own], dim=-1)
            sums.append(result)
    whole = torch.cat(sums, dim=1) if len(sums) > 1 else sums[0] if sums else None
    whole = None if whole is None else whole.unflatten(0, attention.q.shape[:-2])
    return whole, sum(carried) if carried else None


def row_blocks(attention: Attention, rows: slice) -> Iterator[slice]:
    """Yield parts of `rows` whose attention, of all heads and images, is about `BLOCK_ELSEWHERE` numbers."""
    height = max(1, BLOCK_ELSEWHERE // (attention.q[..., 0, 0].numel() * attention.k.shape[-2]))
    for first in range(rows.start, rows.stop, height):
        yield slice(first, min(first + height, rows.stop))


def _read_rows(
    attention: Attention, prefix: int, distances: Float[Tensor, "query key"] | None,
    vector: Float[Tensor, " query"] | None, rows: slice,
) -> tuple[Float[Tensor, " key"], Float64[Tensor, "3 head"]]:  # fmt: skip
    """Return the carried row and the totals of the means over `rows`, which one thread reads."""
    # on a view of one q-k-v tensor the product is a quarter slower
    attention = replace(attention, k=attention.k.contiguous())
    keys = attention.k.shape[1]
    group, height = block_shape(attention, rows.stop - rows.start)
    buffer, shift = attention.k.new_empty(group, height, keys), False
    carried = attention.k.new_zeros(keys)
    totals = attention.k.new_zeros(3, attention.heads, dtype=torch.float64)
    for first in range(rows.start, rows.stop, height):
        some = slice(first, min(first + height, rows.stop))
        apart, own = (None if one is None else one[some] for one in (distances, vector))
        read = partial(_read_block, attention, prefix, apart, own, some, buffer[:, : some.stop - first])
        with np.errstate(over="ignore", invalid="ignore"):  # the sums reveal an overflow
            row, sums = read(shift)
        if not (shift or scores_in_range(sums[0] + sums[1])):
            shift = True  # for the rest of this part
            row, sums = read(shift)
        carried += row
        if distances is not None:
            totals += distance_totals(sums[..., max(0, prefix - first) :].movedim(0, -1))
    return carried, totals


def _read_block(
    attention: Attention, prefix: int, distances: Float[Tensor, "row key"] | None,
    vector: Float[Tensor, " row"] | None, rows: slice, powers: Float[Tensor, "group row key"], shift: bool,
) -> tuple[Float[Tensor, " key"], Float[Tensor, "3 head row"]]:  # fmt: skip
    """Return the carried row, and the rows' sums on patches, on the prefix, and weighted by distance."""
    (group, count, keys), heads = powers.shape, attention.heads
    flat, ones = powers.view(-1, keys), powers.new_ones(keys)
    on_patches, on_prefix, columns = flat[:, prefix:], flat[:, :prefix], flat.mT
    of_patches, of_prefix = ones[prefix:], ones[:prefix]
    carried, sums = powers.new_zeros(keys), powers.new_empty(3, heads // group, group * count)
    vector = None if vector is None else vector.repeat(group)
    weigh = None if distances is None else _weighing(powers, distances)
    q, k = attention.q[:, rows].contiguous().split(group), attention.k.mT.split(group)
    each = zip(range(0, heads, group), q, k, *sums, strict=True)
    for first, some_q, some_k, patch_sums, prefix_sums, weighed in each:
        some = slice(first, first + group)
        bias = None if attention.bias is None else attention.bias.rows(rows, some)
        write_powers(powers, some_q, some_k, attention.scale, bias, shift)
        torch.mv(on_patches, of_patches, out=patch_sums)
        torch.mv(on_prefix, of_prefix, out=prefix_sums)
        if vector is not None:
            carried.addmv_(columns, vector / (patch_sums + prefix_sums))
        if weigh is not None:
            weigh(weighed)
    return carried, sums.view(3, heads, count)


def _weighing(
    powers: Float[Tensor, "group row key"], distances: Float[Tensor, "row key"]
) -> Callable[[Tensor], object]:
    """Return a function that writes each row's sum of powers times distances without storing products."""
    powers, distances = powers.numpy(), distances.numpy()  # NumPy's vecdot takes half as long as torch's
    return lambda out: np.vecdot(powers, distances, out=out.numpy().reshape(powers.shape[:2]))


def distance_totals(sums: Float[Tensor, "*axes row sum"]) -> Float64[Tensor, " sum *axes"]:
    """Return distance, renormalised distance and prefix mass summed over queries, from `row_sums` of each."""
    on_patches, on_prefix, weighed = sums.double().unbind(-1)
    row_sums = on_patches + on_prefix
    # 0 where no attention is on patches
    renormalised = weighed / on_patches.clamp_min(torch.finfo(torch.float64).tiny)
    return torch.stack([weighed / row_sums, renormalised, on_prefix / row_sums]).sum(dim=-1)


def _nonzero_range(vector: Float[Tensor, " query"]) -> slice:
    """Return the queries from the first to the last of non-zero weight; for one token, a single row."""
    asked = vector.nonzero().flatten().tolist()
    return slice(asked[0], asked[-1] + 1) if asked else slice(0, 0)
