"""A loaded model that can be looked into: pictures go in, traces come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.effects import Effects
from vitviz.analyses.tail import Tail
from vitviz.analyses.target import Asked
from vitviz.engine import inputs, parts, tails
from vitviz.engine.checkpoint import Loaded
from vitviz.engine.forward import Forward
from vitviz.engine.models.given import Given
from vitviz.engine.models.in_memory import Pictured, loaded_of
from vitviz.engine.models.mapping_file import mapping_at
from vitviz.engine.passes import experiments, record, sweeps, taken
from vitviz.engine.passes.hooks import Hook
from vitviz.engine.passes.references import Reference, References
from vitviz.errors import VitvizError
from vitviz.runs import Without
from vitviz.shown import Shown
from vitviz.trace import Trace


class Inspector(Shown, Forward):
    """One checkpoint on one device. Safe to use from several threads, whose forward passes run beside each
    other.

    An inspector can be pickled; its hooks are not taken along.
    """

    def __init__(self, loaded: Loaded, device: str = "auto", dtype: str = "float32"):
        super().__init__(loaded, device, dtype)
        self._references = References()

    @classmethod
    def of(
        cls, model: nn.Module, *, mean=None, std=None, size: int | tuple[int, int] | None = None,
        interpolation: str | None = None, crop_pct: float | None = None, crop_mode: str | None = None,
        labels: Sequence[str] | None = None, heads: int | None = None, mapping: str | None = None,
        name: str | None = None, device: str = "auto", dtype: str = "float32",
    ) -> Inspector:  # fmt: skip
        """A model in memory as it is now: timm's, transformers' (ViT, DeiT, BEiT, DINOv2, …), or a PyTorch
        module.

        A copy is looked into, and training goes on undisturbed; it is proven to answer as the model does.
        `mean` and `std` (of values from 0 to 1) are what the model's pictures are normalised with: needed
        for a module of one's own, else its configuration's. `mapping` is the path of a mapping file for a
        module whose names leave more than one possibility. Raises UnsupportedModel for what is no plain
        ViT, VitvizError where something has to be said.

        >>> import timm
        >>> model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1)
        >>> Inspector.of(model, mean=0.5, std=0.5, device="cpu").grid().patches
        4
        """
        given = Given(heads, mean, std, crop_pct, crop_mode, interpolation, labels=labels)
        pictured = Pictured(given, None if size is None else inputs.asked_size(size, (0, 0)))
        names = None if mapping is None else mapping_at(mapping)
        return cls(loaded_of(model, pictured, name, names), device, dtype)

    def __repr__(self) -> str:
        return f"Inspector({self.checkpoint.name!r}, device={str(self.device)!r}, dtype={self.dtype!r})"

    def on(self, device: str) -> Inspector:
        """A twin on another device, with its own lock and without hooks; this one stays where it is.

        A twin in bfloat16 knows its distance from float32 if this one does.
        """
        twin = super().on(device)
        twin._references = References()
        return twin

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

        >>> without = vitviz.Without(heads=[(7, 1)], patches=[0, 17])  # doctest: +SKIP
        >>> inspector.trace(image, without=without).top(3)  # doctest: +SKIP
        """
        prepared, seen = self._seen(image, size)
        if not without:
            return self.traces([prepared], seen)[0]
        prepared, edit = taken.edited(self, prepared, seen, without, other, self.reference)
        return self.traces([prepared], seen, edit=edit)[0]

    def effects(
        self, image, target: Asked, heads_as: str = "mean", size: int | tuple[int, int] | None = None, *,
        mlps: bool = True, other=None, batch: int = 16,
        progress: Callable[[int, int], bool | None] | None = None,
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
        prepared, seen = self._seen(image, size)
        asked = sweeps.Asking(target, heads_as, mlps, other, batch, progress)
        return sweeps.swept(self, prepared, seen, asked, self.reference)

    def layer_effects(
        self, image, layer: int, heads_as: str = "mean", size: int | tuple[int, int] | None = None
    ) -> Float[Tensor, "part class"]:
        """The same of one layer (from 0) on all classes: its heads', then its MLP's, NaN where it has none.

        `image` as for `trace`, or the View of a trace, taken as it is. `heads_as`: "mean", "tokens" or
        "zero". Linear in the classes: the effect on a rather than b is the difference of two columns. Raises
        IndexError for such a layer, otherwise as `effects`.

        >>> inspector.layer_effects(image, 7)[:, 3]  # on the logit of class 3  # doctest: +SKIP
        """
        prepared, seen = self._seen(image, size)
        return sweeps.of_layer(self, prepared, seen, layer, sweeps.Asking(heads_as=heads_as), self.reference)

    def reference(self, size: int | tuple[int, int] | None = None) -> Reference:
        """The means that take the place of heads and MLPs, and (`.sentence`) of which pictures they are."""
        return self._references.of(self, self._size(size))

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
        prepared, seen = self._seen(image, size)
        if shuffle is not None:
            prepared = experiments.shuffled(prepared, self.grid(seen), shuffle)
        change = (
            None if positions else lambda model: experiments.without_positions(model, self.checkpoint.name)
        )
        return self.traces([prepared], seen, change=change)[0]

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
        return parts.readout(self._behind(trace, "norm and pooling are"), trace)

    def final_norm(self, trace: Trace, layer: int) -> Float[Tensor, "token width"]:
        """The tokens of one depth of this checkpoint's trace through its own final norm, each token by
        itself, float32.

        `layer` as in `vitviz.token_similarity`. Where the model norms only the mean of its tokens, it is that
        norm. VitvizError for another checkpoint's trace, UnsupportedModel for a model without a final norm.
        """
        model = self._behind(trace, "final norm is")
        return parts.final_norm(model, trace.tokens[layer], self.checkpoint.name)

    def _behind(self, trace: Trace, applied: str) -> nn.Module:
        """The model that made a trace; VitvizError where it was another checkpoint's."""
        if trace.checkpoint != self.checkpoint.name:
            raise VitvizError(
                f"Given a trace of {trace.checkpoint}; expected one of {self.checkpoint.name}, whose"
                f" {applied} applied. Ask the inspector that made it."
            )
        return self._at(trace.grid.pixels)
