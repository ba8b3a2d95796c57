"""Wrappers of public functions that return tensors, lists or arrays: the results display themselves.

The analyses return plain tensors. The wrappers add the title, axes and unit that a notebook shows.

A `NamedTensor` is a tensor with a title, axes and a unit. Every computation with a `NamedTensor`, and every
copy or pickle of it, gives a plain tensor, because the title and unit may no longer apply.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from vitviz import analyses, engine, surveys
from vitviz.charts import overlay as laid
from vitviz.engine.studies import attribution
from vitviz.traces.display import NotebookChart, NotebookDisplay, NotebookTable
from vitviz.traces.head_type import HeadType


@dataclass(frozen=True)
class TensorName:
    """Title, axes, unit and display options of a tensor."""

    title: str
    axes: str  # names of the axes, such as "layer head"
    unit: str = ""
    caption: str = ""
    diverging: bool = False  # signed values: the scale is symmetric about zero
    first: int = 1  # number of the first layer; 0 if the first layer is the input of block 1
    picture: UInt8[np.ndarray, "height width 3"] | None = None  # image below a map
    labels: tuple[str, ...] = ()  # class labels
    head_type: HeadType = "softmax"


class NamedTensor(NotebookChart, NotebookTable, Tensor):
    """Tensor with a description in `.what`; all other behaviour is that of the original tensor."""

    what: TensorName
    __torch_function__ = torch._C._disabled_torch_function_impl  # computations return plain tensors

    @classmethod
    def wrap(cls, tensor: Tensor, name: TensorName) -> NamedTensor:
        """Return a named view of the tensor that shares its memory."""
        named = tensor.as_subclass(cls)
        named.what = name
        return named

    def plain(self) -> Tensor:
        """Return the tensor without its description."""
        return self.as_subclass(Tensor)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per number, with its index on each axis (from 0)."""
        axes, numbers = self.what.axes.split(), np.ndenumerate(self.plain().numpy())
        return [{**dict(zip(axes, place, strict=True)), "value": float(one)} for place, one in numbers]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self.plain())

    def __reduce_ex__(self, protocol: int) -> Any:
        return self.plain().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict) -> Tensor:
        return self.plain().__deepcopy__(memo)


def _named(function: Callable[..., Tensor]) -> Callable[[Callable[..., TensorName]], Callable]:
    """Return a decorator: the decorated function makes the TensorName of `function`'s result."""
    signature = inspect.signature(function)

    def decorate(name_of: Callable[..., TensorName]) -> Callable[..., NamedTensor]:
        @wraps(function)
        def wrapper(*arguments: Any, **more: Any) -> NamedTensor:
            result = function(*arguments, **more)
            bound = signature.bind(*arguments, **more)
            bound.apply_defaults()
            return NamedTensor.wrap(result, name_of(**bound.arguments))

        return wrapper

    return decorate


@_named(analyses.rollout)
def rollout(trace, query, fusion, discard, residual, layers) -> TensorName:
    """Return title, axes and caption of a rollout map."""
    first, last = layers or (0, len(trace.layers) - 1)
    which = "all layers" if layers is None else f"layers {first + 1} to {last + 1}"
    caption = (
        f"{trace.checkpoint}: from where attention carries information to {_query_in_words(query)};"
        f" heads fused by {fusion}, discard {discard:g}, residual {residual:g}, {which}."
    )
    picture = trace.view.picture
    return TensorName("Attention rollout", "row col", "share of attention", caption, picture=picture)


def _query_in_words(query: Any) -> str:
    """Return a rollout's query as a phrase, such as "all tokens" for "mean" or "patch 3" for 3."""
    if query == "auto":
        return "what the classifier reads"
    if isinstance(query, int):
        return f"patch {query}"
    return "all tokens" if query == "mean" else f"the {query} token"


@_named(analyses.attention_distance)
def attention_distance(trace, renormalise) -> TensorName:
    """Return title, axes, unit and caption of attention distances."""
    alone = ", attention on patches alone" if renormalise else ""
    caption = (
        f"{trace.checkpoint}: how far each head looks, mean over the patches as queries, in pixels"
        f" of the model's input{alone}. The line is the mean of the heads (paper, figure 7 right)."
    )
    return TensorName("Attention distance", "layer head", "px", caption)


