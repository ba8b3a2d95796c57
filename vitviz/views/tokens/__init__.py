"""Representations: similarity, components and norms of tokens at any depth, and similarity of heads."""

from dataclasses import replace
from typing import Any

import numpy as np

from vitviz.charts.chart import (
    BLUE,
    GREY,
    Bars,
    Chart,
    Matrix,
    ReferenceLine,
    Scale,
    finite_range,
    number,
    table,
    to_json,
)
from vitviz.errors import WrongSetting
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.samples import samples
from vitviz.views.base import Item, View, ViewTexts, as_json, chart_item, drawing_item, item_values
from vitviz.views.controls import DIFFERENCE, Choice, IntListSetting, IntSetting, ModelShape, Slider, Text
from vitviz.views.parts import ExportDefaults, FrameSettings, Scope, VideoDefaults
from vitviz.views.printing import prefix_name, setting_frames, token_name
from vitviz.views.shared import json_bytes
from vitviz.views.subject import Settings, ViewContext
from vitviz.views.tokens import compute

WHOLE = 1025  # up to this number of tokens the cosines of all pairs are sent, so hovering needs no request
LONG = "Two images can be compared up to {count} tokens. Choose a smaller input size."
COSINE = "Similarity of the heads in layer {layer}: cosine of their attention"
DIVERGENCE = "Difference of the heads in layer {layer}: Jensen-Shannon divergence"
BINS, FEW = 36, 4  # bins of the histogram; prefix tokens marked in it
HEAD, LAYER = LocalizedText("head"), LocalizedText("layer")
_TOKENS = ("depth", "norm", "mean")
_BASIS = ("norm", "basis", "other")
_SIMILARITY, _COMPONENTS, _NORMS, _HEADS = (
    {"show": (panel,)} for panel in ("similarity", "components", "norms", "heads")
)
_TOKEN_PANELS = {"show": ("similarity", "components")}
_COMPUTE = {  # item -> function of subject and settings
    "cosines": compute.cosines,
    "by_depth": compute.cosines_by_depth,
    "across": compute.cosines_across,
    "facing": compute.cosines_to_second_patch,
    "photo": compute.second_image,
    "tints": compute.component_colours,
    "other_tints": compute.second_component_colours,
    "components": compute.component_scores,
    "shares": compute.variance_shares,
}


def _skipped_items(subject: ViewContext) -> tuple[str, ...]:
    """Return the names of the items not to request: single rows if all cosines are sent, else all cosines.

    The script gets some other arrays within the item "matrices".
    """
    other = ("line", "pinned") if subject.grid.tokens <= WHOLE else ("cosines",)
    return (*other, "similarity", "sinks", "entropy", "prefix_entropy", "cosine", "divergence")


def _layer_frames(settings: Settings, about: ModelShape) -> FrameSettings:
    """Return the frames of a video over the depths; () for panel "heads", with all layers."""
    # the heads of all layers are in one figure
    return () if settings["show"] == "heads" else setting_frames("depth", settings, about)


