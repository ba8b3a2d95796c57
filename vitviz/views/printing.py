"""Shared parts of the print figures: names of tokens and sources, and the map over the image.

A view's figure for print is the function `spec(view, subject, settings, asked)` in its module or, if that is
long, in the figure.py of its folder. The function uses the same items as the figure on the page. A view drawn
by the shared map or by its chart alone needs none.
"""

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitviz.charts.chart import finite_range, symmetric_limit
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec, Map, Panel, PatchFrame, Scale, Tiles
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import Item, View, item_values
from vitviz.views.controls import ModelShape
from vitviz.views.parts import FrameSettings
from vitviz.views.subject import Settings, ViewContext

NOTHING_GROWS = "{view} has no video over the layers: it does not change from layer to layer."
NO_PRINT = "{view} has no figure for print: it is drawn only in the browser."
GROWS = {"layer": "Layer {layer}", "depth": "Depth {depth}"}  # settings that vary in a video: frame labels
PINS = ("#e69f00", "#56b4e9", "#009e73", "#cc79a7")  # Okabe and Ito, distinct with any colour vision


@dataclass(frozen=True, eq=False)
class PrintStyle:
    """Style of a print figure.

    Attributes:
        detail: True to add the panels with detail.
        upload: The upright image, if there is one.
        picture: Name of the image or sample.
        dark: True for a dark background.
        language: Tag of the language, such as "en".
    """

    detail: bool = False
    upload: np.ndarray | None = None
    picture: str = ""
    dark: bool = False
    language: str = "en"


ALONE = PrintStyle()


def patch_name(patch: int) -> LocalizedText:
    """Return the page's name of a patch, such as "Patch 1" for the patch with index 0."""
    return LocalizedText("Patch {number}", number=patch + 1)


