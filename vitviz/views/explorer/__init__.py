"""Attention explorer: the attention of any token in every head of every layer."""

import math
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import to_json
from vitviz.errors import TooMuch, UnsupportedModel
from vitviz.views import lazy
from vitviz.views.base import PAPER, View, ViewTexts, as_json, drawing_item, item_values, with_difference
from vitviz.views.controls import (
    DIFFERENCE,
    Choice,
    IntListSetting,
    IntSetting,
    ModelShape,
    QuerySetting,
    Slider,
    token_names,
)
from vitviz.views.explorer import score
from vitviz.views.parts import ExportDefaults, FrameSettings, VideoDefaults
from vitviz.views.printing import setting_frames
from vitviz.views.shared import class_name, json_bytes, shared_distances, shared_logit_terms
from vitviz.views.subject import Settings, ViewContext

WHOLE = 600  # up to this number of tokens a whole layer is sent, so hovering needs no request
_LINE = ("layer", "head", "direction")
_WALL = ("token", "direction", "difference")  # a difference is divided by its own maximum
_OF_A_LAYER = {"show": ("head", "mean"), "beside": ("score",)}
_OF_A_HEAD = {"show": ("head",), "beside": ("score",)}


def require_sendable(trace) -> None:
    """Raise TooMuch if a layer's attention (head, token, token) is too large to be sent at once."""
    if trace.grid.tokens > WHOLE:
        raise TooMuch(
            f"A whole layer is sent for inputs of up to {WHOLE} tokens, and this one has {trace.grid.tokens}."
            " Ask for the line of a token, with head and token. vitviz in Python gives the whole layer."
        )


def _skipped_items(subject: ViewContext) -> tuple[str, ...]:
    """Return the names of the items not to request: single rows if whole layers are sent, else layers."""
    return ("line", "pinned") if subject.grid.tokens <= WHOLE else ("layer",)


def _layer_frames(settings: Settings, about: ModelShape) -> FrameSettings:
    """Return the frames of a video over the layers; () for the rollout, which has no layer."""
    # a rollout is the same at every layer
    return () if settings["show"] == "rollout" else setting_frames("layer", settings, about)