class RepresentationsView(View):
    title = "Representations"
    scope = Scope(sided=True)
    words = ViewTexts.read(__file__)
    controls = (
        Choice(
            "show", "Show",
            options=(
                ("components", "Principal components"), ("similarity", "Patch similarity"),
                ("norms", "Norms"), ("heads", "Heads"),
            ),
        ),
        Slider(
            "depth", "Depth", "Depth 0 is the input of layer 1, depth 1 its output", maximum="layers",
            default="layers",
        ),
        Choice(
            "norm", "Tokens", options=(("raw", "Raw"), ("final", "Through the final norm")),
            only=_TOKEN_PANELS, advanced=True,
        ),
        Choice("mean", "Mean patch", options=(("out", "Subtracted"), ("in", "Kept")), only=_SIMILARITY),
        Choice(
            "basis", "Basis",
            options=(
                ("own", "Of this depth"), ("all", "Shared by all depths"), ("photo", "Shared by both images"),
                ("beside", "Shared by both checkpoints"), ("film", "Shared by all training steps"),
            ),
            only=_COMPONENTS,
        ),
        Choice(
            "tint", "Colours",
            options=(
                ("steady", "Aligned across depths"), ("plain", "Components 1, 2, 3 as red, green, blue"),
            ),
            only=_COMPONENTS, advanced=True,
        ),
        Slider(
            "k", "Limit: median + k · MAD", maximum=30, step=0.5, default=5,
            only={**_NORMS, "mark": ("on", "all")},
        ),
        Choice(
            "mark", "Patches above the limit",
            options=(("off", "Not marked"), ("on", "Marked"), ("all", "Marked in every view")),
            only=_TOKEN_PANELS, advanced=True,
        ),
        Choice(
            "measure", "Head measure",
            options=(("looked", "Effective tokens attended"), ("nats", "Entropy in nats")),
            only=_HEADS,
        ),
        Choice(
            "alike", "Head similarity", options=(("cosine", "Cosine"), ("divergence", "Jensen-Shannon")),
            only=_HEADS,
        ),
        Slider(
            "opacity", "Opacity", step=0.05, default=0.8,
            only={"show": ("similarity", "components", "norms")}, advanced=True,
        ),
        IntSetting("token", maximum="tokens", default="middle", tokens=True),
        IntListSetting("pins", maximum="tokens", tokens=True),
        Text("other", fits=r"[a-z]{0,20}|[0-9a-f]{40}"),  # the second image: name of a sample or key
        IntSetting("partner", maximum="patches"),  # selected patch of the second image
        replace(DIFFERENCE, only=_SIMILARITY),
    )  # fmt: skip
    items = (
        drawing_item(
            "cosines", "query key", "cosine of every two tokens", *_TOKENS, dtype="float16", differs=True,
        ),
        drawing_item(
            "line", "token", "cosine of each token with the chosen one", *_TOKENS, "token", differs=True,
        ),
        drawing_item("pinned", "pin token", "the same of pinned tokens", *_TOKENS, "pins", differs=True),
        drawing_item(
            "by_depth", "depth row col", "the same at every depth", "norm", "mean", "token", dtype="float16",
            differs=True,
        ),
        Item(
            "similarity", "row col", "cosine of each patch with the chosen token",
            depends=(*_TOKENS, "token"), differs=True,
        ),
        drawing_item(
            "across", "patch other", "cosine of each patch with each of the second photograph's", *_TOKENS,
            "other", dtype="float16",
        ),
        Item(
            "facing", "row col", "cosine of each patch with the chosen patch of the second image, if any",
            depends=(*_TOKENS, "other", "partner"),
        ),
        drawing_item(
            "photo", "y x channel", "the second photograph as the model gets it", "other", dtype="uint8",
        ),
        drawing_item("tints", "depth row col rgb", "colours", *_BASIS, "tint", dtype="uint8"),
        drawing_item("other_tints", "depth row col rgb", "the second's", *_BASIS, "tint", dtype="uint8"),
        Item("components", "row col component", "scores, first component first", depends=("depth", *_BASIS)),
        Item("shares", "depth component", "of the variance of what the basis was fitted to", depends=_BASIS),
        Item("norms", "depth token", "Euclidean norm of each raw token"),
        Item("usual", "depth figure", "median and MAD of the patches' norms"),
        Item("largest", "depth rank figure", "largest numbers: value, token and channel from 0"),
        Item("typical", "depth", "median magnitude of all numbers"),
        Item("received", "head token", "fraction of each head's attention on each token", depends=("depth",)),
        Item("sinks", "layer head figure", "largest such fraction, and the token that receives it"),
        Item("entropy", "layer head", "mean entropy of the patches' attention, nats"),
        Item("prefix_entropy", "layer head prefix", "entropy of each prefix token's attention, nats"),
        Item("cosine", "head head", "cosine of two heads' attention in the layer", depends=("depth",)),
        Item("divergence", "head head", "Jensen-Shannon divergence, nats", depends=("depth",)),
        as_json("matrices", "of heads and sinks", "show", "depth", "measure", "alike"),
        chart_item("show", "depth", "difference"),
    )  # fmt: skip
    export = ExportDefaults(
        arrays={"basis": "component width", "mean": "width", "grid": "side"},
        skipped=_skipped_items,
        video=VideoDefaults({"tint": "plain", "basis": "own"}, _layer_frames),
    )

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return name and title of the sample images, and "whole", for the script.

        "whole" is True if the input has few enough tokens to send the cosines of all pairs.
        """
        details = [[sample.name, sample.title] for sample in samples()]
        return {"whole": subject.grid.tokens <= WHOLE, "samples": details}

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return an item by name: cosines, components, colours, norms, attention or JSON bytes.

        Raise WrongSetting if cosines of all pairs are requested above WHOLE tokens.
        """
        trace, depth = subject.trace, settings["depth"]
        if name == "cosines" and trace.grid.tokens > WHOLE:
            raise WrongSetting(
                f"The cosines of all pairs are handed out up to {WHOLE} tokens; {trace.checkpoint} has "
                f"{trace.grid.tokens} at this input size. Ask for the line of a token instead."
            )
        if name == "matrices":
            return json_bytes(to_json(matrix_panels(self, subject, settings)))
        if name in ("line", "similarity"):
            line = compute.cosine_rows(subject, settings, [settings["token"]])[0]
            return line if name == "line" else line[trace.grid.prefix :].reshape(trace.grid.rows, -1)
        if name == "pinned":
            return compute.cosine_rows(subject, settings, settings["pins"])
        if name == "across" and trace.grid.tokens > WHOLE:
            raise WrongSetting(LocalizedText(LONG, count=WHOLE))
        if name in _COMPUTE:
            return _COMPUTE[name](subject, settings)
        if name in ("received", "cosine", "divergence"):
            return compute.layer_array(subject, name, max(depth, 1) - 1)
        if name == "sinks":
            return compute.sinks(subject)
        if name in ("entropy", "prefix_entropy"):
            return compute.entropies(subject, name)
        return compute.trace_arrays(subject)[name]

    def chart(self, subject: ViewContext, settings: Settings) -> Chart | None:
        """Return the histogram of the patches' norms, with those of prefix tokens.

        The limit is not included: the page draws it, and visitors drag it.
        """
        if settings["show"] != "norms":
            return None
        grid = subject.grid
        norms = np.asarray(self.item(subject, "norms", settings), float)[settings["depth"]]
        low, high = finite_range(norms)
        spare = 0.03 * (high - low) or 1.0
        patches = norms[grid.prefix :]
        patches = patches[np.isfinite(patches)]  # dropped patches are NaN
        counts, edges = np.histogram(patches, BINS, (max(0.0, low - spare), high + spare))
        middle, x_label = (edges[1:] + edges[:-1]) / 2, LocalizedText("Norm of the token")
        between = [f"{number(start)} – {number(end)}" for start, end in zip(edges, edges[1:], strict=False)]
        details = {"told": (LocalizedText("{name}: {value}"),)}
        details["also"] = {"name": [x_label] * BINS, "value": between}
        wide = 0.9 * float(edges[1] - edges[0])
        bars = Bars(middle, np.zeros(BINS), counts.astype(float), (BLUE,) * BINS, wide, **details)
        levels = []
        for norm, prefix in zip(norms, grid.prefix_names[:FEW], strict=False):
            name = LocalizedText("{name}: {value}", name=prefix_name(prefix), value=number(norm))
            levels.append(ReferenceLine(float(norm), name, upright=True, colour=GREY))
        reach = (float(edges[0]), float(edges[-1])), (0.0, 1.08 * float(counts.max()) or 1.0)
        axes, title = (x_label, LocalizedText("Patches"), *reach), LocalizedText("Norms of the patches")
        return Chart(*axes, title, bars=bars, levels=tuple(levels), whole=False, aspect=0.75)

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the arrays of the selected panel: similarity, components, norms or heads."""
        names = {
            "similarity": ("similarity", "line", "pinned"),
            "components": ("components", "shares", "tints"),
            "norms": ("norms", "usual", "largest", "typical", "received", "sinks"),
            "heads": ("entropy", "prefix_entropy", "cosine", "divergence"),
        }[settings["show"]]
        if settings["show"] == "similarity" and settings["other"]:
            names = (*names, "facing")
        result = {name: item_values(self, subject, name, settings) for name in names}
        if settings["show"] == "components":
            result |= compute.basis_arrays(subject, settings)
        result["grid"] = np.asarray([subject.grid.rows, subject.grid.cols])
        return result


def matrix_panels(view, subject, settings) -> tuple[Matrix, ...]:
    """Return the panel's matrices: of heads, or of attention sinks; () for a panel without matrices."""
    if settings["show"] == "heads":
        return _entropy_matrix(view, subject, settings), _head_similarity_matrix(view, subject, settings)
    return (_sink_matrix(view, subject, settings),) if settings["show"] == "norms" else ()


