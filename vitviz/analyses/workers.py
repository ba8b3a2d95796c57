"""Queries of a layer shared out among threads that each compute alone.

Reading attention is many small operations on one block. Spread over the cores by torch, each of them would
end with all threads waiting for the slowest, and every block would travel between the cores' caches; a thread
with queries of its own meets the others once a layer.

It does not show anything by itself: `streaming` says what is read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

Result = TypeVar("Result")
WORTHWHILE = (
    2**20
)  # numbers of attention for each thread; for fewer, handing them over costs more than it brings


def each(read: Callable[[slice], Result], rows: slice, width: int) -> list[Result]:
    """`read` for parts of the rows, in their order; `width` is how many numbers a row has. Uses
    torch.get_num_threads().
    """
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
    torch.set_num_threads(
        count
    )  # a thread that torch has not met yet gets what was set last, wherever that was
    return pool


def _alone() -> None:
    torch.get_num_threads()  # lets torch meet this thread, which would else undo the next line later
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not live on in a forked process
