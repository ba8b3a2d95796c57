"""The passes that saliency methods need for one image and one target, each run once and on demand.

Implements `analyses.saliency.passes.Passes`. Nothing is stored on the model, and no instance is shared:
passes of two visitors run concurrently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.analyses.saliency.passes import KINDS, Gradients, PathGradients, WeightedAttention
from vitviz.analyses.target import TargetLike, classes_of, is_direction, score_of
from vitviz.engine import memory
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import exact_float32, inference_context, memory_guard
from vitviz.engine.forward import capture, gradients
from vitviz.engine.forward.gradients import product
from vitviz.engine.forward.own_model import require_known
from vitviz.engine.forward.patch_removal import PatchRemoval
from vitviz.engine.inspector import Inspector
from vitviz.engine.readout_stages import PARALLEL, PRE_NORM, require_repeated, scale_of
from vitviz.engine.studies.attribution import checked_logit_terms
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.localized_text import LocalizedText, not_applicable
from vitviz.traces.trace import Trace

NO_CLASSIFIER = (
    "{checkpoint} has no classifier, so it has no classes; pass a direction of the readout instead."
)


def score_function(model: nn.Module, trace: Trace, target: TargetLike) -> Callable[[Tensor], Tensor]:
    """Return a differentiable function from pixels (batch, channel, height, width) to one score an image.

    `target`: a class, (a, b), or a direction of the classifier's input. Raises VitvizError for an
    invalid target.
    """

    def project(pixels: Tensor) -> Tensor:
        """Return the projection of the classifier's input on the direction."""
        read = model.forward_head(model.forward_features(pixels), pre_logits=True)
        if target.shape != read.shape[1:] or not target.is_floating_point():
            raise VitvizError(
                f"The direction has the shape {tuple(target.shape)}; for {trace.checkpoint}, {read.shape[1]}"
                " real numbers are expected."
            )
        return read @ target.to(read)

    if is_direction(target):
        return project
    if trace.logits is None:
        raise VitvizError(LocalizedText(NO_CLASSIFIER, checkpoint=trace.checkpoint))
    classes = classes_of(trace, target)
    return lambda pixels: score_of(model(pixels), classes)


class _GivenHeadsPass:
    """A pass through the last block with given head outputs; records what the attention branch adds."""

    def __init__(self, head_outputs: Tensor):
        self._head_outputs, self.added = head_outputs, None

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> None:
        """Keep the output that the attention branch adds to the tokens."""
        if moment == "added attention":
            self.added = output

    def attend(self, *call, **named) -> Tensor:
        """Return the given head outputs, as a batch of one, in place of the attention call."""
        return self._head_outputs[None]


GradientCache = Callable[[str, Callable[[], Gradients]], Gradients]  # caches a pass by name

NO_NORM = "no norm precedes the last block's attention, and after it no patch has a gradient"
UNSEEN = "no gradient was found for its attention; choose another method"
OTHERWISE = (
    "{checkpoint} outputs {found} with explicit attention and {answer} with fused attention, so its"
    " gradients are not those of the prediction. vitviz shows no map rather than a wrong one."
)
FLOAT32 = "{checkpoint} computes in {dtype}; maps are computed in float32. Load it with dtype='float32'."

ABLATED = (
    "The trace is of an ablated {name}, and this map runs the full model. Pass a trace without ablation."
)

_BATCH = 8  # images at a time, on a path or with patches removed
# of the largest logit: allowed difference between a pass with explicit attention and the trace
TOLERANCE = 1e-4