@_named(analyses.token_similarity)
def token_similarity(trace, layer, patch, centred, **_) -> TensorName:
    """Return title, axes, unit and caption of all patches' cosines to one patch."""
    centre = ", the mean patch taken out" if centred else ""
    which = "the patch in row {}, column {}".format(*patch) if isinstance(patch, tuple) else f"patch {patch}"
    depth = "before block 1" if layer == 0 else f"behind block {layer}"
    caption = f"{trace.checkpoint}: cosine of every patch with {which} {depth}{centre}."
    return TensorName("Likeness of tokens", "row col", "cosine", caption, picture=trace.view.picture)


@_named(analyses.token_norms)
def token_norms(trace) -> TensorName:
    """Return title, axes, unit and caption of token norms by depth."""
    caption = (
        f"{trace.checkpoint}: the length of every token, prefix tokens first, from what enters block"
        " 1 (top) to the output of the last block."
    )
    return TensorName("Norms of tokens", "layer token", "Euclidean norm", caption, first=0)


@_named(attribution.logit_lens)
def logit_lens(inspector, trace, form, patches, target) -> TensorName:
    """Return title, axes, unit and caption of a logit lens, by class or by patch."""
    how = "the final norm held, so that differences are shares"
    how = "the final norm applied afresh" if form == "now" else how
    if patches:
        caption = f"{trace.checkpoint}: every patch's own answer for {target}, in logits, by depth; {how}."
        return TensorName("Lens on patches", "layer row col", "logit", caption, diverging=True, first=0)
    caption = (
        f"{trace.checkpoint}: the answer that tokens of every depth give; {how}. Depth 0 enters block 1."
    )
    trace = inspector.answered(trace)
    about = {"labels": trace.labels, "head_type": trace.head_type}
    return TensorName("Logit lens", "layer class", "logit", caption, first=0, **about)


@_named(attribution.position_similarity)
def position_similarity(inspector, **_) -> TensorName:
    """Return title, axes, unit and caption of position embeddings' cosines."""
    caption = (
        f"{inspector.checkpoint.name}: a small map for each patch, where it stands: the cosine of"
        " its position embedding with that of every other (paper, figure 7 centre)."
    )
    return TensorName("Similarity of position embeddings", "row col row2 col2", "cosine", caption)


@_named(attribution.filter_responses)
def filter_responses(trace, **_) -> TensorName:
    """Return title, axes, unit and caption of filters' responses."""
    caption = (
        f"{trace.checkpoint}: the sum of weight times normalised pixel of each filter in each patch,"
        " without the bias."
    )
    axes, unit = "filter row col", "weight · normalised pixel"
    return TensorName("Responses of filters", axes, unit, caption, diverging=True)


@_named(surveys.cka)
def cka(survey_a, survey_b, tokens) -> TensorName:
    """Return title, axes, unit and caption of the CKA between depths of surveys."""
    other = survey_b or survey_a
    caption = (
        f"Depths of {survey_a.checkpoint} downwards, of {other.checkpoint} across, each from what enters"
        f" block 1; over {survey_a.images} images, of the tokens: {tokens}. 1: equal up to rotation and"
        " scale."
    )
    return TensorName("Likeness of representations", "depth depth2", "CKA", caption, first=0)


class RecordList(NotebookTable, list):
    """List of records that displays itself as a table."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per record."""
        return [vars(one) for one in self]


class ImageResult(NotebookDisplay, np.ndarray):
    """Pixels that display themselves as an image."""


def _wrapping_results(function: Callable, shown: Callable[[Any], NotebookDisplay]) -> Callable:
    """Return `function` with its result converted by `shown`, to display itself in a notebook."""
    return wraps(function)(lambda *arguments, **more: shown(function(*arguments, **more)))


checkpoints = _wrapping_results(engine.checkpoints, RecordList)
training_snapshots = _wrapping_results(engine.training_snapshots, RecordList)
overlay = _wrapping_results(laid.overlay, lambda pixels: pixels.view(ImageResult))
