"""A checkpoint's model on one device, in one precision, at checked input sizes."""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass, replace

import torch
from torch import nn

from vitviz.engine import cosine, memory
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.device import DTYPES, memory_guard, pick_device, pick_dtype
from vitviz.engine.forks import lock_of
from vitviz.engine.forward import capture, copies, tracing
from vitviz.engine.forward.hooks import Hooks
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces.classes import Classes
from vitviz.traces.grid import Grid, Size
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.text_classes import plain_name
from vitviz.traces.unicode import require_unicode

NOT_WHOLE = (
    "{name} has patches of {rows} x {cols} pixels, which do not divide an input of {height} x {width}. The"
    " nearest size that they divide is {tall} x {wide}."
)


@dataclass(frozen=True)
class MemoryDemand:
    """Tokens, operations and memory of one image."""

    tokens: int
    operations: int  # multiplications of a pass
    nbytes: int  # memory of the trace and of the pass


def demand_of(model: nn.Module, grid: Grid, size: tuple[int, int]) -> MemoryDemand:
    """Return the demand at a size; `grid` may have any size, so no model is built."""
    tokens = (size[0] // grid.patch[0]) * (size[1] // grid.patch[1]) + grid.prefix
    shape = tokens, model.embed_dim, len(capture.transformer_blocks(model))
    return MemoryDemand(tokens, memory.operations_of_a_picture(*shape), memory.bytes_of_a_picture(*shape))


def requested_size(size: int | tuple[int, int] | None, default: tuple[int, int]) -> tuple[int, int]:
    """Return `size` as (height, width), `default` for None; raise VitvizError for an invalid size."""
    if size is None:
        return default
    try:
        height, width = map(operator.index, size if isinstance(size, tuple | list) else (size, size))
    except (TypeError, ValueError):
        raise VitvizError(
            f"size={quoted(size)} is not valid; expected the input's pixels, a number or (height, width),"
            f" such as {default}."
        ) from None
    return height, width


def require_size(size: Size, grid: Grid, model: nn.Module, device: torch.device, name: str) -> None:
    """Raise VitvizError, with the nearest valid size, if patches do not divide an input size.

    Raises OutOfMemory for a size that does not fit into memory.
    """
    (height, width), (rows, cols) = size, grid.patch
    if height < rows or width < cols or height % rows or width % cols:
        near = tuple(max(p, round(s / p) * p) for s, p in ((height, rows), (width, cols)))
        details = {"name": name, "rows": rows, "cols": cols, "height": height, "width": width}
        raise VitvizError(LocalizedText(NOT_WHOLE, **details, tall=near[0], wide=near[1]))
    demand = demand_of(model, grid, size)
    what = f"An input of {height} x {width} pixels, {demand.tokens} tokens for {name},"
    memory.require_memory(demand.nbytes, device, what)


class PlacedModel:
    """One checkpoint on one device, and its variants for other input sizes, which share its weights.

    Can be pickled and copied, without locks, hooks and other state of one process or device.
    """

    def __init__(self, loaded: Loaded, device: str = "auto", dtype: str = "float32"):
        self.checkpoint: Checkpoint = loaded.checkpoint
        self.preprocessing = loaded.preprocessing
        self.labels = tuple(require_unicode(label, "the label") for label in loaded.labels)
        self.head_type = loaded.head_type
        require_unicode(self.checkpoint.name, "the checkpoint's name")
        self.classes: Classes | None = None  # replace the model's own classes
        self.device = pick_device(device)
        self.dtype = str(dtype).removeprefix("torch.")
        with memory_guard(self.device, f"Loading {self.checkpoint.name}"):
            kind = pick_dtype(dtype, self.device)
            in_full = self.dtype == "float32"
            loaded.model.float()  # torch's default may have been another type when the model was built
            if in_full:
                self.model = loaded.model.to(self.device).eval()
            else:
                self.model = copies.placed_copy(loaded.model, self.device, kind)
        # in float32 on the CPU; dropped after the first image has been compared
        self.exact = None if in_full else loaded.model
        self.hooks = Hooks()
        capture.transformer_blocks(self.model)
        self.sizes = self._built(self.model)
        self.lock = lock_of(self, "lock")  # guards `sizes`; never held during a pass

    def grid(self, size: tuple[int, int] | None = None) -> Grid:
        """Return the patch grid at the checkpoint's own input size, or at another (height, width)."""
        return tracing.grid_of(self.sized(size))

    def on(self, device: str) -> PlacedModel:
        """Return a copy on another device, with its own lock and without hooks; this one stays unchanged."""
        there = copy.copy(self)
        there.device = pick_device(device)
        with memory_guard(there.device, f"Moving {self.checkpoint.name}"):
            there.model = copies.placed_copy(self.model, there.device, DTYPES[self.dtype])
        there.sizes = self._built(there.model)
        return there

    def with_classes(self, classes: Classes) -> PlacedModel:
        """Return a copy with given classes instead of its own; all weights are shared."""
        twin = copy.copy(self)
        name = plain_name(self.checkpoint.name)
        twin.checkpoint, tokens = replace(self.checkpoint, name=name), tracing.grid_of(twin.model).tokens
        with memory_guard(self.device, f"Setting the classes of {name}"):
            cosine.install_classes(twin.model, classes, name, tokens)
        twin.classes, twin.labels = classes, classes.labels
        return twin

    def __getstate__(self) -> dict:
        """Return the state without anything that belongs to one process or one device."""
        model = copies.copy_sharing_weights(self.model)  # without changes by passes that are running
        here = {"model": model, "sizes": self._built(model), "exact": None}
        return {**vars(self), **here, "lock": None, "hooks": None}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state, lock=lock_of(self, "lock"), hooks=Hooks())

    def _built(self, model: nn.Module) -> dict[tuple[int, int], nn.Module]:
        """Return {original size: model}; all other sizes are resized from its trained tables."""
        return {copies.size_of(model, self.preprocessing.size): model}

    def size(self, requested: int | tuple[int, int] | None) -> tuple[int, int]:
        """Return the requested (height, width), the checkpoint's for None; raise VitvizError if invalid."""
        pixels = requested_size(requested, self.preprocessing.size)
        if pixels != self.preprocessing.size:  # the own size is valid even if patches do not divide it
            require_size(pixels, self.grid(), self.model, self.device, self.checkpoint.name)
        return pixels

    def sized(self, requested: int | tuple[int, int] | None) -> nn.Module:
        """Return the model at the requested input size; raise VitvizError if the size does not fit."""
        return self.at(self.size(requested))

    def at(self, size: tuple[int, int]) -> nn.Module:
        """Return the model at an input size.

        Variants share every weight but the interpolated position embedding.
        """
        model = self.sizes.get(size)  # no lock: an existing size need not wait for a new one
        if model is not None:
            return model
        with self.lock:
            if size not in self.sizes:
                if not hasattr(self.model, "set_input_size"):
                    raise UnsupportedModel(
                        f"{self.checkpoint.name} has a fixed input of {self.preprocessing.size[0]} x"
                        f" {self.preprocessing.size[1]} pixels."
                    )
                if len(self.sizes) > 3:  # keep the own size, the original one and the last few
                    sizes = (self.preprocessing.size, *self._built(self.model))
                    self.sizes.pop(next(key for key in self.sizes if key not in sizes))
                self.sizes[size] = copies.resized_copy(self.model, size)
            return self.sizes[size]