def _entropy_matrix(view, subject, settings) -> Matrix:
    """Return the matrix (head, layer) of attention entropy, in nats or as effective tokens."""
    looked, tokens = settings["measure"] == "looked", subject.trace.length
    nats, prefix = (np.asarray(view.item(subject, f"{p}entropy", settings)).T for p in ("", "prefix_"))
    if looked:
        text, low = LocalizedText("Effective number of tokens attended by each head"), 1.0
        high = float(tokens)
        label = LocalizedText("Effective tokens attended, of {count}", count=tokens)
    else:
        text, low = LocalizedText("Entropy of each head’s attention, patches as queries"), 0.0
        high = float(np.log(tokens))
        label = LocalizedText("Entropy in nats; uniform attention has {most}", most=number(high))
    counted = {"count": table(np.exp(nats), number), "value": table(nats, number)}
    details = [_cell_names(nats), LocalizedText("{count} effective tokens, entropy {value} nats", **counted)]
    for token, values in enumerate(prefix[:2]):
        text_details = {"token": token_name(subject.grid, token), "value": table(values, number)}
        details.append(LocalizedText("{token} as the query: {value} nats", **text_details))
    scale, column = Scale("viridis", low, high, label), max(settings["depth"], 1) - 1
    return Matrix(
        np.exp(nats) if looked else nats, scale, LAYER, HEAD, text, told=tuple(details), column=column
    )