def place_name(grid: Grid, patch: int) -> LocalizedText:
    """Return the row and column, from 1, of the patch with this index, as text."""
    return LocalizedText("row {row}, column {col}", row=patch // grid.cols + 1, col=patch % grid.cols + 1)


def prefix_name(name: str) -> str:
    """Return the displayed name of a prefix token."""
    numbered = re.fullmatch(r"register (\d+)", name)
    return LocalizedText("register {number}", number=numbered[1]) if numbered else name


def token_name(grid: Grid, token: int) -> str:
    """Return a token's name; a patch's with its row and column. `token` counts prefix tokens, from 0."""
    if token < grid.prefix:
        return LocalizedText("the {name} token", name=prefix_name(grid.prefix_names[token]))
    patch = token - grid.prefix
    return LocalizedText("{patch} ({place})", patch=patch_name(patch), place=place_name(grid, patch))


WRITERS = {
    "embedding": "the embedding",
    "positions": "the positions",
    "constant": "inner biases",
    "biases": "biases",
    "bias": "Layer {layer}, bias",
    "head": "Layer {layer}, head {head}",
    "heads": "All heads of layer {layer}",
    "mlp": "Layer {layer}, MLP",
}


def writer_name(kind: str, *place: int) -> LocalizedText:
    """Return the displayed name of a source, given its kind, layer and head (from 1)."""
    return LocalizedText(WRITERS[kind], **dict(zip(("layer", "head"), place, strict=False)))


def writer_numbers(writer) -> tuple:
    """Return a source as (kind, layer, head), from 1; without those that it does not have."""
    return writer.kind, *(index + 1 for index in writer[1:] if index is not None)


def join_texts(*texts: str, by: str = " · ") -> LocalizedText:
    """Join texts with a dot, or with `by`."""
    names = [f"part{i}" for i in range(len(texts))]
    return LocalizedText(by.join(f"{{{name}}}" for name in names), **dict(zip(names, texts, strict=True)))


def setting_frames(name: str, settings: Settings, about: ModelShape) -> FrameSettings:
    """Return a video's frames (label, settings), one per value of the layer or depth setting `name`."""
    places = range(int(name == "layer"), about.layers + 1)
    return tuple((LocalizedText(GROWS[name], **{name: place}), {**settings, name: place}) for place in places)


def growing_frames(first: int, last: int, settings_until: Callable[[int], dict[str, Any]]) -> FrameSettings:
    """Return a video's frames (label, settings); each adds a layer and has `settings_until(last layer)`."""
    ends = range(first, last + 1)
    labels = (LocalizedText("Layers {first} to {last}", first=first, last=end) for end in ends)
    return tuple(zip(labels, map(settings_until, ends), strict=True))


def signed(value: float) -> str:
    """Format a number with its sign and two decimals.

    >>> signed(0.5), signed(-1.234)
    ('+0.50', '−1.23')
    """
    return f"{value:+.2f}".replace("-", "−")


def fixed(value: float, digits: int = 3) -> str:
    """Format a number with `digits` decimals and a true minus sign; zero has no sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def image_count_text(subject: ViewContext) -> LocalizedText:
    """Return the sentence on how many images the shown survey is based on."""
    if subject.survey is None:
        crops = subject.sampled().images
        return LocalizedText("Based on {count} crops of the four sample images.", count=crops)
    if subject.survey.images == 1:
        return LocalizedText("Based on one image.")
    return LocalizedText("Based on {count} images.", count=subject.survey.images)


def difference_scale(settings: Settings, values: np.ndarray, scale: Scale) -> Scale:
    """Return `scale`; if "difference" is on, one symmetric about zero that covers the values instead."""
    if settings.get("difference") != "on":
        return scale
    limit = symmetric_limit(values)
    return Scale("balance", -limit, limit, LocalizedText("{what}: after − before", what=scale.label))


def patch_tiles(grid: Grid, pictures: np.ndarray, **look: Any) -> Tiles:
    """Return a picture per patch in the grid's layout, with numbered columns and rows."""
    cols, rows = (tuple(str(i + 1) for i in range(count)) for count in (grid.cols, grid.rows))
    x_label, y_label = LocalizedText("Input patch column"), LocalizedText("Input patch row")
    return Tiles(pictures, grid.cols, cols=cols, rows=rows, x_label=x_label, y_label=y_label, **look)


def grid_aspect(grid: Grid) -> float:
    """Return height / width of the grid in pixels."""
    return grid.pixels[0] / grid.pixels[1]


def crop_on_upload(upload: np.ndarray, view: Any) -> tuple[float, float, float, float]:
    """Return the crop's (left, top, right, bottom) in pixels of an upload that may have been reduced."""
    x_scale, y_scale = upload.shape[1] / view.upload[0], upload.shape[0] / view.upload[1]
    left, top, right, bottom = view.box
    return x_scale * left, y_scale * top, x_scale * right, y_scale * bottom


def model_crop(subject: ViewContext, style: PrintStyle, grey: bool = False) -> np.ndarray:
    """Return the model's crop at the upload's resolution; without an upload, the model's input."""
    view = subject.trace.view
    picture = view.picture
    if style.upload is not None:
        left, top, right, bottom = (round(side) for side in crop_on_upload(style.upload, view))
        cut = style.upload[max(top, 0) : bottom, max(left, 0) : right]
        picture = cut if cut.size else picture
    if grey:
        light = picture @ np.array([0.2126, 0.7152, 0.0722])
        picture = np.repeat(np.rint(light)[..., None], 3, axis=-1).astype(np.uint8)
    return picture


def map_over_image(
    subject: ViewContext,
    style: PrintStyle,
    values: np.ndarray,
    scale: Scale | None,
    title: str,
    marks: tuple[PatchFrame, ...] = (),
    opacity: float = 0.72,
    pixels: np.ndarray | None = None,
) -> Map:
    """Return a map over the image as the model sees it, one sharp-edged cell per patch."""
    picture = model_crop(subject, style, grey=scale is not None and scale.colours == "balance")
    return Map(title, picture, values, pixels, scale, None, opacity, False, marks, grid_aspect(subject.grid))


def has_file(view: View, file: str) -> bool:
    """Return True if the view's folder contains a file of this name, such as view.js."""
    return (Path(__file__).with_name(view.slug) / file).is_file()


def is_mapped(view: View) -> bool:
    """Return True if a shared script draws the view because its folder has none."""
    return not has_file(view, "view.js")


def map_item(view: View) -> Item | None:
    """Return the view's first item with axes that end in row and col, drawn over the image; else None."""
    return next((item for item in view.items if item.axes.split()[-2:] == ["row", "col"]), None)


def is_printable(view: View) -> bool:
    """Return True if the view has a figure for print."""
    has_figure = type(view).chart is not View.chart or hasattr(sys.modules[type(view).__module__], "spec")
    return (is_mapped(view) or has_figure or has_file(view, "figure.py")) and not view.export.unprinted


def figure_spec(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> FigureSpec:
    """Return the figure for print: that of the view's function `spec`, else one derived from map and chart.

    Raises:
        VitvizError: If the view has no figure for print; the message gives the reason.
    """
    if not is_printable(view):
        raise VitvizError(view.export.unprinted or LocalizedText(NO_PRINT, view=view.title))
    module = type(view).__module__
    if has_file(view, "figure.py"):
        return importlib.import_module(f"{module}.figure").spec(view, subject, settings, style)
    return getattr(sys.modules[module], "spec", derived_spec)(view, subject, settings, style)


def layer_frames(view: View, settings: Settings, about: ModelShape) -> FrameSettings:
    """Return a video's frames (label, settings) over the layers; raise VitvizError if no setting has them."""
    frames = view.export.video.frames
    grows = [control.name for control in view.controls if is_mapped(view) and control.name in GROWS]
    result = frames(settings, about) if frames else setting_frames(grows[0], settings, about) if grows else ()
    if not result:
        raise VitvizError(LocalizedText(NOTHING_GROWS, view=view.title))
    return result


def derived_spec(
    view: View, subject: ViewContext, settings: Settings, style: PrintStyle, detail: tuple[Panel, ...] = ()
) -> FigureSpec:
    """Return the figure of a view without an own `spec`: map, chart or both, and the panels `detail`."""
    chart = view.chart(subject, settings)
    mapped = shared_map(view, subject, settings, style) if map_item(view) else None
    panels = (*(panel for panel in (mapped, chart) if panel is not None), *detail)
    width = WIDE if len(panels) > 1 else NARROW if mapped else NARROW + 14
    return FigureSpec((panels,), chart.notes if chart else (), width=width)


def shared_map(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> Map:
    """Return the shared map: the item over the patches, on a scale symmetric about zero if it is signed."""
    item = map_item(view)
    values = item_values(view, subject, item.name, settings)
    lower = {control.name: control.minimum for control in view.controls if hasattr(control, "minimum")}
    for axis in item.axes.split()[:-2]:
        values = values[settings[axis] - lower[axis]]
    low, high = finite_range(values)
    colours = settings.get("colormap", "viridis")
    if item.signed:
        limit = symmetric_limit(values)
        low, high, colours = -limit, limit, "balance"
    elif settings.get("scale") == "zero":
        low = min(0.0, low)
    scale = difference_scale(settings, values, Scale(colours, low, high, item.description))
    return map_over_image(subject, style, values, scale, view.title, opacity=settings.get("opacity", 0.72))
