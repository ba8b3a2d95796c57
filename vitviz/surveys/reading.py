"""Pictures read and decoded by threads ahead of the model, in order, a bounded number at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T, U = TypeVar("T"), TypeVar("U")


def ahead(things: Iterable[T], make: Callable[[T], U], depth: int, threads: int | None = None) -> Iterator[U]:
    """`make` of each thing in order, up to `depth` of them made before they are asked for; what it raises is
    raised.

    >>> list(ahead([1, 2, 3], lambda number: number * 10, depth=2))
    [10, 20, 30]
    """
    # Decoding leaves Python's lock, but every thread takes its time from the model: two are enough to stay
    # ahead.
    pool = ThreadPoolExecutor(threads or min(2, os.cpu_count() or 1), thread_name_prefix="vitviz-reading")
    waiting: deque[Future[U]] = deque()
    try:
        for thing in things:
            waiting.append(pool.submit(make, thing))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


__all__ = ["ahead"]
