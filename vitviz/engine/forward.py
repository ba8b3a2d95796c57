"""The forward passes that are made with one checkpoint on one device.

A pass is made at an input size, recorded through the seam (`passes.capture`), and refused where what was seen
is not what the model went on with. What is asked of it stands in `vitviz.engine.inspector`.
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
from vitviz.engine.device import DTYPES, exactly, memory_guard, name_of, synchronise
from vitviz.engine.passes import capture, copies, experiments, interventions, precision, record
from vitviz.engine.pictures.images import open_image
from vitviz.engine.pictures.preprocess import Prepared, prepare
from vitviz.engine.placed import Placed
from vitviz.errors import VitvizError
from vitviz.readout import Readout
from vitviz.runs import Without
from vitviz.trace import Attention, Trace, View

Change = Callable[[nn.Module], nn.Module]


class Forward(Placed):
    """Passes of one checkpoint on one device, safe to make from several threads: they run beside each other.

    `elsewhere(inspector, prepared, size)`, where it is set, is asked for traces first: another process may
    lend its device. None from it means that they are to be made here.
    """

    elsewhere: Callable[[Forward, list[Prepared], tuple[int, int]], list[Trace] | None] | None = None

    def view(self, image, size: int | tuple[int, int] | None = None) -> View:
        """The picture as the model gets it, in whole patches, and its place in the upload, without a pass.

        `image` and `size` as for `trace`, whose `view` it is. Raises ImageError, and VitvizError for a size
        that does not fit.
        """
        prepared, seen = self._seen(image, size)
        return record.covered(prepared.view, self.grid(seen))

    def traces(
        self, prepared: list[Prepared], size: tuple[int, int], keep_on_device=False,
        change: Change | None = None, edit: interventions.Edit | None = None,
    ) -> list[Trace]:  # fmt: skip
        """The traces of pictures that are prepared already, in one forward pass at an input size (height,
        width).

        Kept on the CPU, or on the inspector's device. `change` makes a variant of the model for an
        experiment, `edit` is what the pass does otherwise.
        """
        hooked, plain = self._hooks.changes(), change is None and edit is None
        traces = self.elsewhere(self, prepared, size) if self.elsewhere is not None and plain else None
        if traces is None:
            traces = self._record(prepared, size, keep_on_device, change, hooked, edit)
        if plain and not hooked:
            self._compare(traces[0], prepared[0], size)
        return [replace(trace, deviation=self.deviation) for trace in traces] if self.deviation else traces

    @in_float32()
    def _record(
        self, prepared: list[Prepared], size: tuple[int, int], keep_on_device: bool,
        change: Change | None, hooked: Mapping, edit: interventions.Edit | None = None,
    ) -> list[Trace]:  # fmt: skip
        checking = size not in self._truthful
        with self._looking(size):
            model = self._at(size)
            pixels = self._pixels(prepared)
            first, kept = checking, None if edit is None else edit.kept
            # What hooks, experiments and edits do to the model is not to be checked.
            if checking and (hooked or change is not None or edit is not None):
                self._check_truth(model, pixels[:1], size)
                checking = False
            if change is not None:  # an experiment's variant of the model
                model = change(model)
            recording, logits, milliseconds = self._forward(model, pixels, checking, hooked, edit)
            if first:
                readouts.prove(model, self._readout(model), record.grid_of(model), self.checkpoint.name)
            if not hooked and not (recording.tokens[-1].isfinite().all() and logits.isfinite().all()):
                raise VitvizError(
                    f"{self.checkpoint.name} computed numbers that are not finite, so there is nothing true"
                    f" to show. Its weights are damaged, or too large for {self.dtype}."
                )
            readout = self._readout(model, kept)
            read = readouts.read(model, readout, recording.tokens[-1])
        place = self.device if keep_on_device else torch.device("cpu")
        frame = record.Frame(
            self.checkpoint.name, record.grid_of(model), readout, read, readouts.queries_read(model),
            record.classifies(model, self.checkpoint),
            self.labels, milliseconds, name_of(self.device), self.dtype, first, kept,
            Without() if edit is None else edit.without,
        )  # fmt: skip
        traces = [
            record.trace_of(recording, logits, frame, prepared[i].view, i, place)
            for i in range(len(prepared))
        ]
        if checking:
            self._require_truth(recording, traces[0].layers, size)
        return traces

    def _looking(self, size: tuple[int, int]) -> AbstractContextManager[None]:
        what = f"Looking into {self.checkpoint.name} at {size[0]} x {size[1]} pixels"
        return memory_guard(self.device, what)

    def _readout(self, model: nn.Module, kept: tuple[int, ...] | None = None) -> Readout:
        grid = record.grid_of(model)
        return readouts.readout_of(
            model, grid if kept is None else grid.sequence(len(kept)), self.checkpoint.name
        )

    def _pixels(self, prepared: list[Prepared]) -> Tensor:
        return torch.stack([one.tensor for one in prepared]).to(self.device, DTYPES[self.dtype])

    @in_float32()
    def _watched(
        self, prepared: Prepared, size: tuple[int, int], kept: tuple[int, ...] | None = None
    ) -> interventions.Parts:
        """What heads, MLPs and layers hand on in a pass without the user's hooks."""
        with self._looking(size):
            model = self._at(size)
            edit, seen = interventions.watching(record.grid_of(model), len(model.blocks), kept=kept)
            self._forward(model, self._pixels([prepared]), edit=edit)
        return seen

    def _compare(self, trace: Trace, prepared: Prepared, size: tuple[int, int]) -> None:
        """Finds out, once, how far the precision takes the model from float32."""
        with (
            self._comparing,
            memory_guard(torch.device("cpu"), f"Comparing {self.checkpoint.name} with itself in float32"),
        ):
            if self._exact is not None:
                exact = self._exact if size == self.preprocessing.size else copies.sized(self._exact, size)
                self.deviation, self._exact = precision.deviation(trace, exact, prepared.tensor[None]), None

    def _forward(
        self,
        model: nn.Module,
        pixels: Tensor,
        check: bool = False,
        changes: Mapping | None = None,
        edit: interventions.Edit | None = None,
    ):
        with (
            torch.no_grad(),
            torch.autocast(self.device.type, enabled=False),
            exactly(self.device),
            capture.recorded(model, check=check, changes=changes, edit=edit) as recording,
        ):
            synchronise(self.device)
            start = time.perf_counter()
            logits = model(pixels)
            synchronise(self.device)
            milliseconds = 1000 * (time.perf_counter() - start)
        tokens = record.grid_of(model).tokens if edit is None or edit.places is None else len(edit.places)
        capture.check_plain(recording, tokens, self.checkpoint.name)
        return recording, logits, milliseconds

    def _check_truth(self, model: nn.Module, pixels: Tensor, size: tuple[int, int]) -> None:
        """The check in a pass of its own."""
        recording, _, _ = self._forward(model, pixels, check=True)
        grid = record.grid_of(model)
        layers = [record.attention_of(call, 0, grid, torch.device("cpu")) for (call,) in recording.calls]
        self._require_truth(recording, layers, size)

    def _require_truth(
        self, recording: capture.Recording, layers: Sequence[Attention], size: tuple[int, int]
    ) -> None:
        tolerance = capture.TOLERANCE[DTYPES[self.dtype]]
        capture.check_truth(recording.entered, layers, self.checkpoint.name, tolerance)
        self._truthful.add(size)

    def _seen(self, image, size: int | tuple[int, int] | None) -> tuple[Prepared, tuple[int, int]]:
        """A picture, or the View of a trace as it is, made ready for the model; and the input's size."""
        size = image.picture.shape[:2] if isinstance(image, View) else size
        preprocessing = self.preprocessing.with_size(self._size(size))
        if isinstance(image, View):
            return experiments.as_seen(image, preprocessing), preprocessing.size
        return prepare(open_image(image), preprocessing), preprocessing.size
