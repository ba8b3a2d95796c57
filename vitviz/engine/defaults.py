"""Set torch's process-wide settings while vitviz computes.

The default dtype is set to float32, whatever a notebook has chosen. Much of torch, torchvision and timm reads
it where no type is named (new weights, tables of positions, the image as a tensor). A default of bfloat16
would round all of them, and a model that is declared float32 would not be float32. On CUDA, convolutions
compute in float32 and not in TF32. These settings belong to no thread. They are changed only where they
differ, and restored when the last concurrent computation has ended.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class _Setting:
    """One process-wide setting: functions to read and set it, and the required value."""

    def __init__(self, read: Callable[[], Any], put: Callable[[Any], object], needed: Any):
        self._read, self._put, self._needed = read, put, needed
        self._lock, self._inside = threading.Lock(), 0
        self._theirs: Any = None  # value to restore; None if nothing was changed
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the setting at the required value inside a `with` block.

        Restore it when the last of several concurrent blocks ends.
        """
        with self._lock:
            if self._read() != self._needed:
                self._theirs = self._read()
                self._put(self._needed)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside = max(0, self._inside - 1)  # a process forked inside starts at 0
                if self._inside == 0 and self._theirs is not None:
                    if self._read() == self._needed:  # otherwise other code has changed it meanwhile
                        self._put(self._theirs)
                    self._theirs = None

    def _forget(self) -> None:
        """Reset in a forked process: threads that used the setting or held the lock do not exist there."""
        self._lock, self._inside = threading.Lock(), 0
        if self._theirs is not None:
            self._put(self._theirs)
            self._theirs = None


# Context manager and decorator: tensors are float32 unless the code names another type.
in_float32 = _Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32).held
whole_convolutions = _Setting(
    lambda: torch.backends.cudnn.allow_tf32,
    lambda allowed: setattr(torch.backends.cudnn, "allow_tf32", allowed),
    False,
).held
