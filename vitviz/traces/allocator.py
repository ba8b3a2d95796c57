"""Keep freed memory in the process, so that the next forward pass reuses it.

A trace of ViT-B/16 is 29 MB, and its forward pass frees and allocates as much again. glibc returns large
blocks to the system at once. Each page of the next block then costs a page fault; on a virtual machine this
adds up to a tenth of a pass.
"""

import ctypes
import sys

ARENA_MAX, MMAP_THRESHOLD, TOP_PAD, TRIM_THRESHOLD = -8, -3, -2, -1  # malloc.h


def keep_freed_memory(limit: int = 512 * 2**20) -> bool:
    """Let the process keep up to `limit` freed bytes; return False if the system's malloc is not glibc's.

    The setting affects the whole process, other libraries included, so nothing sets it unasked. The app calls
    this function when it starts. A notebook may call it too, best before torch starts its threads, which keep
    pools of their own.

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
