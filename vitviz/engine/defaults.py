"""torch's default dtype while vitviz computes: float32, whatever a notebook has set.

Much of torch, torchvision and timm asks for the default where no type is named: new weights, tables of
positions, the picture as a tensor. A default of bfloat16 rounds them all, and a model that calls itself
float32 would not be. The default belongs to the whole process, not to a thread, so it is changed only where
it is another, and set back when the last of those that compute at once has done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_inside = 0
_theirs: torch.dtype | None = None  # the default to set back; None where it was float32 already


@contextmanager
def in_float32() -> Iterator[None]:
    """Everything inside is built and computed in float32 unless it names another type; also a decorator.

    >>> with in_float32():
    ...     torch.zeros(1).dtype
    torch.float32
    """
    global _inside, _theirs
    with _lock:
        if torch.get_default_dtype() != torch.float32:
            _theirs = torch.get_default_dtype()
            torch.set_default_dtype(torch.float32)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside = max(0, _inside - 1)  # a process forked inside begins from nothing
            if _inside == 0 and _theirs is not None:
                if torch.get_default_dtype() == torch.float32:  # else somebody has chosen anew meanwhile
                    torch.set_default_dtype(_theirs)
                _theirs = None


def _forget() -> None:
    """In a forked process: those who were inside, or held the lock, do not exist there."""
    global _lock, _inside, _theirs
    _lock, _inside = threading.Lock(), 0
    if _theirs is not None:
        torch.set_default_dtype(_theirs)
        _theirs = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
