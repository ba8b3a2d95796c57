"""What torch has one of for the whole process, as vitviz needs it while it computes.

The default dtype is float32, whatever a notebook has set: much of torch, torchvision and timm asks for it
where no type is named (new weights, tables of positions, the picture as a tensor). A default of bfloat16
rounds them all, and a model that calls itself float32 would not be. On CUDA, convolutions are of whole
numbers and not of TF32. As these belong to no thread, they are changed only where they are another, and set
back when the last of those that compute at once has done.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class _Setting:
    """One of them: how it is read and set, and what is needed."""

    def __init__(self, read: Callable[[], Any], put: Callable[[Any], object], needed: Any):
        self._read, self._put, self._needed = read, put, needed
        self._lock, self._inside = threading.Lock(), 0
        self._theirs: Any = None  # what is to be set back; None where it was as needed already
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if self._read() != self._needed:
                self._theirs = self._read()
                self._put(self._needed)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside = max(0, self._inside - 1)  # a process forked inside begins from nothing
                if self._inside == 0 and self._theirs is not None:
                    if self._read() == self._needed:  # else somebody has chosen anew meanwhile
                        self._put(self._theirs)
                    self._theirs = None

    def _forget(self) -> None:
        """In a forked process: those who were inside, or held the lock, do not exist there."""
        self._lock, self._inside = threading.Lock(), 0
        if self._theirs is not None:
            self._put(self._theirs)
            self._theirs = None


# Everything inside is built and computed in float32 unless it names another type; also a decorator.
in_float32 = _Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32).held
whole_convolutions = _Setting(
    lambda: torch.backends.cudnn.allow_tf32,
    lambda allowed: setattr(torch.backends.cudnn, "allow_tf32", allowed),
    False,
).held
