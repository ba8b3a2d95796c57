"""Attention rollout (paper figure 6, appendix D.8)."""

from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import finite_range, symmetric_limit
from vitviz.charts.encode import encode_image
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec, Map, PatchFrame, Scale, Tiles, scale_to_rgb
from vitviz.charts.overlay import fade_outside_crop, overlay
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import PAPER, View, ViewTexts, drawing_item, item_values
from vitviz.views.controls import (
    DIFFERENCE,
    Choice,
    IntSetting,
    LayerRange,
    ModelShape,
    QuerySetting,
    Slider,
    position_of_name,
)
from vitviz.views.parts import ExportDefaults, File, FrameSettings, VideoDefaults
from vitviz.views.printing import (
    PrintStyle,
    crop_on_upload,
    difference_scale,
    fixed,
    grid_aspect,
    growing_frames,
    join_texts,
    prefix_name,
    token_name,
)
from vitviz.views.subject import Settings, ViewContext

AUTO = {
    "class": "class token",
    "average": "mean over patches",
    "average of all": "mean over all tokens",
    "max": "maximum over patches",
    "max of all": "maximum over all tokens",
    "average and max": "mean and maximum over patches",
    "average and max of all": "mean and maximum over all tokens",
    "class and average": "class token and mean over patches",
    "class and distillation": "class token",
    "attention": "attention pooling",
}
MAPS = (("viridis", "Viridis"), ("magma", "Magma"), ("inferno", "Inferno"), ("cividis", "Cividis"))
_HEAT = {"overlay": ("heat",)}
_ASKED = ("query", "fusion", "discard", "residual", "layers")
EXTRA_TEXTS = (*AUTO.values(),)


def _layer_frames(settings: Settings, about: ModelShape) -> FrameSettings:
    """Return the frames of a video whose rollout adds one layer of the range per frame."""
    first, last = settings["layers"] or (1, about.layers)
    return growing_frames(first, last, lambda to: {**settings, "layers": (first, to), "alone": 0})


def _overlay_png(view: View, subject: ViewContext, settings: Settings, upload: np.ndarray) -> bytes:
    """Return the overlay as on a light page, as a PNG with the pixels of `upload`."""
    alone = settings["alone"]
    laid = item_values(view, subject, "layers" if alone else "map", settings)
    laid = laid[alone - 1] if alone else laid
    style = [settings[name] for name in ("overlay", "opacity", "colormap")]
    low, high = float(laid.min()) if settings["scale"] == "data" else 0.0, None
    if settings["difference"] == "on":
        high = symmetric_limit(laid)
        low, style[0], style[2] = -high, "heat", "balance"
    box, smooth = crop_on_upload(upload, subject.trace.view), settings["smooth"] == "on"
    return encode_image(overlay(upload, laid, box, *style, smooth, low, high), ".png")


class RolloutView(View):
    title = "Rollout"
    words = ViewTexts.read(__file__, cites=PAPER)
    controls = (
        QuerySetting("query", "Query"),
        Choice(
            "fusion", "Heads fused by", options=(("mean", "Mean"), ("max", "Maximum"), ("min", "Minimum")),
        ),
        Slider(
            "discard", "Discard", "fraction of the smallest attention weights that is set to zero",
            maximum=0.99, step=0.01, advanced=True,
        ),
        Slider(
            "residual", "Residual weight", "weight of the skip connection in each layer", step=0.05,
            default=0.5,
        ),
        LayerRange("layers", "Layers", advanced=True),
        Choice(
            "overlay", "Overlay", options=(("heat", "Heat map"), ("paper", "As in the paper")), advanced=True,
        ),
        Slider(
            "opacity", "Opacity", step=0.05, default=0.65, only={**_HEAT, "difference": ("on",)},
            advanced=True,
        ),
        Choice("colormap", "Colours", options=MAPS, only=_HEAT, advanced=True),
        Choice(
            "scale", "Scale", options=(("data", "From lowest to highest"), ("zero", "From zero")), only=_HEAT,
            advanced=True,
        ),
        Choice("smooth", "Interpolation", options=(("on", "Smooth"), ("off", "Patches")), advanced=True),
        # the one layer in view instead of the rollout, from 1; 0 for none
        IntSetting("alone", maximum="layers"),
        DIFFERENCE,
    )  # fmt: skip
    items = (
        drawing_item("map", "row col", "share of attention over all layers", *_ASKED, differs=True),
        drawing_item(
            "layers", "layer row col", "mean attention of the query, by layer", "query", differs=True
        ),
    )
    export = ExportDefaults(
        arrays={"rollout": "row col", "mean_attention_by_layer": "layer row col", "crop_box": "edge"},
        files=(File("overlay.png", "Overlay, full size (PNG)", "image/png", _overlay_png),),
        endpoint="rollout",
        video=VideoDefaults(frames=_layer_frames),
    )

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the classifier's pooling, and the text for query "auto", for the script."""
        pool = subject.trace.pool
        read = "class" if "class" in subject.grid.prefix_names else "average"  # without a classifier
        return {"auto": AUTO.get(pool, AUTO[read]), "pool": pool}

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return the rollout, (row, col), or mean attention of the query, (layer, row, col)."""
        if name == "layers":
            return analyses.mean_attention(subject.trace, settings["query"]).numpy()
        layers = settings["layers"] and tuple(layer - 1 for layer in settings["layers"])
        options = {name: settings[name] for name in _ASKED}
        return analyses.rollout(subject.trace, **{**options, "layers": layers}).numpy()

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the rollout, the mean attention by layer and the crop box, for export."""
        return {
            "rollout": item_values(self, subject, "map", settings),
            "mean_attention_by_layer": item_values(self, subject, "layers", settings),
            "crop_box": np.asarray(subject.trace.view.box),
        }


