"""The `Inspector`: a loaded model that turns images into traces."""

from __future__ import annotations

import copy
import warnings
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
from vitviz.engine.ablation import apply_ablation, mean_outputs
from vitviz.engine.adapters.in_memory import loaded_of
from vitviz.engine.checkpoint import Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.formats.mapping import mapping_at
from vitviz.engine.formats.overrides import Overrides
from vitviz.engine.forward import shuffling, sweeps, tracing
from vitviz.engine.forward.mean_ablation import MeanOutputs
from vitviz.engine.forward.own_model import OwnModel
from vitviz.engine.forward.recording import TensorChange
from vitviz.engine.hub import snapshots
from vitviz.engine.images.preprocess import Prepared
from vitviz.engine.placement import MemoryDemand, PlacedModel, demand_of, requested_size
from vitviz.engine.runner import ForwardRunner
from vitviz.errors import AssumedWarning, VitvizError, quoted
from vitviz.traces.classes import Classes
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.grid import Grid, Size
from vitviz.traces.head_type import HeadType
from vitviz.traces.modes import methods_without_modes
from vitviz.traces.runs import Ablation
from vitviz.traces.text_classes import plain_name
from vitviz.traces.trace import ModelInput, Trace, TraceBatch

# trace -> classes of the last `answered` call, and the trace that it returned
_answered: WeakKeyDictionary[Trace, tuple[Classes | None, Trace]] = WeakKeyDictionary()
TABLES = ("pos_embed", "position_embeddings")  # how the names of position tables end in files


