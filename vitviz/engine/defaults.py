"""Set torch's process-wide settings while vitviz computes.

The default dtype is set to float32, whatever a notebook has chosen. Much of torch, torchvision and timm reads
it where no type is named (new weights, tables of positions, the image as a tensor). A default of bfloat16
would round all of them, and a model that is declared float32 would not be float32. On CUDA, convolutions and
matrix products compute in float32, or in TF32 where the user chose that precision. These settings belong to
no thread. They are changed only where they differ, and restored when the last concurrent computation has
ended.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch


class _Setting:
    """One process-wide setting: functions to read and set it."""

    def __init__(self, read: Callable[[], Any], put: Callable[[Any], object]):
        self._read, self._put = read, put
        self._changed, self._inside = threading.Condition(), 0
        self._needed: Any = None  # value of the blocks that run now
        self._theirs: Any = None  # value to restore; None if nothing was changed
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def held(self, needed: Any) -> Iterator[None]:
        """Keep the setting at the value `needed` inside a `with` block.

        Restore the setting when the last of several concurrent blocks ends. A block that needs another value
        waits until then.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._inside == 0 or self._needed == needed)
            self._needed = needed
            if self._read() != needed:
                if self._theirs is None:
                    self._theirs = self._read()
                self._put(needed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside = max(0, self._inside - 1)  # a process forked inside starts at 0
                if self._inside == 0:
                    if self._theirs is not None and self._read() == needed:  # else other code changed it
                        self._put(self._theirs)
                    self._theirs = None
                    self._changed.notify_all()

    def _forget(self) -> None:
        """Restore the setting and renew its lock in a forked process, where other threads do not exist."""
        self._changed, self._inside = threading.Condition(), 0
        if self._theirs is not None:
            self._put(self._theirs)
            self._theirs = None


def _precision_setting(legacy: Any, *operations: Any) -> _Setting:
    """Return the setting that allows TF32 in `operations`, modules of torch.backends.

    True or False is the value of `legacy.allow_tf32`. Where a user chose precisions by torch's newer
    `fp32_precision`, reading `allow_tf32` can raise RuntimeError; the value is then the tuple of precisions.
    """
    newer = [one for one in operations if hasattr(one, "fp32_precision")]  # from torch 2.9 on

    def read() -> bool | tuple[str, ...]:
        try:
            return legacy.allow_tf32
        except RuntimeError:
            return tuple(one.fp32_precision for one in newer)

    def put(value: bool | tuple[str, ...]) -> None:
        precisions = value if isinstance(value, tuple) else ("tf32" if value else "ieee",) * len(newer)
        if not isinstance(value, tuple):
            legacy.allow_tf32 = value
        for operation, precision in zip(newer, precisions, strict=True):
            operation.fp32_precision = precision

    return _Setting(read, put)


_default_dtype = _Setting(torch.get_default_dtype, torch.set_default_dtype)
_convolutions = _precision_setting(torch.backends.cudnn, *(
    getattr(torch.backends.cudnn, name) for name in ("conv", "rnn") if hasattr(torch.backends.cudnn, name)
))  # fmt: skip
_products = _precision_setting(torch.backends.cuda.matmul, torch.backends.cuda.matmul)


def in_float32() -> AbstractContextManager[None]:
    """Return a context manager, also a decorator: tensors are float32 unless the code names another type."""
    return _default_dtype.held(torch.float32)


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Compute float32 products and convolutions on CUDA in TF32 (10 bits of 23), or not."""
    with _convolutions.held(allowed), _products.held(allowed):
        yield