def spec(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> FigureSpec:
    """Return the rollout, or one layer, over the upload; with detail every layer's attention."""
    full_map = np.asarray(item_values(view, subject, "map", settings), float)
    layers = np.asarray(item_values(view, subject, "layers", settings), float)
    alone = settings["alone"]
    values = layers[alone - 1] if alone else full_map
    label = LocalizedText("Layer {layer} alone", layer=alone) if alone else LocalizedText("Rollout")
    title = join_texts(label, _query_name(view, subject, settings["query"]))
    main = _overlay_map(subject, settings, style, values, title)
    notes = (_share(subject, settings, values),)
    if not style.detail:
        return FigureSpec(((main,),), notes, width=NARROW)
    colours = "grey" if settings["overlay"] == "paper" else settings["colormap"]
    scales = (Scale(colours, 0.0, float(layer.max()) or 1.0, "") for layer in layers)
    pairs = zip(layers, scales, strict=True)
    tiles = np.stack([scale_to_rgb(w, difference_scale(settings, w, scale)) for w, scale in pairs])
    across = int(np.ceil(np.sqrt(1.6 * len(layers))))
    names = tuple(str(layer + 1) for layer in range(len(layers)))
    caption = LocalizedText("Each layer separately: mean over its heads, each map scaled separately")
    strip = Tiles(tiles, across, caption, names, gap=0.08, aspect=grid_aspect(subject.grid))
    return FigureSpec(((main, strip),), notes, width=WIDE)


def _query_name(view: View, subject: ViewContext, query: str | int) -> str:
    """Return the displayed name of the query token."""
    if query == "auto":
        return view.summary(subject)["auto"]
    if query == "mean":
        return LocalizedText("all tokens, on average")
    return token_name(subject.grid, position_of_name(str(query), subject.grid))


def _overlay_map(subject, settings, style, values: np.ndarray, title: str) -> Map:
    """Return the rollout over the upload, the part outside the crop faded, or as brightness ("paper")."""
    view = subject.trace.view
    picture = view.picture if style.upload is None else style.upload
    box = None if style.upload is None else crop_on_upload(style.upload, view)
    (low, high), smooth = finite_range(values), settings["smooth"] == "on"
    marks = (PatchFrame(settings["query"]),) if isinstance(settings["query"], int) else ()
    aspect = grid_aspect(subject.grid) if box is None else None
    if settings["overlay"] == "paper" and settings["difference"] != "on":
        scale = Scale("grey", 0.0, high or 1.0, LocalizedText("Brightness: share of attention, per patch"))
        return Map(title, picture, values, None, scale, box, smooth=smooth, aspect=aspect, lit=True)
    low = low if settings["scale"] == "data" and low < high else 0.0
    scale = Scale(settings["colormap"], low, high or 1.0, LocalizedText("Share of attention, per patch"))
    scale, picture = difference_scale(settings, values, scale), fade_outside_crop(picture, box)
    return Map(title, picture, values, None, scale, box, settings["opacity"], smooth, marks, aspect)


def _share(subject, settings, values: np.ndarray) -> str:
    """Return the sentence on how much of the attention lies on the patches."""
    share, names = float(np.nansum(values)), subject.grid.prefix_names
    if settings["difference"] == "on":
        return LocalizedText("Change summed over all patches: {share}.", share=fixed(share))
    if not names:
        return LocalizedText("All attention on patches: {share}.", share=f"{share:.3g}")
    tokens = LocalizedText("the prefix tokens ({names})", names=join_texts(*map(prefix_name, names), by=", "))
    tokens = LocalizedText("the {name} token", name=names[0]) if len(names) == 1 else tokens
    details = {"share": f"{share:.2f}", "tokens": tokens}
    return LocalizedText("Attention: {share} on patches, the rest on {tokens}.", **details)
