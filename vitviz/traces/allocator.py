"""Keeping freed memory, so that the next forward pass need not ask the system for every page anew.

A record of ViT-B/16 is 29 MB and its forward pass frees and takes as much again. glibc hands large pieces
back to the system at once; each page of the next then costs a fault, on a virtual machine a tenth of a pass.
"""

import ctypes
import sys

ARENA_MAX, MMAP_THRESHOLD, TOP_PAD, TRIM_THRESHOLD = -8, -3, -2, -1  # malloc.h


def keep_freed_memory(limit: int = 512 * 2**20) -> bool:
    """The process then keeps up to `limit` freed bytes; False where the system's malloc is not glibc's.

    It holds for the whole process, whose memory other libraries use too, so nothing does it unasked: the app
    does as it starts, and a notebook may, best before torch's threads begin, which keep their own pools.

    >>> keep_freed_memory()  # doctest: +SKIP
    True
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = {ARENA_MAX: 1, MMAP_THRESHOLD: 32 * 2**20, TOP_PAD: 16 * 2**20, TRIM_THRESHOLD: limit}
    return all(mallopt(which, value) for which, value in wanted.items())
