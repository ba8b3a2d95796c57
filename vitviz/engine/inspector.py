"""A loaded model that can be looked into: pictures go in, traces come out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from operator import attrgetter
from weakref import WeakKeyDictionary

from jaxtyping import Float
from torch import Tensor, nn

from vitviz._deprecated import renamed_parameters
from vitviz.analyses.effects import AblationEffects
from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.analyses.target import TargetLike
from vitviz.engine import parts, readout_stages
from vitviz.engine.adapters.in_memory import loaded_of
from vitviz.engine.checkpoint import Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.formats.mapping import mapping_at
from vitviz.engine.formats.overrides import Overrides
from vitviz.engine.forward import interventions, shuffling, sweeps, tracing
from vitviz.engine.forward.mean_ablation import MeanOutputs
from vitviz.engine.forward.recording import TensorChange
from vitviz.engine.hub import snapshots
from vitviz.engine.images.preprocess import Prepared
from vitviz.engine.placement import MemoryDemand, PlacedModel, asked_size, demand_of
from vitviz.engine.runner import ForwardRunner
from vitviz.errors import VitvizError
from vitviz.traces.classes import Classes
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.grid import Grid
from vitviz.traces.head_type import HeadType
from vitviz.traces.runs import Ablation
from vitviz.traces.text_classes import plain
from vitviz.traces.trace import ModelInput, Trace

# the classes that a trace was last asked about, and what it then answered
_answered: WeakKeyDictionary[Trace, tuple[Classes | None, Trace]] = WeakKeyDictionary()
TABLES = ("pos_embed", "position_embeddings")  # the ends of its names in files


class Inspector(NotebookDisplay):
    """One checkpoint on one device. Safe to use from several threads: their passes run beside each other.

    It holds `forward`, the passes, which hold `placed`, the model. It can be pickled, without its hooks.
    """

    placed = property(attrgetter("forward.placed"))
    model = property(attrgetter("forward.placed.model"))
    checkpoint = property(attrgetter("forward.placed.checkpoint"))
    preprocessing = property(attrgetter("forward.placed.preprocessing"))
    labels = property(attrgetter("forward.placed.labels"))
    classes = property(attrgetter("forward.placed.classes"))
    device = property(attrgetter("forward.placed.device"))
    dtype = property(attrgetter("forward.placed.dtype"))

    @property
    def head_type(self) -> HeadType:
        """What its outputs are: "softmax", "sigmoid" or "value"; of given classes as these have it."""
        return self.placed.head_type if self.classes is None else self.classes.score

    def __init__(self, loaded: Loaded, device: str = "auto", dtype: str = "float32"):
        self.forward = ForwardRunner(PlacedModel(loaded, device, dtype))

    @classmethod
    def of(
        cls, model: nn.Module, *, mean=None, std=None, size: int | tuple[int, int] | None = None,
        interpolation: str | None = None, crop_pct: float | None = None, crop_mode: str | None = None,
        labels: Sequence[str] | None = None, heads: int | None = None, mapping: str | None = None,
        name: str | None = None, device: str = "auto", dtype: str = "float32",
        head_type: HeadType | None = None,
    ) -> Inspector:  # fmt: skip
        """A model in memory as it is now: timm's, transformers' (ViT, DeiT, DINOv2, …), or a PyTorch module.

        A copy is looked into, and training goes on undisturbed; it is proven to answer as the model does.
        `mean` and `std` (of values from 0 to 1) are what the model's pictures are normalised with: needed
        for a module of one's own, else its configuration's. `mapping` is the path of a mapping file for a
        module whose names leave it open. `head_type` ("softmax", "sigmoid" or "value") is what its outputs
        are: needed for one output, else transformers' configuration's, else "softmax".
        UnsupportedModel for no plain ViT, VitvizError for what is unsaid.

        >>> import timm
        >>> model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1)
        >>> Inspector.of(model, mean=0.5, std=0.5, device="cpu").grid().patches
        4
        """
        given = Overrides(
            heads, mean, std, crop_pct, crop_mode, interpolation, labels=labels, head_type=head_type
        )
        size = None if size is None else asked_size(size, (0, 0))
        names = None if mapping is None else mapping_at(mapping)
        return cls(loaded_of(model, given, size, name, names), device, dtype)

    def __repr__(self) -> str:
        return f"Inspector({self.checkpoint.name!r}, device={str(self.device)!r}, dtype={self.dtype!r})"

    def on(self, device: str) -> Inspector:
        """A twin on another device, with its own lock and without hooks; this one stays where it is.

        A twin in bfloat16 knows its distance from float32 if this one does.
        """
        return self.with_runner(self.forward.on(device))

    def with_runner(self, forward: ForwardRunner) -> Inspector:
        """An inspector of other passes."""
        twin = copy.copy(self)
        twin.forward = forward
        return twin

    def with_classes(self, classes: Classes, scale: float | None = None) -> Inspector:
        """An inspector of the same weights that answers by the cosine of its embedding with given classes.

        `scale` takes the place of the classes' own. A trace made before needs no second pass: it is read
        anew (`answered`) by whatever asks about it. This inspector stays as it is. Raises VitvizError, with
        both figures, for classes of another width or model, and in another precision than float32;
        UnsupportedModel where a picture has no one embedding.

        >>> import vitviz
        >>> inspector = vitviz.load("vitviz-tiny")
        >>> width = len(inspector.labels)  # what its last layer gives
        >>> asked = inspector.with_classes(vitviz.Classes(["one", "another"], [[1.0] * width, range(width)]))
        >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
        >>> abs(vitviz.logit_attribution(asked, trace, ("one", "another")).gap) < 1e-3
        True
        >>> len(asked.answered(trace).top())
        2
        """
        if self.dtype != "float32":
            name = self.checkpoint.name
            raise VitvizError(
                f"Given {name} in {self.dtype}; cosines with given classes are computed in float32. Load it"
                " with dtype='float32'."
            )
        classes = classes if scale is None else replace(classes, scale=scale)
        return self.with_runner(self.forward.with_classes(classes))

    def answered(self, trace: Trace) -> Trace:
        """A trace of this checkpoint with the answer that this inspector gives, read from its last tokens.

        No pass is made; of the same classes, it is the trace itself. VitvizError for another checkpoint's.
        """
        if trace.classes == self.classes:
            return trace
        known, found = _answered.get(trace, (None, None))
        if found is None or known != self.classes:
            model, reads = self._behind(trace, "head is"), self.classes is not None
            reads = reads or tracing.classifies(model, self.checkpoint)
            logits = (
                readout_stages.read_now(model, trace.tokens[-1]).to(trace.tokens[-1].device)
                if reads
                else None
            )
            answer = {"logits": logits, "labels": self.labels, "classes": self.classes}
            found = replace(trace, checkpoint=self.checkpoint.name, **answer)
            _answered[trace] = self.classes, found
        return found

    def grid(self, size: tuple[int, int] | None = None) -> Grid:
        """The patch grid at the checkpoint's own input size, or at another (height, width)."""
        return self.placed.grid(size)

    def view(self, image, size: int | tuple[int, int] | None = None) -> ModelInput:
        """The picture as the model gets it, in whole patches, and its place in the upload, without a pass.

        `image` and `size` as for `trace`, whose `view` it is. Raises ImageError, and VitvizError for a size.
        """
        prepared, seen = self.forward.prepare(image, size)
        return tracing.covered(prepared.view, self.grid(seen))

    def demand(self, size: int | tuple[int, int] | None = None) -> MemoryDemand:
        """How many tokens and multiplications a picture takes at a size; nothing is made or refused."""
        return demand_of(self.model, self.grid(), asked_size(size, self.preprocessing.size))

    @renamed_parameters
    def trace(
        self, image, size: int | tuple[int, int] | None = None, ablation: Ablation | None = None, other=None
    ) -> Trace:
        """The record of one forward pass on a picture (a path, PIL image, or array).

        `size` is the input in pixels, or (height, width): multiples of the patch. The position embedding is
        then interpolated (section 3.2 of the paper), by the rule of the library that the model comes from.
        Raises ImageError for a bad picture, UnsupportedModel where the attention cannot be captured
        truthfully, OutOfMemory, and VitvizError for a size that does not fit; Stopped, in the middle, where
        nobody waits for it (`vitviz.stopping`).

        `ablation` says what is taken away from the pass, and what stands in its place; `other` is the picture
        that `without.other` names (without it, that is one of vitviz's samples). The model stays as it is.
        VitvizError for a head, MLP, layer or patch there is not; UnsupportedModel where none can be left out.

        >>> without = vitviz.Ablation(heads=[(7, 1)], patches=[0, 17])  # doctest: +SKIP
        >>> inspector.trace(image, ablation=without).top(3)  # doctest: +SKIP
        """
        prepared, seen = self.forward.prepare(image, size)
        if not ablation:
            return self.traces([prepared], seen)[0]
        prepared, edit = interventions.apply_ablation(self.forward, prepared, seen, ablation, other)
        return self.forward.traces([prepared], seen, edit=edit)[0]

    def traces(
        self, prepared: list[Prepared], size: tuple[int, int], keep_on_device: bool = False
    ) -> list[Trace]:
        """Traces of prepared pictures in one pass at a (height, width), on the CPU or this device."""
        return self.forward.traces(prepared, size, keep_on_device)

    def effects(
        self, image, target: TargetLike, heads_as: str = "mean", size: int | tuple[int, int] | None = None, *,
        mlps: bool = True, other=None, batch: int = sweeps.BATCH,
        progress: Callable[[int, int], bool | None] | None = None,
    ) -> AblationEffects:  # fmt: skip
        """What a target's logit loses when each head, and each layer's MLP, is taken away: with - without it.

        `target`: a class, or (a, b) for a rather than b; `heads_as` and `other` as for `Ablation` and
        `trace`. Each change is computed from its layer on, `batch` of them at once. `progress(done, of)` is
        told after each batch, and ends the sweep by returning False; what was not reached is NaN. The user's
        hooks do not hold in it. Raises as `trace`. Beside the account: `vitviz.analyses.agreement`.

        >>> inspector.effects(image, target=3).heads  # (layer, head), in logits  # doctest: +SKIP
        """
        prepared, seen = self.forward.prepare(image, size)
        return sweeps.sweep_parts(
            self.forward, prepared, seen, target, heads_as, mlps, other, batch, progress
        )

    def layer_effects(
        self, image, layer: int, heads_as: str = "mean", size: int | tuple[int, int] | None = None
    ) -> Float[Tensor, "part class"]:
        """The same of one layer (from 0) on all classes: its heads', then its MLP's, NaN where it has none.

        `image` as for `trace`, or the View of a trace, taken as it is. `heads_as`: "mean", "tokens" or
        "zero". Linear in the classes: the effect on a rather than b is the difference of two columns. Raises
        IndexError for such a layer, otherwise as `effects`.

        >>> inspector.layer_effects(image, 7)[:, 3]  # on the logit of class 3  # doctest: +SKIP
        """
        prepared, seen = self.forward.prepare(image, size)
        return sweeps.of_layer(self.forward, prepared, seen, layer, heads_as)

    def reference(self, size: int | tuple[int, int] | None = None) -> MeanOutputs:
        """The means that take the place of heads and MLPs, and (`.sentence`) of which pictures they are."""
        return self.forward.reference(self.placed.size(size))

    def experiment(
        self, image, size: int | tuple[int, int] | None = None, *, shuffle: int | None = None, positions=True
    ) -> Trace:
        """The trace of a picture with its patches shuffled (by a seed), or without position embeddings.

        `image` as for `trace`, or the View of a trace, taken as it is. The weights stay as they are and the
        result is kept nowhere. VitvizError where `positions=False` and these are not a learned table alone.

        >>> inspector.experiment(image, shuffle=1, positions=False).top(3)  # doctest: +SKIP
        """
        prepared, seen = self.forward.prepare(image, size)
        if shuffle is not None:
            prepared = shuffling.shuffled(prepared, self.grid(seen), shuffle)
        name = self.checkpoint.name
        change = None if positions else lambda model: shuffling.without_positions(model, name)
        return self.forward.traces([prepared], seen, change=change)[0]

    def hook(self, point: str, fn: TensorChange) -> AbstractContextManager[None]:
        """Calls `fn` with a tensor "batch token width" of each pass inside the `with`, to read or replace it.

        `point` is blocks.N.input, blocks.N.attn, blocks.N.mlp (both before LayerScale) or blocks.N.output, N
        from 0. What `fn` returns, unless None, takes the tensor's place. Closed on exit and on error.
        Meanwhile it holds for passes that other threads begin here, too; not for those that had begun.

        >>> with inspector.hook("blocks.3.mlp", lambda tensor: tensor * 0):  # doctest: +SKIP
        ...     without_mlp = inspector.trace(image)
        """
        return self.placed.hooks.asked(self.model, point, fn, self.checkpoint.name)

    def patch_filters(self) -> Float[Tensor, "width channel height2 width2"] | None:
        """The linear embedding's weights E as D filters of C x P x P; None where none are cut from pixels."""
        return tracing.patch_filters(self.model)

    def stem_filters(self) -> Float[Tensor, "width channel height2 width2"] | None:
        """The first convolution of a hybrid's stem; None where there is no stem."""
        return tracing.stem_filters(self.model)

    def position_table(self, size: tuple[int, int] | None = None) -> Float[Tensor, "patch width"] | None:
        """The learned absolute position embeddings of the patches (no prefix), interpolated to a size."""
        return tracing.position_table(self.placed.at(self.placed.size(size)))

    def position_tables(self, size: tuple[int, int] | None = None) -> list[Float[Tensor, "patch width"]]:
        """The same of this model and of every moment of its training that was kept."""
        table = self.position_table(size)
        if table is None:
            return []
        kept = snapshots.kept_tensors(self.checkpoint, *TABLES)
        return [table, *tracing.resized(self.model, self.placed.at(self.placed.size(size)), kept)]

    def position_kind(self) -> str:
        """How the model knows where a patch is: learned, rotary, relative, several joined by +, or none."""
        return tracing.position_kind(self.model)

    def parts(self, size: tuple[int, int] | None = None) -> parts.ModelParts:
        """The weights that equations 1 to 4 name, at an input size: E, the class token, E_pos, the head."""
        return parts.parts_of(self.placed.at(self.placed.size(size)))

    def tail(self, size: tuple[int, int] | None = None, device=readout_stages.CPU) -> ReadoutStage:
        """What stands between heads and logits at a size, on a `device`; UnsupportedModel says why not."""
        with self.placed.lock:
            return readout_stages.tail_of(
                self.placed.at(self.placed.size(size)), self.checkpoint.name, device
            )

    def read_now(
        self, tokens: Float[Tensor, "token width"], size: tuple[int, int]
    ) -> Float[Tensor, " class"]:
        """What the model's final norm, pooling and head say to tokens of any depth, in a pass's shapes."""
        with self.placed.lock:
            return readout_stages.read_now(self.placed.at(size), tokens)

    @in_float32()
    def readout(self, trace: Trace) -> Float[Tensor, " feature"]:
        """What the classifier is given (y of equation 4) for a trace of this checkpoint; else VitvizError."""
        y = readout_stages.read_now(
            self._behind(trace, "norm and pooling are"), trace.tokens[-1], pre_logits=True
        )
        if y.ndim == 1:
            return y
        # nothing is pooled: as 'auto'
        return y[0] if "class" in trace.grid.prefix_names else y[trace.grid.prefix :].mean(dim=0)

    def final_norm(self, trace: Trace, layer: int) -> Float[Tensor, "token width"]:
        """One depth's tokens of this checkpoint's trace through its own final norm, each by itself, float32.

        `layer` as in `vitviz.token_similarity`. Where the model norms only the mean of its tokens, it is that
        norm. VitvizError for another checkpoint's trace, UnsupportedModel for a model without a final norm.
        """
        model = self._behind(trace, "final norm is")
        return parts.final_norm(model, trace.tokens[layer], self.checkpoint.name)

    def _behind(self, trace: Trace, applied: str) -> nn.Module:
        """The model that made a trace; VitvizError where it was another checkpoint's."""
        if plain(trace.checkpoint) != plain(self.checkpoint.name):
            raise VitvizError(
                f"Given a trace of {trace.checkpoint}; expected one of {self.checkpoint.name}, whose"
                f" {applied} applied. Ask the inspector that made it."
            )
        return self.placed.at(trace.grid.pixels)