class SaliencyInputs:
    """Passes of an image (path, PIL image, array, or its trace) and a target.

    The target is a class, (a, b) for a rather than b, or a direction. Raises ImageError, VitvizError for a
    target that does not exist, UnsupportedModel if attention cannot be captured.
    """

    def __init__(
        self, inspector: Inspector, image, target: TargetLike, patches_as: str = "dropped", size=None,
        once: GradientCache = lambda name, make: make(),
    ):  # fmt: skip
        if inspector.dtype != "float32":
            of = {"checkpoint": inspector.checkpoint.name, "dtype": inspector.dtype}
            raise VitvizError(LocalizedText(FLOAT32, **of))
        self.inspector, self.target, self.patches_as = inspector, target, patches_as
        self._once, self._made = once, {}
        is_trace = isinstance(image, Trace)
        prepared, seen = inspector.forward.prepare(image.view if is_trace else image, size)
        self.trace = inspector.answered(image) if is_trace else inspector.traces([prepared], seen)[0]
        self.model, self.pixels = inspector.placed.at(seen), inspector.forward.pixels([prepared])
        self.blocks = capture.transformer_blocks(self.model)
        self._score = score_function(self.model, self.trace, target)
        self.answer = self._plain()
        self._repeated = not is_trace  # True: a pass of this model gave the trace

    def tail(self) -> ReadoutStage:
        """Return the readout stage of the model at the trace's input size, on the trace's device."""
        return self.inspector.tail(self.trace.grid.pixels, self.trace.tokens[0].device)

    def ledger(self) -> LogitTerms:
        """Return the trace's logit attribution terms; raise UnsupportedModel if they do not add up."""
        return checked_logit_terms(self.inspector, self.trace)

    def gradients(self, held: bool = False) -> Gradients:
        """Return the model's gradients or, if `held`, the frozen linear map's; each pass runs once."""
        if held not in self._made:
            name = "held gradients" if held else "gradients"
            self._made[held] = self._once(name, lambda: self._pass(held))
        return self._made[held]

    def frozen_gradients(self) -> Gradients:
        """Return the gradients of the frozen linear map: norms' deviations and gates held constant."""
        return self.gradients(held=True)

    def answers(self, kept: Tensor) -> Tensor:
        """Return the logits (batch, class) of the image with only the patches `kept` (batch, k), from 0."""
        return self._removal.answers(kept)

    @cached_property
    def _removal(self) -> PatchRemoval:
        """The patch removal of this image, by the requested `patches_as`."""
        self._require_full_model()
        grid, pool, preprocessing = self.trace.grid, self.trace.pool, self.inspector.preprocessing
        return PatchRemoval(self.model, self.pixels, grid, pool, self.patches_as, preprocessing)

    @in_float32()
    def patches(self, handed: Tensor | None, alone: bool) -> Tensor:
        """Return each token's own logits after the last block; for a direction, the value along it.

        `handed` replaces the block's head outputs; `alone`: only what its attention adds.
        """
        tokens, weights = self.trace.tokens, next(self.model.parameters())
        with inference_context(weights.device):
            last = tokens[-1].to(weights) if handed is None else self._behind_last(handed.to(weights), alone)
            # repeat each patch at every position that may be read, so that pooling reads this patch alone
            each = self.model.norm(last)[:, None].expand(-1, self.trace.grid.prefix + 1, -1)
            if is_direction(self.target):
                logits = self.model.forward_head(each, pre_logits=True) @ self.target.to(weights)[:, None]
            else:
                logits = self.model.forward_head(each)
        return logits.to(tokens[-1])

    def _behind_last(
        self, head_outputs: Float[Tensor, "head token dim"], alone: bool
    ) -> Float[Tensor, "token width"]:
        """Return the last block's output; `alone`: only what its attention adds.

        Position tables and masks are not passed on; only the attention scores would need them.
        """
        listener, block = _GivenHeadsPass(head_outputs), self.blocks[-1]
        with capture.listening(self.model, self.blocks, listener):
            whole = block(self.trace.tokens[-2].to(head_outputs)[None])[0]
        if not alone:
            return whole
        scale = scale_of(block.ls) if type(block).__name__ == PARALLEL else None
        return listener.added[0] if scale is None else listener.added[0] * scale.to(head_outputs)

    def path(self, steps: int) -> PathGradients:
        """Return gradients integrated from the mean colour (0) to the image, at `steps` nodes."""
        self._require_full_model()
        total = torch.zeros_like(self.pixels)
        gauss = np.polynomial.legendre.leggauss(steps)
        nodes, weights = (torch.from_numpy(one).to(self.pixels) for one in gauss)
        self._require_room(attentions=False, batch=min(_BATCH, steps))
        for some, weight in zip(((1 + nodes) / 2).split(_BATCH), (weights / 2).split(_BATCH), strict=True):
            pixels = (some[:, None, None, None] * self.pixels).requires_grad_()
            with gradients.gradient_pass(self.model, self.blocks, held=False, terms=False):
                (slope,) = torch.autograd.grad(self._score(pixels).sum(), pixels)
            total += (weight[:, None, None, None] * slope).sum(dim=0, keepdim=True)
        with inference_context(self.inspector.device):
            start = self._score(torch.zeros_like(self.pixels)).item()
        return PathGradients(self._by_patch(total * self.pixels), start, steps)

    def cam_place(self) -> str:
        """Return in words where Grad-CAM reads activations; raise UnsupportedModel if there is no place."""
        require_known(self.model, "how its heads and MLPs write into its tokens")
        kind = type(self.blocks[-1]).__name__
        if self.trace.pool.startswith(("average", "max")):
            return LocalizedText("the last block's output")
        if self.trace.pool == "attention":
            return LocalizedText("the tokens that attention pooling reads")
        if kind not in (*PRE_NORM, PARALLEL):
            raise UnsupportedModel(not_applicable(self.trace.checkpoint, LocalizedText(NO_NORM)))
        return LocalizedText("the last block's norm before attention")

    @in_float32()
    def _pass(self, held: bool) -> Gradients:
        """Run a pass with gradients; return values times gradients of tokens, constants and pixels.

        `held` freezes norms, gates and attention, and gives neither attentions nor activations.
        """
        if self.trace.without:  # else `_check` compares this pass's own score first
            self._require_full_model()
        self._require_room(attentions=not held)
        leaf = self.pixels.clone()
        if getattr(self.model.patch_embed, "backbone", None) is None:
            leaf.requires_grad_()
        with gradients.gradient_pass(self.model, self.blocks, held=held) as gradient_pass:
            answer = self._score(leaf).sum()
        self._check(gradient_pass, answer, held)
        activation = None if held else self._activation(gradient_pass)
        attentions = [*(call[0] for call in gradient_pass.attentions if call), *gradient_pass.pooling[-1:]]
        inputs = [*gradient_pass.tokens, *(constant for _, _, constant in gradient_pass.lines), *attentions]
        inputs += [leaf] if leaf.requires_grad else []
        inputs += [] if activation is None else [activation]
        device = self.inspector.device
        with memory_guard(device, f"The gradient of {self.trace.checkpoint}"), exact_float32(device):
            result = torch.autograd.grad(answer, inputs, materialize_grads=True)  # zero for unused tensors
        slopes = {id(tensor): slope for tensor, slope in zip(inputs, result, strict=True)}
        tokens = [product(token, slopes[id(token)]).sum(dim=-1)[0] for token in gradient_pass.tokens]
        constants = {kind: torch.zeros(len(tokens) + 1, dtype=torch.float64) for kind in KINDS}
        for kind, depth, constant in gradient_pass.lines:
            constants[kind][depth + 1] += product(constant, slopes[id(constant)]).sum().cpu()
        pairs = ((each.detach()[0].cpu(), slopes[id(each)][0].cpu()) for each in attentions)
        weighed = [WeightedAttention(*pair) for pair in pairs]
        activations = activation_slopes = None
        if activation is not None:
            both = activation.detach(), slopes[id(activation)]
            activations, activation_slopes = (tensor[0, -self.trace.grid.patches :].cpu() for tensor in both)
        return Gradients(
            answer=answer.item(), tokens=torch.stack(tokens).cpu(), constants=constants,
            pixels=self._by_patch(product(leaf, slopes[id(leaf)])) if leaf.requires_grad else None,
            attentions=tuple(weighed[: len(self.blocks)]),
            pooling=weighed[len(self.blocks)] if len(weighed) > len(self.blocks) else None,
            activations=activations, slopes=activation_slopes,
        )  # fmt: skip

    def _activation(self, gradient_pass: gradients.GradientPass) -> Tensor | None:
        """Return the tensor of a pass that Grad-CAM reads, see `cam_place`; None if there is none."""
        try:
            place = self.cam_place()
        except UnsupportedModel:
            return None
        if place == "the last block's output":
            return gradient_pass.tokens[-1]
        if place == "the tokens that attention pooling reads":
            if isinstance(getattr(self.model, "norm", None), nn.Identity):
                return gradient_pass.tokens[-1]  # a norm after pooling does not belong to the pooled tokens
            return gradient_pass.normed.get(len(self.blocks), gradient_pass.tokens[-1])
        return gradient_pass.normed.get(len(self.blocks) - 1)

    def _check(self, gradient_pass: gradients.GradientPass, score: Tensor, held: bool) -> None:
        """Raise UnsupportedModel unless a pass has the plain pass's score and one attention per block."""
        if not held and any(len(calls) != 1 for calls in gradient_pass.attentions):
            raise UnsupportedModel(not_applicable(self.trace.checkpoint, LocalizedText(UNSEEN)))
        if not abs(score.item() - self.answer) <= TOLERANCE * max(abs(self.answer), self.trace.size):
            self._require_full_model()
            details = {"found": f"{score.item():.5f}", "answer": f"{self.answer:.5f}"}
            raise UnsupportedModel(LocalizedText(OTHERWISE, checkpoint=self.trace.checkpoint, **details))

    def _plain(self) -> float:
        """Return the model's score from a pass without gradients."""
        if not is_direction(self.target):
            classes = classes_of(self.trace, self.target)
            first, *second = self.trace.logits[classes].double().tolist()
            return first - sum(second)
        with inference_context(self.inspector.device):
            return self._score(self.pixels).item()

    def _require_full_model(self) -> None:
        """Raise VitvizError if the trace is not of the plain model, which all further passes run."""
        trace = self.trace
        if trace.without:
            raise VitvizError(ABLATED.format(name=trace.checkpoint))
        if not self._repeated and trace.logits is not None:
            with inference_context(self.inspector.device):
                require_repeated(trace.checkpoint, self.model(self.pixels)[0], trace.logits)
        self._repeated = True

    def _by_patch(self, pixels: Tensor) -> Tensor:
        """Return (row, col) sums of pixel values in each patch; pixels outside the grid are left out."""
        grid = self.trace.grid
        height, width = grid.patch
        whole = pixels.detach().double()[0, :, : grid.pixels[0], : grid.pixels[1]].sum(dim=0)
        return whole.unflatten(1, (grid.cols, width)).unflatten(0, (grid.rows, height)).sum(dim=(1, 3)).cpu()

    def _require_room(self, attentions: bool, batch: int = 1) -> None:
        """Raise OutOfMemory, with both figures, if a pass with gradients does not fit."""
        tokens, width = self.trace.tokens[0].shape
        layers, heads = len(self.trace.layers), self.trace.layers[0].heads
        needed = gradients.bytes_of_gradients(layers, heads, tokens, width, attentions, batch)
        what = f"The gradient of {self.trace.checkpoint}'s prediction at {tokens} tokens"
        advice = "Choose a smaller size, or a method without gradients."
        memory.require_memory(needed, self.inspector.device, what, advice)
