"""A loaded model that can be looked into: pictures go in, traces come out."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.effects import Effects
from vitviz.analyses.tail import Tail
from vitviz.analyses.target import Asked
from vitviz.engine import inputs, parts, readouts, tails
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import DTYPES, exactly, memory_guard, name_of, pick_device, pick_dtype, synchronise
from vitviz.engine.forks import renew_lock_of
from vitviz.engine.passes import capture, copies, experiments, interventions, precision, record, sweeps, taken
from vitviz.engine.passes.hooks import Hook, Hooks
from vitviz.engine.passes.references import Reference, References
from vitviz.engine.pictures.images import open_image
from vitviz.engine.pictures.preprocess import Prepared, prepare
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.grid import Grid
from vitviz.readout import Readout
from vitviz.runs import Without
from vitviz.trace import Attention, Deviation, Trace, View

Change = Callable[[nn.Module], nn.Module]


class Inspector:
    """One checkpoint on one device. Safe to use from several threads, whose forward passes run beside each
    other.

    `elsewhere(inspector, prepared, size)`, where it is set, is asked for traces first: another process may
    lend its device. None from it means that they are to be made here. An inspector can be pickled; its hooks
    are not taken along.
    """

    elsewhere: Callable[[Inspector, list[Prepared], tuple[int, int]], list[Trace] | None] | None = None

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
        self._leaving: set[tuple[int, int]] = (
            set()
        )  # sizes at which patches have been seen to be left out truthfully
        with memory_guard(self.device, f"Loading {self.checkpoint.name}"):
            kind = pick_dtype(dtype, self.device)
            in_full = kind == torch.float32
            loaded.model.float()  # whatever torch's default was when it was built
            self.model = (
                loaded.model.to(self.device).eval()
                if in_full
                else copies.placed(loaded.model, self.device, kind)
            )
        self._exact = (
            None if in_full else loaded.model
        )  # in float32 on the CPU, until the first picture has been compared
        self._hooks, self._references = Hooks(), References()
        capture.transformer_blocks(self.model)
        self._sizes: dict[tuple[int, int], nn.Module] = {self.preprocessing.size: self.model}
        renew_lock_of(self, "_lock", "_comparing")

    def __repr__(self) -> str:
        return f"Inspector({self.checkpoint.name!r}, device={str(self.device)!r}, dtype={self.dtype!r})"

    def grid(self, size: tuple[int, int] | None = None) -> Grid:
        """The patch grid at the checkpoint's own input size, or at another (height, width)."""
        return record.grid_of(self._at(self._size(size)))

    def demand(self, size: int | tuple[int, int] | None = None) -> inputs.Demand:
        """How many tokens and multiplications a picture takes at a size; nothing is made for it, and nothing
        refused.
        """
        return inputs.demand_of(self.model, self.grid(), inputs.asked_size(size, self.preprocessing.size))

    def trace(
        self, image, size: int | tuple[int, int] | None = None, without: Without | None = None, other=None
    ) -> Trace:
        """The record of one forward pass on a picture (a path, PIL image, or array).

        `size` is the input in pixels, or (height, width): multiples of the patch. The position embedding is
        then interpolated as in section 3.2 of the paper. Raises ImageError for a bad picture,
        UnsupportedModel where the attention cannot be captured truthfully, OutOfMemory, and VitvizError for a
        size that does not fit. Stopped, in the middle of the pass, where nobody waits for it: see
        `vitviz.stopping`.

        `without` says what is taken away from the pass, and what stands in its place; `other` is the picture
        that `without.other` names (without it, that is one of vitviz's samples). The model stays as it is.
        VitvizError for a head, MLP, layer or patch that does not exist; UnsupportedModel where patches cannot
        be left out.

        >>> inspector.trace(image, without=vitviz.Without(heads=[(7, 1)], patches=[0, 17])).top(3)  # doctest: +SKIP
        """
        preprocessing = self.preprocessing.with_size(self._size(size))
        prepared = prepare(open_image(image), preprocessing)
        if not without:
            return self.traces([prepared], preprocessing.size)[0]
        prepared, edit = taken.edited(self, prepared, preprocessing.size, without, other)
        return self.traces([prepared], preprocessing.size, edit=edit)[0]

    def effects(
        self, image, target: Asked, heads_as: str = "mean", size: int | tuple[int, int] | None = None, *, mlps: bool = True, other=None,
        batch: int = 16, progress: Callable[[int, int], bool | None] | None = None,
    ) -> Effects:  # fmt: skip
        """What happens to a target's logit when each head, and each layer's MLP, is taken away alone: with -
        without it.

        `target`: a class, or (a, b) for a rather than b; `heads_as` and `other` as for `Without` and `trace`.
        Each change is computed from its layer on, `batch` of them at once. `progress(done, of)` is told after
        each batch, and ends the sweep by returning False; what was not reached is NaN. The user's hooks do
        not hold in it. Raises as `trace` does. Compare with the account of the same logit by
        `vitviz.analyses.agreement`.

        >>> inspector.effects(image, target=3).heads  # (layer, head), in logits  # doctest: +SKIP
        """
        preprocessing = self.preprocessing.with_size(self._size(size))
        prepared = prepare(open_image(image), preprocessing)
        asked = sweeps.Asking(target, heads_as, mlps, other, batch, progress)
        return sweeps.swept(self, prepared, preprocessing.size, asked)

    def reference(self, size: int | tuple[int, int] | None = None) -> Reference:
        """The means that stand in the place of heads and MLPs by default, and (`.sentence`) of which pictures
        they are.
        """
        return self._references.of(self, self._size(size))

    def traces(
        self, prepared: list[Prepared], size: tuple[int, int], keep_on_device=False, change: Change | None = None,
        edit: interventions.Edit | None = None,
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

    def on(self, device: str) -> Inspector:
        """A twin on another device, with its own lock and without hooks; this one stays where it is.

        A twin in bfloat16 knows its distance from float32 if this one does.
        """
        twin = copy.copy(self)
        twin.device = pick_device(device)
        with memory_guard(twin.device, f"Moving {self.checkpoint.name}"):
            twin.model = copies.placed(self.model, twin.device, DTYPES[self.dtype])
        twin._sizes, twin._references = {self.preprocessing.size: twin.model}, References()
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
        here |= {"_lock": None, "_comparing": None, "_hooks": None, "_references": None}
        return {name: value for name, value in {**vars(self), **here}.items() if name != "elsewhere"}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(
            state,
            _lock=threading.RLock(),
            _comparing=threading.RLock(),
            _hooks=Hooks(),
            _references=References(),
        )
        renew_lock_of(self, "_lock", "_comparing")

    def experiment(
        self,
        image,
        size: int | tuple[int, int] | None = None,
        *,
        shuffle: int | None = None,
        positions: bool = True,
    ) -> Trace:
        """The trace of a picture with its patches shuffled (by a seed), or of the model without position
        embeddings.

        `image` as for `trace`, or the View of a trace, taken as it is. The weights stay as they are and the
        result is kept nowhere. Raises VitvizError where `positions=False` and these are not a learned table
        alone.

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
        change = (
            None if positions else lambda model: experiments.without_positions(model, self.checkpoint.name)
        )
        return self.traces([prepared], preprocessing.size, change=change)[0]

    def hook(self, point: str, fn: Hook) -> AbstractContextManager[None]:
        """Calls `fn` with a tensor "batch token width" of each pass inside the `with`, to read or replace it.

        `point` is blocks.N.input, blocks.N.attn, blocks.N.mlp (both before LayerScale) or blocks.N.output, N
        from 0. What `fn` returns, unless None, takes the tensor's place. Closed on exit and on error.
        Meanwhile it holds for passes that other threads begin on this inspector, too; not for those that had
        begun before.

        >>> with inspector.hook("blocks.3.mlp", lambda tensor: tensor * 0):  # doctest: +SKIP
        ...     without_mlp = inspector.trace(image)
        """
        return self._hooks.asked(self.model, point, fn, self.checkpoint.name)

    def patch_filters(self) -> Float[Tensor, "width channel height2 width2"] | None:
        """The linear embedding's weights E as D filters of C x P x P; None where patches are not cut from
        pixels.
        """
        return record.patch_filters(self.model)

    def stem_filters(self) -> Float[Tensor, "width channel height2 width2"] | None:
        """The first convolution of a hybrid's stem; None where there is no stem."""
        return record.stem_filters(self.model)

    def position_table(self, size: tuple[int, int] | None = None) -> Float[Tensor, "patch width"] | None:
        """The learned absolute position embeddings of the patches (prefix rows dropped), interpolated to a
        size.
        """
        return record.position_table(self._at(self._size(size)))

    def position_kind(self) -> str:
        """How the model knows where a patch is: learned, rotary, relative, several of them joined by +, or
        none.
        """
        return record.position_kind(self.model)

    def parts(self, size: tuple[int, int] | None = None) -> parts.Parts:
        """The weights that equations 1 to 4 name, at an input size: E, the class token, E_pos, the head."""
        return parts.parts_of(self._at(self._size(size)))

    def tail(self, size: tuple[int, int] | None = None) -> Tail:
        """What stands between the heads and the logits at an input size; UnsupportedModel, with the reason,
        where that is not known.
        """
        with self._lock:
            return tails.tail_of(self._at(self._size(size)), self.checkpoint.name)

    def read_now(
        self, tokens: Float[Tensor, "token width"], size: tuple[int, int]
    ) -> Float[Tensor, " class"]:
        """What the model's own final norm, pooling and head say to tokens of any depth, in the pass's own
        shapes.
        """
        with self._lock:
            return tails.read_now(self._at(size), tokens)

    def readout(self, trace: Trace) -> Float[Tensor, " feature"]:
        """What the classifier is given (y of equation 4) for one of this checkpoint's traces; VitvizError for
        another's.
        """
        if trace.checkpoint != self.checkpoint.name:
            raise VitvizError(
                f"Given a trace of {trace.checkpoint}; expected one of {self.checkpoint.name}, whose norm and"
                " pooling are applied. Ask the inspector that made it."
            )
        return parts.readout(self._at(trace.grid.pixels), trace)

    def final_norm(self, trace: Trace, layer: int) -> Float[Tensor, "token width"]:
        """The tokens of one depth of this checkpoint's trace through its own final norm, each token by
        itself, float32.

        `layer` as in `vitviz.token_similarity`. Where the model norms only the mean of its tokens, it is that
        norm. VitvizError for another checkpoint's trace, UnsupportedModel for a model without a final norm.
        """
        if trace.checkpoint != self.checkpoint.name:
            raise VitvizError(
                f"Given a trace of {trace.checkpoint}; expected one of {self.checkpoint.name}, whose final"
                " norm is applied. Ask the inspector that made it."
            )
        return parts.final_norm(self._at(trace.grid.pixels), trace.tokens[layer], self.checkpoint.name)

    # ----- how it is done

    @in_float32()
    def _record(
        self, prepared: list[Prepared], size: tuple[int, int], keep_on_device: bool, change: Change | None, hooked: Mapping,
        edit: interventions.Edit | None = None,
    ) -> list[Trace]:  # fmt: skip
        checking = size not in self._truthful
        with memory_guard(
            self.device, f"Looking into {self.checkpoint.name} at {size[0]} x {size[1]} pixels"
        ):
            model = self._at(size)
            pixels = self._pixels(prepared)
            first, kept = checking, None if edit is None else edit.kept
            if checking and (
                hooked or change is not None or edit is not None
            ):  # what these do to the model is not to be checked
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
        with memory_guard(
            self.device, f"Looking into {self.checkpoint.name} at {size[0]} x {size[1]} pixels"
        ):
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

    def _size(self, size: int | tuple[int, int] | None) -> tuple[int, int]:
        found = inputs.asked_size(size, self.preprocessing.size)
        if found != self.preprocessing.size:  # its own is one whether the patch divides it or not
            inputs.require_size(found, self.grid(), self.model, self.device, self.checkpoint.name)
        return found

    def _at(self, size: tuple[int, int]) -> nn.Module:
        """The model at an input size; variants share every weight but the interpolated position embedding."""
        found = self._sizes.get(
            size
        )  # whoever wants a size that is there does not wait for one that is being made
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