@methods_without_modes
class Inspector(NotebookDisplay):
    """One checkpoint on one device. Thread-safe: passes of several threads run concurrently.

    `forward` runs the passes; its `placed` holds the model. An Inspector can be pickled; its hooks are
    dropped.
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
        """Meaning of the outputs: "softmax", "sigmoid" or "value"; given classes define their own."""
        return self.placed.head_type if self.classes is None else self.classes.score

    def __init__(self, loaded: Loaded, device: str = "auto", dtype: str = "float32"):
        self.forward = ForwardRunner(PlacedModel(loaded, device, dtype))

    @classmethod
    def of(
        cls, model: nn.Module, *, mean=None, std=None, size: int | tuple[int, int] | None = None,
        interpolation: str | None = None, crop_pct: float | None = None, crop_mode: str | None = None,
        labels: Sequence[str] | None = None, heads: int | None = None, mapping: str | None = None,
        name: str | None = None, device: str = "auto", dtype: str = "float32",
        head_type: HeadType | None = None, blocks: str | None = None, output: str | int | None = None,
        patch: int | tuple[int, int] | None = None, prefix: Sequence[str] | None = None,
        bands: Sequence[int] | None = None,
    ) -> Inspector:  # fmt: skip
        """Return an Inspector of a model in memory.

        The model is timm's, transformers' (ViT, DeiT, DINOv2, …), or a PyTorch module.

        The Inspector holds a copy in the model's present state, so training can continue. The copy is checked
        to give the model's outputs. A module without such a copy is looked into as it is: its attention and
        tokens are known, the weights of its readout are not. `describe` lists what was found. An
        AssumedWarning says if the tokens that its output reads are not known.

        Args:
            model: The model.
            mean, std: Normalisation of pixel values from 0 to 1, one number or one for each channel. Required
                for a custom module; otherwise read from the model's configuration.
            size: Input size in pixels, one number or (height, width).
            interpolation, crop_pct, crop_mode: Resize and crop, as in timm.
            labels: Labels of the classes.
            heads: Number of attention heads.
            mapping: Path of a mapping file, for a module whose parameter names are ambiguous.
            name: Name of the checkpoint.
            device, dtype: As for `vitviz.load`.
            head_type: Meaning of the outputs: "softmax", "sigmoid" or "value". Required for a single output;
                otherwise read from transformers' configuration, else "softmax".
            blocks: Path of the transformer blocks in a module that is looked into as it is, such as
                "transformer.layers"; otherwise the longest run of modules of one type.
            output: Key, attribute or place of the class scores in what such a module returns.
            patch: Pixels of a patch of such a module, one number or (height, width).
            prefix: Names of the tokens that are no patches, in the order of the sequence.
            bands: As for `vitviz.load`.

        Raises:
            UnsupportedModel: The attention cannot be captured truthfully.
            VitvizError: A required argument is missing.

        >>> import timm
        >>> model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1)
        >>> Inspector.of(model, mean=0.5, std=0.5, device="cpu").grid().patches
        4
        """
        overrides = Overrides(
            heads, mean, std, crop_pct, crop_mode, interpolation, labels=labels, head_type=head_type,
            bands=bands
        )  # fmt: skip
        size = None if size is None else requested_size(size, (0, 0))
        names = None if mapping is None else mapping_at(mapping)
        patch = requested_size(patch, (0, 0)) if patch is not None else None
        asides = {"blocks": blocks, "output": output, "patch": patch, "prefix": prefix}
        loaded = loaded_of(model, overrides, size, name, names, asides)
        if isinstance(loaded.model, OwnModel) and dtype != "float32":
            raise VitvizError(
                f"{loaded.checkpoint.name} has no timm equivalent and is inspected in float32; omit dtype."
            )
        if assumption := getattr(loaded.model, "assumption", ""):
            warnings.warn(AssumedWarning(assumption), stacklevel=3)
        return cls(loaded, device, dtype)

    def describe(self) -> str:
        """Return what vitviz found in the model and how, one line a part.

        >>> import vitviz
        >>> print(vitviz.load("vitviz-tiny").describe().splitlines()[0])
        module: VisionTransformer, a timm model with this checkpoint's weights
        """
        findings = getattr(self.model, "findings", None) or parts.findings_of(self.model, self.grid())
        if note := self.preprocessing.channels_note:
            findings = {**findings, "channels": note}
        return "\n".join(f"{name}: {text}" for name, text in findings.items())

    def __repr__(self) -> str:
        return f"Inspector({self.checkpoint.name!r}, device={str(self.device)!r}, dtype={self.dtype!r})"

    def on(self, device: str) -> Inspector:
        """Return a copy on another device, with its own lock and without hooks; this one stays unchanged.

        A copy in bfloat16 takes over the measured deviation from float32.
        """
        return self.with_runner(self.forward.on(device))

    def with_runner(self, forward: ForwardRunner) -> Inspector:
        """Return a copy that uses another `ForwardRunner`."""
        twin = copy.copy(self)
        twin.forward = forward
        return twin

    def with_classes(self, classes: Classes, scale: float | None = None) -> Inspector:
        """Return a copy whose logits are cosines of the embedding with given classes.

        The copy shares all weights; this Inspector stays unchanged. An earlier trace needs no second pass:
        `answered` recomputes its logits.

        Args:
            classes: Labels with their vectors, one vector a class, as wide as the embedding.
            scale: Factor of the cosines, instead of `classes.scale`.

        Raises:
            VitvizError: The classes have another width or belong to another model, or the precision is not
                float32.
            UnsupportedModel: The model gives no single embedding for an image.

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
                f"{name} computes in {self.dtype}; cosines with given classes are computed in float32. Load"
                " it with dtype='float32'."
            )
        classes = classes if scale is None else replace(classes, scale=scale)
        return self.with_runner(self.forward.with_classes(classes))

    def answered(self, trace: Trace | TraceBatch) -> Trace | TraceBatch:
        """Return a trace with this Inspector's logits, computed from the trace's last tokens.

        No pass is run. A trace of the same classes is returned itself. Raises VitvizError for a trace of
        another checkpoint.
        """
        self.require_own(trace)
        if trace.classes == self.classes:
            return trace
        known, result = _answered.get(trace, (None, None))
        if result is None or known != self.classes:
            model, reads = self.placed.at(trace.grid.pixels), self.classes is not None
            reads = reads or tracing.classifies(model, self.checkpoint)
            logits = readout_stages.apply_readout(model, trace.tokens[-1]) if reads else None
            answer = {"logits": logits, "labels": self.labels, "classes": self.classes}
            result = replace(trace, checkpoint=self.checkpoint.name, **answer)
            _answered[trace] = self.classes, result
        return result

    def grid(self, size: tuple[int, int] | None = None) -> Grid:
        """Return the patch grid at the checkpoint's own input size, or at a (height, width) in pixels."""
        return self.placed.grid(size)

    def view(self, image, size: int | tuple[int, int] | None = None) -> ModelInput:
        """Return the model's input image, cut to whole patches, with its box on the upload; no pass is run.

        `image` and `size` are those of `trace`; the result is the `view` of that trace. Raises ImageError for
        a bad image and VitvizError for a size that does not fit.
        """
        prepared, seen = self.forward.prepare(image, size)
        return tracing.crop_to_grid(prepared.view, self.grid(seen))

    def demand(self, size: int | tuple[int, int] | None = None) -> MemoryDemand:
        """Return the tokens, multiplications and memory of an image at a size; nothing is refused."""
        return demand_of(self.model, self.grid(), requested_size(size, self.preprocessing.size))

    @renamed_parameters
    def trace(
        self, image, size: int | tuple[int, int] | None = None, ablation: Ablation | None = None, other=None
    ) -> Trace:
        """Run one forward pass on an image and return its record.

        Args:
            image: A path, PIL image, array or tensor. For a model that does not read RGB, an array or a
                tensor with as many channels, or a TIFF with as many bands.
            size: Input size in pixels, one number or (height, width): multiples of the patch. At another size
                than the checkpoint's own the position embedding is interpolated (section 3.2 of the paper),
                by the rule of the library that the model comes from.
            ablation: Heads, MLPs or patches to ablate, and their replacement. The model stays unchanged.
            other: Image for `ablation.other`; None: `ablation.other` names one of vitviz's samples.

        Returns:
            The trace. `.attention(layer)` is (head, query, key) with layers from 0; `.logits` is (class,), or
            None for a model without a classifier.

        Raises:
            ImageError: The image cannot be read.
            UnsupportedModel: The attention cannot be captured truthfully, or patches cannot be removed.
            OutOfMemory: The pass does not fit into memory.
            VitvizError: The size does not fit, or a head, MLP, layer or patch does not exist.
            Stopped: The request was cancelled during the pass (`vitviz.traces.cancellation`).

        >>> without = vitviz.Ablation(heads=[(7, 1)], patches=[0, 17])  # doctest: +SKIP
        >>> inspector.trace(image, ablation=without).top(3)  # doctest: +SKIP
        """
        prepared, seen = self.forward.prepare(image, size)
        if not isinstance(ablation, Ablation | None):
            raise VitvizError(
                f"ablation={quoted(ablation)} is no Ablation; pass vitviz.Ablation(heads=[(7, 1)]) or"
                " vitviz.Ablation.parse('heads=8.2')."
            )
        if not ablation:
            return self.traces([prepared], seen)[0]
        prepared, edit = apply_ablation(self.forward, prepared, seen, ablation, other)
        return self.forward.traces([prepared], seen, edit=edit)[0]

    def traces(self, prepared: list[Prepared], size: Size, keep_on_device: bool = False) -> list[Trace]:
        """Run one pass on prepared images at a (height, width) and return their traces.

        Traces are on the CPU, or with `keep_on_device` on the Inspector's device.
        """
        return self.forward.traces(prepared, size, keep_on_device)

    def batch(self, prepared: list[Prepared], size: Size, keep_on_device: bool = False) -> TraceBatch:
        """Run one pass as `traces` and return its record with a leading image axis."""
        return self.forward.batch(prepared, size, keep_on_device)

    def effects(
        self, image, target: TargetLike, heads_as: str = "mean", size: int | tuple[int, int] | None = None, *,
        mlps: bool = True, other=None, batch: int = sweeps.BATCH,
        progress: Callable[[int, int], bool | None] | None = None,
    ) -> AblationEffects:  # fmt: skip
        """Ablate each head and MLP in turn; return the drop of a target's logit (with - without it).

        Each change is computed from its layer on, `batch` changes at once. User hooks are disabled. Compare
        with direct attribution by `vitviz.analyses.agreement`.

        Args:
            image, size, other: As for `trace`.
            target: A class (its number from 0 or its label), or (a, b) for the logit of a minus that of b.
            heads_as: Replacement of the output, as for `Ablation`: "mean", "tokens", "zero" or "other".
            mlps: False to ablate heads alone.
            batch: Number of ablations in one pass.
            progress: Called as `progress(done, of)` after each batch; False ends the sweep.

        Returns:
            `.heads` (layer, head) and `.mlps` (layer,) in logits; NaN for parts that were not reached.

        Raises:
            As `trace`.

        >>> inspector.effects(image, target=3).heads  # (layer, head), in logits  # doctest: +SKIP
        """
        image = self.forward.prepare(image, size)
        return sweeps.sweep_parts(self.forward, *image, target, heads_as, mlps, other, batch, progress)

    def layer_effects(
        self, image, layer: int, heads_as: str = "mean", size: int | tuple[int, int] | None = None
    ) -> Float[Tensor, "part class"]:
        """Ablate each head and the MLP of one layer (from 0); return the drop of every logit, (part, class).

        Rows are the heads, then the MLP; a row is NaN where the layer has no MLP. The result is linear in the
        classes: the effect on a rather than b is the difference of two columns.

        Args:
            image: As for `trace`, or the `ModelInput` of a trace, which is used unchanged.
            layer: The layer, from 0.
            heads_as: Replacement of the output: "mean", "tokens" or "zero".
            size: As for `trace`.

        Raises:
            IndexError: The layer does not exist. Otherwise as `effects`.

        >>> inspector.layer_effects(image, 7)[:, 3]  # on the logit of class 3  # doctest: +SKIP
        """
        return sweeps.layer_effects(self.forward, *self.forward.prepare(image, size), layer, heads_as)

    def reference(self, size: int | tuple[int, int] | None = None) -> MeanOutputs:
        """Return the mean outputs that replace heads and MLPs; `.sentence` names the images of the mean."""
        return mean_outputs(self.forward, self.placed.size(size))

    def experiment(
        self, image, size: int | tuple[int, int] | None = None, *, shuffle: int | None = None, positions=True
    ) -> Trace:
        """Return the trace of an image with its patches shuffled (by a seed), or without position embeddings.

        The weights stay unchanged; the result is not cached.

        Args:
            image: As for `trace`, or the `ModelInput` of a trace, which is used unchanged.
            size: As for `trace`.
            shuffle: Seed of the order of the patches; None keeps the order.
            positions: False sets the position embeddings to zero.

        Raises:
            VitvizError: `positions=False` for a model whose positions are not a learned table alone.
                Otherwise as `trace`.

        >>> inspector.experiment(image, shuffle=1, positions=False).top(3)  # doctest: +SKIP
        """
        prepared, seen = self.forward.prepare(image, size)
        if shuffle is not None:
            prepared = shuffling.shuffle_patches(prepared, self.grid(seen), shuffle)
        name = self.checkpoint.name
        change = None if positions else lambda model: shuffling.without_positions(model, name)
        return self.forward.traces([prepared], seen, change=change)[0]

    def hook(self, point: str, fn: TensorChange) -> AbstractContextManager[None]:
        """Call `fn` with one tensor of each pass inside the `with` block, to read or replace it.

        The hook is removed on exit and on error. It also applies to passes that other threads begin
        meanwhile, not to passes that have already begun.

        Args:
            point: blocks.N.input, blocks.N.attn, blocks.N.mlp (both before LayerScale) or blocks.N.output,
                with N from 0.
            fn: Called with a tensor (batch, token, width). Its result replaces the tensor, unless it is None.

        >>> with inspector.hook("blocks.3.mlp", lambda tensor: tensor * 0):  # doctest: +SKIP
        ...     without_mlp = inspector.trace(image)
        """
        return self.placed.hooks.add(self.model, point, fn, self.checkpoint.name)

    def patch_filters(self) -> Float[Tensor, "width channel height2 width2"] | None:
        """Return the linear embedding's weights E as D filters of C x P x P.

        None if patches are not cut from pixels.
        """
        return tracing.patch_filters(self.model, self.preprocessing.channels)

    def stem_filters(self) -> Float[Tensor, "width channel height2 width2"] | None:
        """Return the first convolution of a hybrid's stem; None if there is no stem."""
        return tracing.stem_filters(self.model, self.preprocessing.channels)

    def position_table(self, size: tuple[int, int] | None = None) -> Float[Tensor, "patch width"] | None:
        """Return the learned absolute position embeddings of the patches (no prefix), interpolated to a size.

        None for a model without such a table.
        """
        return tracing.position_table(self.placed.sized(size))

    def position_tables(self, size: tuple[int, int] | None = None) -> list[Float[Tensor, "patch width"]]:
        """Return the `position_table` of this model and of every training snapshot.

        The list is empty for a model without such a table.
        """
        table = self.position_table(size)
        if table is None:
            return []
        sized, tables = self.placed.sized(size), snapshots.kept_tensors(self.checkpoint, *TABLES)
        return [table, *tracing.resize_position_tables(self.model, sized, tables)]

    def position_kind(self) -> str:
        """Return the kind of position encoding: learned, rotary, relative, several joined by +, or none."""
        return tracing.position_kind(self.model)

    def parts(self, size: tuple[int, int] | None = None) -> parts.ModelParts:
        """Return the weights of equations 1 to 4 at an input size: E, the class token, E_pos, the head."""
        return parts.parts_of(self.placed.sized(size), self.preprocessing.channels)

    def tail(
        self, size: tuple[int, int] | None = None, device=readout_stages.CPU, classifier: bool = True
    ) -> ReadoutStage:
        """Return the weights from all layers' heads to the logits: W_O, norms, pooling and classifier.

        Without `classifier`, only `layers` are the model's, and any pooling and classifier are accepted.
        Raises UnsupportedModel, with the reason, for a model whose computation is not understood.
        """
        with self.placed.lock:
            model = self.placed.sized(size)
            return readout_stages.readout_stage_of(model, self.checkpoint.name, device, classifier)

    def read_now(
        self, tokens: Float[Tensor, "*image token width"], size: tuple[int, int]
    ) -> Float[Tensor, "*image class"]:
        """Apply the model's final norm, pooling and head to tokens of any layer; return the logits.

        `tokens` has the shape of the tokens in a pass at `size`, (height, width) in pixels.
        """
        with self.placed.lock:
            return readout_stages.apply_readout(self.placed.at(size), tokens)

    @in_float32()
    def readout(self, trace: Trace) -> Float[Tensor, " feature"]:
        """Return the classifier's input (y of equation 4) for a trace of this checkpoint.

        Raises VitvizError for a trace of another checkpoint.
        """
        model = self._behind(trace)
        y = readout_stages.apply_readout(model, trace.tokens[-1], pre_logits=True)
        if y.ndim == 1:
            return y
        # nothing is pooled: follow the query 'auto' of rollout
        return y[0] if "class" in trace.grid.prefix_names else y[trace.grid.prefix :].mean(dim=0)

    def final_norm(self, trace: Trace, layer: int) -> Float[Tensor, "token width"]:
        """Return one layer's tokens of a trace, each normalised by the model's final norm, in float32.

        `layer` as in `vitviz.token_similarity`. A model that normalises only the mean of its tokens is read
        with that norm. Raises VitvizError for a trace of another checkpoint, UnsupportedModel for a model
        without a final norm.
        """
        model = self._behind(trace)
        return parts.final_norm(model, trace.tokens[layer], self.checkpoint.name)

    def require_own(self, trace: Trace | TraceBatch) -> None:
        """Raise VitvizError for a trace of another checkpoint."""
        if plain_name(trace.checkpoint) != plain_name(self.checkpoint.name):
            raise VitvizError(
                f"The trace is of {trace.checkpoint}; expected one of {self.checkpoint.name}. Use the"
                " inspector that made it."
            )

    def _behind(self, trace: Trace | TraceBatch) -> nn.Module:
        """Return the model that made a trace; raise VitvizError if the trace is of another checkpoint."""
        self.require_own(trace)
        return self.placed.at(trace.grid.pixels)