class AttentionView(View):
    title = "Attention"
    words = ViewTexts.read(__file__, cites=PAPER)
    controls = (
        Slider("layer", "Layer", minimum=1, maximum="layers", default=1, only=_OF_A_LAYER),
        Slider("head", "Head", minimum=1, maximum="heads", default=1, only=_OF_A_HEAD),
        Choice(
            "show", "Main map",
            options=(("head", "This head"), ("mean", "Mean of heads"), ("rollout", "Rollout")),
        ),
        Choice(
            "direction", "The token", options=(("row", "attends to"), ("column", "is attended by")),
            advanced=True,
        ),
        Choice(
            "order", "Sort heads by", options=(("number", "number"), ("distance", "distance")),
            only={"beside": ("wall",)}, advanced=True,
        ),
        Choice("scale", "Colour scale", options=(("own", "per map"), ("shared", "shared")), advanced=True),
        IntSetting("token", maximum="tokens", default="middle", tokens=True),
        IntListSetting("pins", maximum="tokens", tokens=True),
        Choice("beside", options=(("wall", "All layers and heads"), ("score", "Score by source"))),
        QuerySetting("key"),  # key of the explained score; auto: the key with the largest weight
        QuerySetting("against", default="mean"),  # key whose score is subtracted
        DIFFERENCE,
    )  # fmt: skip
    items = (
        drawing_item(
            "layer", "head query key", "attention of a whole layer", "layer", dtype="float16", differs=True
        ),
        drawing_item("line", "token", "attention of the token, or to it", *_LINE, "token", differs=True),
        drawing_item("pinned", "pin token", "the same of pinned tokens", *_LINE, "pins", differs=True),
        drawing_item("wall", "layer head patch", "each map / its maximum", *_WALL, dtype="uint8"),
        drawing_item("wallmax", "layer head", "those maxima", *_WALL),
        drawing_item("distances", "layer head", "attention distance, px of the model's input"),
        drawing_item("entropy", "head", "mean entropy of a head's rows, nats", "layer"),
        drawing_item("rollout", "row col", "rollout with the token as its query", "token", differs=True),
        as_json("opening", "layer and head of the first screen, from 1"),
        as_json("contributions", "of each patch to the prediction's logit, on the first screen"),
        as_json(
            "score", "a score by writers", *_LINE, "token", "key", "against", only_when=(("beside", "score"),)
        ),
    )
    export = ExportDefaults(
        arrays={
            "rollout": "pick row col",
            "queries": "pick",
            "attention": "pick head token",
            "attention_distance": "layer head",
            "grid": "side",
            "score": "writer writer2",  # of the query, of the key
            "score_relative": "writer writer2",
            "score_sums": "line",  # score, sum of contributions, bias; the last two less the mean over keys
            "score_tokens": "pick",
            "score_writers": "writer",
        },
        endpoint="patch_attention",
        skipped=_skipped_items,
        video=VideoDefaults(frames=_layer_frames),
    )

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return "whole": True if the input has few enough tokens to send a whole layer at once."""
        return {"whole": subject.grid.tokens <= WHOLE}

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return an item by name: attention weights, rollout, distances, entropy or JSON bytes.

        Raise TooMuch if a whole layer is requested for an input of more than WHOLE tokens.
        """
        trace, layer = subject.trace, settings["layer"] - 1
        token, way = settings["token"], settings["direction"]
        if name == "layer":
            require_sendable(trace)
            matrix = trace.on_tokens(trace.on_tokens(trace.attention(layer)).swapaxes(1, 2))
            return matrix.swapaxes(1, 2).numpy()
        if name in ("line", "pinned"):
            queries = [token] if name == "line" else settings["pins"]
            lines = [_lines(trace, layer, query, way)[settings["head"] - 1].numpy() for query in queries]
            return lines[0] if name == "line" else np.reshape(lines, (-1, trace.grid.tokens))
        if name == "opening":
            return json_bytes(opening_head(trace))
        if name == "contributions":
            return json_bytes(to_json(patch_contributions(subject)))
        if name == "score":
            return json_bytes(to_json(score.score_panel(self, subject, settings)))
        if name == "distances":
            return shared_distances(subject).distance.numpy()
        if name == "entropy":
            return analyses.attention_entropy(trace, layer).numpy()
        if name == "rollout":
            if _is_dropped(trace, token):
                return np.full((trace.grid.rows, trace.grid.cols), np.nan)
            return analyses.rollout(trace, query=token_names(token, trace.grid)).numpy()
        differs = settings["difference"] == "on"
        wall = with_difference(subject, settings, lambda context: self._wall(context, token, way))
        maxima = np.abs(wall).max(axis=-1)
        shares = wall / np.maximum(maxima, 1e-30)[..., None]
        return maxima if name == "wallmax" else np.round(255 * ((shares + 1) / 2 if differs else shares))

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return, for export, the attention of the selected and pinned tokens in every head.

        Add distances, and the rollout and the score by source if they are shown.
        """
        trace, layer = subject.trace, settings["layer"] - 1
        picked = [settings["token"], *settings["pins"]]
        result = score.score_arrays(self, subject, settings) if settings["beside"] == "score" else {}
        if settings["show"] == "rollout":  # query row col
            maps = [item_values(self, subject, "rollout", {**settings, "token": pin}) for pin in picked]
            result["rollout"] = np.stack(maps)

        def lines_of(run: ViewContext) -> np.ndarray:
            return np.stack([_lines(run.trace, layer, at, settings["direction"]).numpy() for at in picked])

        return {
            **result,
            "queries": np.asarray([str(token_names(pin, trace.grid)) for pin in picked]),  # a token or patch
            "attention": with_difference(subject, settings, lines_of),
            "attention_distance": shared_distances(subject).distance.numpy(),
            "grid": np.asarray([trace.grid.rows, trace.grid.cols]),
        }

    def _wall(self, subject: ViewContext, token: int, way: str) -> np.ndarray:
        """Return one token's weights over the patches in every head: (layer, head, patch); 0 if dropped."""
        trace = subject.trace
        layers, prefix = range(len(trace.layers)), trace.grid.prefix

        def make() -> np.ndarray:
            return np.stack([_lines(trace, layer, token, way).numpy()[:, prefix:] for layer in layers])

        return np.nan_to_num(subject.once(f"wall {token} {way}", make))


def opening_head(trace) -> tuple[int, int]:
    """Return (layer, head), from 1, of the head that is shown first.

    Of the layers from the middle on, the head whose attention depends most on the query: the one with the
    largest mutual information of query and key patch. It is 0 for uniform attention and for a head that sends
    every query to the same patches (a sink).
    """
    layers = range((len(trace.layers) - 1) // 2, len(trace.layers))
    result = [lazy.redundancy.query_information(trace, layer) for layer in layers]
    return max(
        (
            (layer + 1, head + 1)
            for layer, row in zip(layers, result, strict=True)
            for head in range(len(row))
        ),
        key=lambda at: result[at[0] - 1 - layers[0]][at[1] - 1].item(),
    )


def patch_contributions(subject: ViewContext) -> dict[str, Any]:
    """Return the predicted class and each patch's contribution to its logit, through all heads, as JSON.

    The values are those of the map of Attribution: (patch). Raises UnsupportedModel for a model without a
    classifier, or if its contributions do not sum to the logit.
    """
    if subject.trace.logits is None:
        raise UnsupportedModel(f"{subject.checkpoint} has no classifier.")
    answer = int(subject.trace.logits.argmax())
    patches = analyses.attribution_of(shared_logit_terms(subject), answer).patches
    return {"class": class_name(subject.trace, answer), "values": patches.flatten().tolist()}


def _lines(trace, layer: int, token: int, way: str):
    """Return one token's attention in every head of a layer, (head, token); NaN for dropped patches."""
    if _is_dropped(trace, token):
        return trace.on_tokens(trace.attention(layer)[:, 0]) * math.nan
    attention_of = analyses.attends_to if way == "row" else analyses.attended_by
    return attention_of(trace, layer, token_names(token, trace.grid))


def _is_dropped(trace, token: int) -> bool:
    """Return True if the token (position from 0, prefix first) is a dropped patch."""
    patch = token - trace.grid.prefix
    return trace.kept is not None and patch >= 0 and patch not in trace.kept
