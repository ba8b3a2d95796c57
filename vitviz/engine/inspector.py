"""A loaded model that can be looked into: pictures go in, traces come out."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.engine import capture, copies, experiments, inputs, parts, precision, record, survey
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.device import DTYPES, exactly, memory_guard, name_of, pick_device, pick_dtype, synchronise
from vitviz.engine.forks import renew_lock_of
from vitviz.engine.hooks import Hook, Hooks
from vitviz.engine.images import open_image
from vitviz.engine.preprocess import Prepared, prepare
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.grid import Grid
from vitviz.trace import Deviation, Trace, View

Change = Callable[[nn.Module], nn.Module]


class Inspector:
    """One checkpoint on one device. Safe to use from several threads; its forward passes take turns.

    `elsewhere(inspector, prepared, size)`, where it is set, is asked for traces first: another process may lend its
    device. None from it means that they are to be made here. An inspector can be pickled; its hooks are not taken along.
    """

    elsewhere: Callable[[Inspector, list[Prepared], tuple[int, int]], list[Trace] | None] | None = None

    def __init__(self, loaded: Loaded, device: str = "auto", dtype: str = "float32"):
        self.checkpoint: Checkpoint = loaded.checkpoint
        self.preprocessing = loaded.preprocessing
        self.labels = loaded.labels
        self.device = pick_device(device)
        self.dtype = dtype
        self.deviation: Deviation | None = None  # from float32, once the first picture has been seen
        self._lock = threading.RLock()
        self._truthful: set[tuple[int, int]] = set()  # sizes at which the capture has been checked
        with memory_guard(self.device, f"Loading {self.checkpoint.name}"):
            kind = pick_dtype(dtype, self.device)
            in_full = kind == torch.float32
            loaded.model.float()  # whatever torch's default was when it was built
            self.model = loaded.model.to(self.device).eval() if in_full else copies.placed(loaded.model, self.device, kind)
        self._exact = None if in_full else loaded.model  # in float32 on the CPU, until the first picture has been compared
        self._hooks = Hooks()
        capture.transformer_blocks(self.model)
        self._sizes: dict[tuple[int, int], nn.Module] = {self.preprocessing.size: self.model}
        renew_lock_of(self)

    def __repr__(self) -> str:
        return f"Inspector({self.checkpoint.name!r}, device={str(self.device)!r}, dtype={self.dtype!r})"

    def grid(self, size: tuple[int, int] | None = None) -> Grid:
        """The patch grid at the checkpoint's own input size, or at another (height, width)."""
        return record.grid_of(self._at(self._size(size)))

    def trace(self, image, size: int | tuple[int, int] | None = None) -> Trace:
        """The record of one forward pass on a picture (a path, PIL image, or array).

        `size` is the input in pixels, or (height, width): multiples of the patch. The position embedding is then
        interpolated as in section 3.2 of the paper. Raises ImageError for a bad picture, UnsupportedModel where the
        attention cannot be captured truthfully, OutOfMemory, and VitvizError for a size that does not fit.
        """
        preprocessing = self.preprocessing.with_size(self._size(size))
        return self.traces([prepare(open_image(image), preprocessing)], preprocessing.size)[0]

    def traces(self, prepared: list[Prepared], size: tuple[int, int], keep_on_device=False, change: Change | None = None) -> list[Trace]:
        """The traces of pictures that are prepared already, in one forward pass at an input size (height, width).

        Kept on the CPU, or on the inspector's device. `change` makes a variant of the model for an experiment.
        """
        traces = self.elsewhere(self, prepared, size) if self.elsewhere is not None and change is None else None
        if traces is None:
            traces = self._record(prepared, size, keep_on_device, change)
        if change is None and not self._hooks:
            self._compare(traces[0], prepared[0], size)
        return [replace(trace, deviation=self.deviation) for trace in traces] if self.deviation else traces

    def on(self, device: str) -> Inspector:
        """A twin on another device, with its own lock and without hooks; this one stays where it is.

        A twin in bfloat16 knows its distance from float32 if this one does.
        """
        twin = copy.copy(self)
        twin.device = pick_device(device)
        with self._lock, memory_guard(twin.device, f"Moving {self.checkpoint.name}"):
            twin.model = copies.placed(self.model, twin.device, DTYPES[self.dtype])
        twin._sizes = {self.preprocessing.size: twin.model}
        return twin

    def __getstate__(self) -> dict:
        """All but what belongs to one process or one device."""
        here = {"_lock": None, "_exact": None, "_hooks": Hooks(), "_truthful": set(), "_sizes": {self.preprocessing.size: self.model}}
        return {name: value for name, value in {**vars(self), **here}.items() if name != "elsewhere"}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state, _lock=threading.RLock())
        renew_lock_of(self)

    def experiment(self, image, size: int | tuple[int, int] | None = None, *, shuffle: int | None = None, positions: bool = True) -> Trace:
        """The trace of a picture with its patches shuffled (by a seed), or of the model without position embeddings.

        `image` as for `trace`, or the View of a trace, taken as it is. The weights stay as they are and the result is
        kept nowhere. Raises VitvizError where `positions=False` and these are not a learned table alone.

        >>> inspector.experiment(image, shuffle=1, positions=False).top(3)  # doctest: +SKIP
        """
        if isinstance(image, View):
            preprocessing = self.preprocessing.with_size(self._size(image.picture.shape[:2]))
            prepared = experiments.as_seen(image, preprocessing)
        else:
            preprocessing = self.preprocessing.with_size(self._size(size))
            prepared = prepare(open_image(image), preprocessing)
        if shuffle is not None:
            prepared = experiments.shuffled(prepared, self.grid(preprocessing.size), shuffle)
        change = None if positions else lambda model: experiments.without_positions(model, self.checkpoint.name)
        return self.traces([prepared], preprocessing.size, change=change)[0]

    def hook(self, point: str, fn: Hook) -> AbstractContextManager[None]:
        """Calls `fn` with a tensor "batch token width" of each pass inside the `with`, to read or replace it.

        `point` is blocks.N.input, blocks.N.attn, blocks.N.mlp (both before LayerScale) or blocks.N.output, N from 0.
        What `fn` returns, unless None, takes the tensor's place. Closed on exit and on error. Meanwhile it holds for
        passes that other threads make on this inspector, too.

        >>> with inspector.hook("blocks.3.mlp", lambda tensor: tensor * 0):  # doctest: +SKIP
        ...     without_mlp = inspector.trace(image)
        """
        return self._hooks.asked(self.model, point, fn, self.checkpoint.name)

    def survey(
        self, images: Iterable, batch: int = 8, progress: Callable[[int], bool | None] | None = None, size: int | tuple[int, int] | None = None
    ) -> survey.Survey:
        """Attention distance averaged over a set of pictures (the paper: 128); see `surveying` for a running mean.

        `progress` is told how many pictures are done after each batch, and ends the survey by returning False. `size` is
        the input in pixels, as for `trace`. Raises VitvizError for no pictures, and for a batch below 1.
        """
        result = None
        for result in self.surveying(images, batch, size):
            if progress is not None and progress(result.images) is False:
                break
        if result is None:
            raise VitvizError("A survey needs at least one picture; none was given.")
        return result

    def surveying(self, images: Iterable, batch: int = 8, size: int | tuple[int, int] | None = None) -> Iterator[survey.Survey]:
        """The running mean of a survey after each batch."""
        preprocessing, stays = self.preprocessing.with_size(self._size(size)), self.device.type != "mps"  # which has no float64 to average in

        def record(prepared: list[Prepared]) -> list[Trace]:
            return self.traces(prepared, preprocessing.size, keep_on_device=stays)

        return survey.running(self.checkpoint.name, images, batch, record, preprocessing)

    def patch_filters(self) -> Float[Tensor, "width channel height2 width2"] | None:
        """The linear embedding's weights E as D filters of C x P x P; None where patches are not cut from pixels."""
        return record.patch_filters(self.model)

    def stem_filters(self) -> Float[Tensor, "width channel height2 width2"] | None:
        """The first convolution of a hybrid's stem; None where there is no stem."""
        return record.stem_filters(self.model)

    def position_table(self, size: tuple[int, int] | None = None) -> Float[Tensor, "patch width"] | None:
        """The learned absolute position embeddings of the patches (prefix rows dropped), interpolated to a size."""
        return record.position_table(self._at(self._size(size)))

    def position_kind(self) -> str:
        """How the model knows where a patch is: learned, rotary, relative, several of them joined by +, or none."""
        return record.position_kind(self.model)

    def parts(self, size: tuple[int, int] | None = None) -> parts.Parts:
        """The weights that equations 1 to 4 name, at an input size: E, the class token, E_pos, the head."""
        return parts.parts_of(self._at(self._size(size)))

    def readout(self, trace: Trace) -> Float[Tensor, " feature"]:
        """What the classifier is given (y of equation 4) for one of this checkpoint's traces."""
        with self._lock:
            return parts.readout(self._at(trace.grid.pixels), trace)

    # ----- how it is done

    def _record(self, prepared: list[Prepared], size: tuple[int, int], keep_on_device: bool, change: Change | None) -> list[Trace]:
        with self._lock, memory_guard(self.device, f"Looking into {self.checkpoint.name} at {size[0]} x {size[1]} pixels"):
            model = self._at(size)
            pixels = torch.stack([one.tensor for one in prepared]).to(self.device, DTYPES[self.dtype])
            if size not in self._truthful:
                self._check_truth(model, pixels[:1])
                self._truthful.add(size)
            if change is not None:  # an experiment's variant of the model
                model = change(model)
            with self._hooks.on(model, self.checkpoint.name):
                recording, logits, milliseconds = self._forward(model, pixels)
            if not self._hooks and not recording.tokens[-1].isfinite().all():
                raise VitvizError(
                    f"{self.checkpoint.name} computed numbers that are not finite, so there is nothing true to show. "
                    f"Its weights are damaged, or too large for {self.dtype}."
                )
        place = self.device if keep_on_device else torch.device("cpu")
        frame = record.Frame(
            self.checkpoint.name, record.grid_of(model), record.pool_of(model), record.classifies(model, self.checkpoint),
            self.labels, milliseconds, name_of(self.device), self.dtype,
        )  # fmt: skip
        return [record.trace_of(recording, logits, frame, prepared[i].view, i, place) for i in range(len(prepared))]

    def _compare(self, trace: Trace, prepared: Prepared, size: tuple[int, int]) -> None:
        """Finds out, once, how far the precision takes the model from float32."""
        with self._lock, memory_guard(torch.device("cpu"), f"Comparing {self.checkpoint.name} with itself in float32"):
            if self._exact is not None:
                exact = self._exact if size == self.preprocessing.size else copies.sized(self._exact, size)
                self.deviation, self._exact = precision.deviation(trace, exact, prepared.tensor[None]), None

    def _forward(self, model: nn.Module, pixels: Tensor, check: bool = False):
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False), exactly(self.device), capture.recorded(model, check=check) as recording:
            synchronise(self.device)
            start = time.perf_counter()
            logits = model(pixels)
            synchronise(self.device)
            milliseconds = 1000 * (time.perf_counter() - start)
        capture.check_plain(recording, record.grid_of(model).tokens, self.checkpoint.name)
        return recording, logits, milliseconds

    def _check_truth(self, model: nn.Module, pixels: Tensor) -> None:
        recording, _, _ = self._forward(model, pixels, check=True)
        grid = record.grid_of(model)
        layers, tolerance = [record.attention_of(call, 0, grid, torch.device("cpu")) for (call,) in recording.calls], capture.TOLERANCE[DTYPES[self.dtype]]
        capture.check_truth(recording, lambda layer: record.streamed_output(layers[layer]), self.checkpoint.name, tolerance)

    def _size(self, size: int | tuple[int, int] | None) -> tuple[int, int]:
        found = inputs.asked_size(size, self.preprocessing.size)
        if found != self.preprocessing.size:  # its own is one whether the patch divides it or not
            inputs.require_size(found, self.grid(), self.model, self.device, self.checkpoint.name)
        return found

    def _at(self, size: tuple[int, int]) -> nn.Module:
        """The model at an input size; variants share every weight but the interpolated position embedding."""
        with self._lock:
            if size not in self._sizes:
                if not hasattr(self.model, "set_input_size"):
                    raise UnsupportedModel(f"{self.checkpoint.name} has a fixed input of {self.preprocessing.size[0]} x {self.preprocessing.size[1]} pixels.")
                if len(self._sizes) > 3:  # the own size and the last few are kept
                    self._sizes.pop(next(key for key in self._sizes if key != self.preprocessing.size))
                self._sizes[size] = copies.sized(self.model, size)
            return self._sizes[size]
