"""A checkpoint's model where it stands: on one device, in one precision, at its input sizes."""

from __future__ import annotations

import copy
import threading
from typing import TypeVar

import torch
from torch import nn

from vitviz.engine import inputs
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.device import DTYPES, memory_guard, pick_device, pick_dtype
from vitviz.engine.forks import renew_lock_of
from vitviz.engine.passes import capture, copies, record
from vitviz.engine.passes.hooks import Hooks
from vitviz.errors import UnsupportedModel
from vitviz.grid import Grid
from vitviz.trace import Deviation

Here = TypeVar("Here", bound="Placed")


class Placed:
    """One checkpoint on one device, and its variants for other input sizes, which share its weights.

    It can be pickled; what belongs to one process or one device is not taken along.
    """

    def __init__(self, loaded: Loaded, device: str = "auto", dtype: str = "float32"):
        self.checkpoint: Checkpoint = loaded.checkpoint
        self.preprocessing = loaded.preprocessing
        self.labels = loaded.labels
        self.device = pick_device(device)
        self.dtype = dtype
        self.deviation: Deviation | None = None  # from float32, once the first picture has been seen
        self._lock = threading.RLock()  # of the variants for other sizes; never held during a pass
        self._comparing = threading.RLock()  # of `deviation`
        self._truthful: set[tuple[int, int]] = set()  # sizes at which the capture has been checked
        self._leaving: set[tuple[int, int]] = set()  # those at which patches were seen left out truthfully
        with memory_guard(self.device, f"Loading {self.checkpoint.name}"):
            kind = pick_dtype(dtype, self.device)
            in_full = kind == torch.float32
            loaded.model.float()  # whatever torch's default was when it was built
            if in_full:
                self.model = loaded.model.to(self.device).eval()
            else:
                self.model = copies.placed(loaded.model, self.device, kind)
        # In float32 on the CPU, until the first picture has been compared.
        self._exact = None if in_full else loaded.model
        self._hooks = Hooks()
        capture.transformer_blocks(self.model)
        self._sizes: dict[tuple[int, int], nn.Module] = {self.preprocessing.size: self.model}
        renew_lock_of(self, "_lock", "_comparing")

    def grid(self, size: tuple[int, int] | None = None) -> Grid:
        """The patch grid at the checkpoint's own input size, or at another (height, width)."""
        return record.grid_of(self._at(self._size(size)))

    def on(self: Here, device: str) -> Here:
        """A twin on another device, with its own lock and without hooks; this one stays where it is.

        A twin in bfloat16 knows its distance from float32 if this one does.
        """
        twin = copy.copy(self)
        twin.device = pick_device(device)
        with memory_guard(twin.device, f"Moving {self.checkpoint.name}"):
            twin.model = copies.placed(self.model, twin.device, DTYPES[self.dtype])
        twin._sizes = {self.preprocessing.size: twin.model}
        return twin

    def __getstate__(self) -> dict:
        """All but what belongs to one process or one device."""
        model = copies.lending(self.model)  # without what stands there for passes that run just now
        here = {
            "model": model,
            "_sizes": {self.preprocessing.size: model},
            "_exact": None,
            "_truthful": set(),
            "_leaving": set(),
        }
        here |= {"_lock": None, "_comparing": None, "_hooks": None}
        return {name: value for name, value in {**vars(self), **here}.items() if name != "elsewhere"}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(
            state,
            _lock=threading.RLock(),
            _comparing=threading.RLock(),
            _hooks=Hooks(),
        )
        renew_lock_of(self, "_lock", "_comparing")

    def _size(self, size: int | tuple[int, int] | None) -> tuple[int, int]:
        found = inputs.asked_size(size, self.preprocessing.size)
        if found != self.preprocessing.size:  # its own is one whether the patch divides it or not
            inputs.require_size(found, self.grid(), self.model, self.device, self.checkpoint.name)
        return found

    def _at(self, size: tuple[int, int]) -> nn.Module:
        """The model at an input size; variants share every weight but the interpolated position embedding."""
        found = self._sizes.get(size)  # a size that is there does not wait for one that is being made
        if found is not None:
            return found
        with self._lock:
            if size not in self._sizes:
                if not hasattr(self.model, "set_input_size"):
                    raise UnsupportedModel(
                        f"{self.checkpoint.name} has a fixed input of {self.preprocessing.size[0]} x"
                        f" {self.preprocessing.size[1]} pixels."
                    )
                if len(self._sizes) > 3:  # the own size and the last few are kept
                    self._sizes.pop(next(key for key in self._sizes if key != self.preprocessing.size))
                self._sizes[size] = copies.sized(self.model, size)
            return self._sizes[size]
