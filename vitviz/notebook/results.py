"""The public functions whose results are plain tensors, lists or arrays, with a name on what they return.

The analyses themselves stay pure and nameless; what is said here is what a notebook shows of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from torch import Tensor

from vitviz import analyses, engine, models
from vitviz.figures import overlay as laid
from vitviz.notebook.named import Name, Named
from vitviz.shown import Shown
from vitviz.surveys import compared


def _named(function: Callable[..., Tensor], name_of: Callable[[dict[str, Any]], Name]) -> Callable:
    """The function, its results named by `name_of`, which is handed all arguments by their names."""
    signature = inspect.signature(function)

    @wraps(function)
    def found(*arguments: Any, **more: Any) -> Named:
        result = function(*arguments, **more)
        bound = signature.bind(*arguments, **more)
        bound.apply_defaults()
        return Named.of(result, name_of(bound.arguments))

    return found


def _rollout(asked: dict[str, Any]) -> Name:
    trace = asked["trace"]
    layers = (
        "all layers"
        if asked["layers"] is None
        else "layers {} to {}".format(*(n + 1 for n in asked["layers"]))
    )
    told = (
        f"heads fused by {asked['fusion']}, discard {asked['discard']:g}, residual"
        f" {asked['residual']:g}, {layers}"
    )
    caption = (
        f"{trace.checkpoint}: from where attention carries information to {_asker(asked['query'])}; {told}."
    )
    return Name("Attention rollout", "row col", "share of attention", caption, picture=trace.view.picture)


def _asker(query: Any) -> str:
    if query == "auto":
        return "what the classifier reads"
    return (
        f"patch {query}"
        if isinstance(query, int)
        else "all tokens"
        if query == "mean"
        else f"the {query} token"
    )


def _distance(asked: dict[str, Any]) -> Name:
    alone = ", attention on patches alone" if asked["renormalise"] else ""
    caption = (
        f"{asked['trace'].checkpoint}: how far each head looks, mean over the patches as queries,"
        " in pixels of the model's"
        f" input{alone}. The line is the mean of the heads (paper, figure 7 right)."
    )
    return Name("Attention distance", "layer head", "px", caption)


def _similarity(asked: dict[str, Any]) -> Name:
    trace, centred = asked["trace"], ", the mean patch taken out" if asked["centred"] else ""
    caption = (
        f"{trace.checkpoint}: cosine of every patch with"
        f" {_patch(asked['patch'])}{_depth(asked['layer'])}{centred}."
    )
    return Name("Likeness of tokens", "row col", "cosine", caption, picture=trace.view.picture)


def _patch(patch: Any) -> str:
    return f"the patch in row {patch[0]}, column {patch[1]}" if isinstance(patch, tuple) else f"patch {patch}"


def _depth(layer: int) -> str:
    return " before block 1" if layer == 0 else f" behind block {layer}"


def _norms(asked: dict[str, Any]) -> Name:
    caption = (
        f"{asked['trace'].checkpoint}: the length of every token, prefix tokens first, from what"
        " enters block 1 (top) to the"
        " output of the last block."
    )
    return Name("Norms of tokens", "layer token", "Euclidean norm", caption, first=0)


def _lens(asked: dict[str, Any]) -> Name:
    trace, now = asked["trace"], asked["form"] == "now"
    how = "the final norm applied afresh" if now else "the final norm held, so that differences are shares"
    if asked["patches"]:
        caption = (
            f"{trace.checkpoint}: every patch's own answer for {asked['target']}, in logits, by depth; {how}."
        )
        return Name("Lens on patches", "layer row col", "logit", caption, diverging=True, first=0)
    caption = (
        f"{trace.checkpoint}: the answer that tokens of every depth give; {how}. Depth 0 enters block 1."
    )
    return Name("The answer forming", "layer class", "logit", caption, first=0, labels=trace.labels)


def _positions(asked: dict[str, Any]) -> Name:
    caption = (
        f"{asked['inspector'].checkpoint.name}: a small map for each patch, where it stands: the"
        " cosine of its position"
        " embedding with that of every other (paper, figure 7 centre)."
    )
    return Name("Similarity of position embeddings", "row col row2 col2", "cosine", caption)


def _cka(asked: dict[str, Any]) -> Name:
    one, other = asked["survey_a"], asked["survey_b"] or asked["survey_a"]
    caption = (
        f"Depths of {one.checkpoint} downwards, of {other.checkpoint} across, each from what enters block 1;"
        f" over {one.images} pictures, of the tokens: {asked['tokens']}. 1: alike but for a turn and a scale."
    )
    return Name("Likeness of representations", "depth depth2", "CKA", caption, first=0)


attention_distance = _named(analyses.attention_distance, _distance)
cka = _named(compared.cka, _cka)
lens = _named(models.lens, _lens)
position_similarity = _named(models.position_similarity, _positions)
rollout = _named(analyses.rollout, _rollout)
token_norms = _named(analyses.token_norms, _norms)
token_similarity = _named(analyses.token_similarity, _similarity)


class Listed(Shown, list):
    """A list of records that shows itself as a table."""

    def frame(self) -> Any:
        """A row each, as a pandas DataFrame; VitvizError where pandas is not installed."""
        from vitviz.frames import frame_of

        return frame_of([vars(one) for one in self])


@wraps(engine.checkpoints)
def checkpoints(*arguments: Any, **more: Any) -> Listed:
    return Listed(engine.checkpoints(*arguments, **more))


@wraps(engine.film)
def film(*arguments: Any, **more: Any) -> Listed:
    return Listed(engine.film(*arguments, **more))


class Picture(Shown, np.ndarray):
    """Pixels that show themselves."""


@wraps(laid.overlay)
def overlay(*arguments: Any, **more: Any) -> Picture:
    return laid.overlay(*arguments, **more).view(Picture)


__all__ = [
    "Listed", "Picture", "attention_distance", "checkpoints", "cka", "film", "lens", "overlay",
    "position_similarity", "rollout", "token_norms", "token_similarity",
]  # fmt: skip