def _head_similarity_matrix(view, subject, settings) -> Matrix:
    """Return the matrix (head, head) of the similarity or divergence of attention in a layer."""
    layer, heads = max(settings["depth"], 1), range(1, subject.about.heads + 1)
    alike = np.asarray(view.item(subject, settings["alike"], settings), float)
    if settings["alike"] == "cosine":
        title = LocalizedText(COSINE, layer=layer)
        scale = Scale("viridis", 0.0, 1.0, LocalizedText("Cosine"))
        text = LocalizedText("cosine {value}", value=table(alike, lambda value: f"{value:.3f}"))
    else:
        title = LocalizedText(DIVERGENCE, layer=layer)
        maximum = float(np.log(2))
        scale = Scale("magma", 0.0, maximum, LocalizedText("Nats, at most {most}", most=number(maximum)))
        text = LocalizedText("divergence {value} nats", value=table(alike, number))
    pair_text = LocalizedText("Heads {one} and {other}", one=[[head] for head in heads], other=[heads])
    return Matrix(alike, scale, HEAD, HEAD, title, told=(pair_text, text))


def _sink_matrix(view, subject, settings) -> Matrix:
    """Return the matrix (head, layer) of the largest fraction of attention on one token."""
    shares, tokens = np.asarray(view.item(subject, "sinks", settings), float).transpose(2, 1, 0)
    share = table(100 * shares, lambda value: f"{number(value)} %")
    at = table(tokens, lambda token: token_name(subject.grid, int(token)))
    even = LocalizedText("uniform: {even}", even=f"{number(100 / subject.trace.length)} %")
    details = (_cell_names(shares), LocalizedText("{share} to {token}", share=share, token=at), even)
    label = LocalizedText("Largest fraction of attention on one token")
    scale, column = Scale("viridis", 0.0, float(shares.max()) or 1.0, label), settings["depth"] - 1
    return Matrix(shares, scale, LAYER, HEAD, told=details, column=column)


def _cell_names(values: np.ndarray) -> LocalizedText:
    """Return the text that names every cell of a matrix (head, layer), such as "Layer 1, head 2"."""
    heads, layers = (range(1, count + 1) for count in values.shape)
    return LocalizedText("Layer {layer}, head {head}", layer=[layers], head=[[head] for head in heads])
