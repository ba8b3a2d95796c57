"""Run and record the forward passes of one checkpoint on one device.

A pass runs at an input size and is recorded by `forward.capture`. The result is refused if the recorded
attention is not the attention that the model used. `vitviz.engine.inspector` is the public interface.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor, nn

from vitviz.engine import readouts
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import DTYPES, device_name, inference_context, memory_guard, synchronise
from vitviz.engine.forks import lock_of
from vitviz.engine.forward import capture, copies, edits, own_pass, precision, shuffling, tracing
from vitviz.engine.forward.mean_ablation import MeanOutputCache
from vitviz.engine.forward.own_model import OwnModel, require_known
from vitviz.engine.forward.recording import TOLERANCE, Recording, check_plain, check_truth
from vitviz.engine.images.preprocess import Prepared, normalised, open_for, prepare
from vitviz.engine.placement import PlacedModel
from vitviz.errors import VitvizError, quoted
from vitviz.traces.classes import Classes
from vitviz.traces.grid import Size
from vitviz.traces.readout import Readout
from vitviz.traces.trace import Attention, Deviation, ModelInput, Trace, TraceBatch, select_images

ModelChange = Callable[[nn.Module], nn.Module]


class ForwardRunner:
    """Forward passes of one placed checkpoint. Thread-safe: passes of several threads run concurrently.

    `elsewhere(forward, prepared, size)`, where set, is called for traces first: another process may lend its
    device. None from it means that the pass is run here.
    """

    elsewhere: Callable[[ForwardRunner, list[Prepared], tuple[int, int]], TraceBatch | None] | None = None

    def __init__(self, placed: PlacedModel, deviation: Deviation | None = None):
        self.placed = placed
        self.deviation = deviation  # from float32; measured on the first image
        self.references = MeanOutputCache()  # replacements of ablated heads and MLPs
        self.truthful: set[tuple[int, int]] = set()  # sizes at which the capture has been checked
        self.leaving: set[tuple[int, int]] = set()  # sizes at which patch removal has been checked
        self._comparing = lock_of(self, "_comparing")  # guards `deviation`

    def __reduce__(self) -> tuple:
        return ForwardRunner, (self.placed, self.deviation)

    def on(self, device: str) -> ForwardRunner:
        """Return a copy on another device, with the measured deviation from float32."""
        return ForwardRunner(self.placed.on(device), self.deviation)

    def with_classes(self, classes: Classes) -> ForwardRunner:
        """Return passes with given classes instead of the model's own; caches and checks are shared."""
        twin = ForwardRunner(self.placed.with_classes(classes))
        twin.references, twin.truthful, twin.leaving = self.references, self.truthful, self.leaving
        return twin

    def traces(
        self, prepared: list[Prepared], size: tuple[int, int], keep_on_device=False,
        change: ModelChange | None = None, edit: edits.Edit | None = None,
    ) -> list[Trace]:  # fmt: skip
        """Run one pass as `batch` and return the trace of each image."""
        return list(self.batch(prepared, size, keep_on_device, change, edit))

    def batch(
        self, prepared: list[Prepared], size: tuple[int, int], keep_on_device=False,
        change: ModelChange | None = None, edit: edits.Edit | None = None,
    ) -> TraceBatch:  # fmt: skip
        """Run one pass on prepared images at an input size (height, width) and return their traces.

        Traces are on the CPU, or with `keep_on_device` on the model's device. `change` returns a variant of
        the model for an experiment; `edit` is an intervention in this pass.
        """
        hooked, plain = self.placed.hooks.changes(), change is None and edit is None
        batch = self.elsewhere(self, prepared, size) if self.elsewhere is not None and plain else None
        if batch is None:
            batch, finite = self._record(prepared, size, keep_on_device, change, hooked, edit)
            self.require_finite(finite)
        if plain and not hooked:
            self._compare(batch, prepared[0], size)
        return replace(batch, deviation=self.deviation) if self.deviation else batch

    def launch(
        self, prepared: list[Prepared], size: tuple[int, int], stacked: Tensor | None = None
    ) -> tuple[TraceBatch, Tensor]:
        """Begin the pass of `batch` with `keep_on_device`, without waiting for its numbers.

        `stacked` are the images as `stack` returns them, if at hand. Also return a flag on the device, for
        `require_finite` once the host reads other results.
        """
        hooked = self.placed.hooks.changes()
        if self.elsewhere is not None:
            return self.batch(prepared, size), torch.tensor(True)
        batch, finite = self._record(prepared, size, True, None, hooked, stacked=stacked)
        if not hooked:
            self._compare(batch, prepared[0], size)
        return replace(batch, deviation=self.deviation) if self.deviation else batch, finite

    def require_finite(self, finite: Tensor) -> None:
        """Raise VitvizError if the model computed values that are not finite."""
        if not finite:
            raise VitvizError(
                f"{self.placed.checkpoint.name} computed values that are not finite, so no result is shown."
                f" Its weights are damaged, or too large for {self.placed.dtype}."
            )

    @in_float32()
    def _record(
        self, prepared: list[Prepared], size: tuple[int, int], keep_on_device: bool,
        change: ModelChange | None, hooked: Mapping, edit: edits.Edit | None = None,
        stacked: Tensor | None = None,
    ) -> tuple[TraceBatch, Tensor]:  # fmt: skip
        """Run one pass here; return its traces, checked to be true to the model, and whether all is finite.

        `hooked` are the user's hooks by hook point; `change` and `edit` as in `batch`.
        """
        placed = self.placed
        checking = size not in self.truthful
        with self._looking(size):
            model = placed.at(size)
            pixels = self.to_input(self.stack(prepared) if stacked is None else stacked)
            first, kept = checking, None if edit is None else edit.kept
            # Check the plain model, without hooks, experiments and edits.
            if checking and (hooked or change is not None or edit is not None):
                self._check_truth(model, pixels[:1], size)
                checking = False
            if change is not None:
                model = change(model)
            wait, name = not keep_on_device, placed.checkpoint.name
            recording, logits, milliseconds = self.run(model, pixels, checking, hooked, edit, wait)
            if first:
                readouts.check_readout(model, self._readout(model), tracing.grid_of(model), name)
            finite = torch.tensor(True) if hooked else all_finite(recording.tokens[-1], logits)
            readout = self._readout(model, kept)
            read = readouts.readout_weights(model, readout, recording.tokens[-1])
        place = placed.device if keep_on_device else torch.device("cpu")
        shared = {
            "checkpoint": name, "grid": tracing.grid_of(model), "readout": readout,
            "labels": placed.labels, "milliseconds": milliseconds, "device": device_name(placed.device),
            "dtype": placed.dtype, "first_pass": first, "kept": kept, "classes": placed.classes,
            "own_head_type": placed.head_type,
            **({} if edit is None else {"without": edit.without}),
        }  # fmt: skip
        if placed.classes is None and not tracing.classifies(model, placed.checkpoint):
            logits = None
        views, queries = [image.view for image in prepared], readouts.count_read_queries(model)
        batch = tracing.to_trace_batch(recording, logits, shared, views, place, read, queries)
        if checking:
            self.require_finite(finite)
            self._require_truth(recording, batch[0].layers, size)
        return batch, finite

    def _looking(self, size: tuple[int, int]) -> AbstractContextManager[None]:
        """Raise OutOfMemory, naming checkpoint and input size, if memory runs out in the `with`."""
        placed = self.placed
        what = f"Inspecting {placed.checkpoint.name} at {size[0]} x {size[1]} pixels"
        return memory_guard(placed.device, what)

    def _readout(self, model: nn.Module, kept: tuple[int, ...] | None = None) -> Readout:
        """Return the model's readout; `kept` are the patches left in the sequence, None for all."""
        grid = tracing.grid_of(model)
        grid = grid if kept is None else grid.sequence(len(kept))
        return readouts.readout_of(model, grid, self.placed.checkpoint.name)

    def pixels(self, prepared: list[Prepared]) -> Tensor:
        """Return the model's input on its device."""
        return self.to_input(self.stack(prepared))

    def stack(self, prepared: list[Prepared]) -> Tensor:
        """Return images as one tensor on the host, bytes channels last; for CUDA in pinned memory.

        From pinned memory a copy runs while the host goes on.
        """
        images = [image.tensor for image in prepared]
        if images[0].dtype == torch.uint8:  # decoded with channels last
            images = [image.movedim(0, -1) for image in images]
        shape, pinned = (len(images), *images[0].shape), torch.cuda.is_initialized()
        return torch.stack(images, out=torch.empty(shape, dtype=images[0].dtype, pin_memory=pinned))

    def to_input(self, stacked: Tensor) -> Tensor:
        """Return the model's input on its device, which normalises images of bytes."""
        device, kind = self.placed.device, DTYPES[self.placed.dtype]
        there = stacked.to(device, non_blocking=stacked.is_pinned())
        if stacked.dtype == torch.uint8:
            there = normalised(there.movedim(-1, 1), self.placed.preprocessing)
        return there.to(kind)

    @in_float32()
    def watched(self, prepared: Prepared, size: Size, kept: tuple[int, ...] | None = None) -> edits.Outputs:
        """Return the heads' and MLPs' outputs and the blocks' inputs in a pass without the user's hooks."""
        with self._looking(size):
            model = self.placed.at(size)
            edit, seen = edits.recording_edit(tracing.grid_of(model), len(model.blocks), kept=kept)
            self.run(model, self.pixels([prepared]), edit=edit)
        return seen

    def _compare(self, batch: TraceBatch, prepared: Prepared, size: tuple[int, int]) -> None:
        """Measure, once, the deviation of the model's precision from float32."""
        placed = self.placed
        what = f"Comparing {placed.checkpoint.name} with itself in float32"
        with self._comparing, memory_guard(torch.device("cpu"), what):
            if placed.exact is not None:
                exact, tensor = copies.resized_copy(placed.exact, size), prepared.tensor
                if tensor.dtype == torch.uint8:
                    tensor = normalised(tensor, placed.preprocessing)
                self.deviation = precision.deviation(batch[0], exact, tensor[None])
                placed.exact = None

    def run(
        self, model: nn.Module, pixels: Tensor, check: bool = False, changes: Mapping | None = None,
        edit: edits.Edit | None = None, synchronised: bool = True,
    ):  # fmt: skip
        """Run one pass; return the recording, the logits and the milliseconds, inexact unless `synchronised`.

        `check` also records what the truth check compares; `synchronised` waits for the device before each
        time. Neither applies to an own module.
        """
        placed = self.placed
        if isinstance(model, OwnModel):
            if edit is not None:
                require_known(model, "how heads and MLPs write into its tokens")
            start = time.perf_counter()
            recording, logits = own_pass.record_pass(model, pixels, changes)
            logits = recording.tokens[-1].new_zeros(0) if logits is None else logits
            return recording, logits, 1000 * (time.perf_counter() - start)
        recorded = capture.recording(model, check=check, changes=changes, edit=edit)
        with inference_context(placed.device, placed.dtype), recorded as recording:
            if synchronised:
                synchronise(placed.device)
            start = time.perf_counter()
            logits = model(pixels)
            if synchronised:
                synchronise(placed.device)
            milliseconds = 1000 * (time.perf_counter() - start)
        tokens = tracing.grid_of(model).tokens if edit is None or edit.places is None else len(edit.places)
        check_plain(recording, tokens, placed.checkpoint.name)
        return recording, logits, milliseconds

    def _check_truth(self, model: nn.Module, pixels: Tensor, size: tuple[int, int]) -> None:
        """Check the recorded attention in a separate pass."""
        recording, _, _ = self.run(model, pixels, check=True)
        grid, cpu = tracing.grid_of(model), torch.device("cpu")
        layers = tracing.attentions_of([call for (call,) in recording.calls], grid, cpu)
        self._require_truth(recording, select_images(tuple(layers), 0), size)

    def _require_truth(self, recording: Recording, layers: Sequence[Attention], size: Size) -> None:
        """Raise UnsupportedModel if the recorded attention is not the model's; else pass this size."""
        tolerance = getattr(self.placed.model, "tolerance", TOLERANCE[self.placed.dtype])
        check_truth(recording.entered, layers, self.placed.checkpoint.name, tolerance)
        self.truthful.add(size)

    def prepare(self, image, size: int | tuple[int, int] | None) -> tuple[Prepared, tuple[int, int]]:
        """Return an image prepared for the model, and the input size.

        The `ModelInput` of a trace is used unchanged.
        """
        placed = self.placed
        if isinstance(image, ModelInput):
            self.require_size(image, size)
            size = image.picture.shape[:2]
        preprocessing = placed.preprocessing.with_size(placed.size(size))
        if isinstance(image, ModelInput):
            return shuffling.input_from_view(image, preprocessing), preprocessing.size
        return prepare(open_for(image, preprocessing), preprocessing), preprocessing.size

    def require_size(self, view: ModelInput, size: int | tuple[int, int] | None) -> None:
        """Raise VitvizError if a size is requested that is not the one of a trace's input."""
        height, width = view.picture.shape[:2]
        if size is not None and tuple(self.placed.size(size)) != (height, width):
            raise VitvizError(
                f"size={quoted(size)} is not valid with a trace of {height} × {width} pixels. Pass the image,"
                " or trace it at this size."
            )


def all_finite(*tensors: Tensor) -> Tensor:
    """Return whether no tensor has an infinity or NaN, as a flag on their device."""
    ends = [end for tensor in tensors if tensor.numel() for end in torch.aminmax(tensor)]  # NaN is both ends
    return torch.stack(ends).isfinite().all()
