"""Building blocks of cards: frames, tables, images, colour scales and figures of patch, layer and class data.

Text uses the notebook's own colour (`currentColor`), so that a card is readable on light and dark pages.
Other colours keep a contrast of 3 : 1 to white and to near-black. Untrusted texts (labels, file names) are
escaped here and nowhere else.
"""

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, UInt8

from vitviz.analyses.filters import display_scaled
from vitviz.charts.chart import Chart, by_layer, finite_range, symmetric_limit
from vitviz.charts.colormaps import map_to_rgb
from vitviz.charts.encode import encode_image
from vitviz.charts.overlay import overlay
from vitviz.notebook.results import TensorName
from vitviz.traces.head_type import scores_of

STYLE = """
.vitviz { font: 14px/1.5 system-ui, sans-serif; max-width: 44rem; margin: .3rem 0 .8rem }
.vitviz figure { margin: .6rem 0 0 } .vitviz figcaption { font-weight: 600 }
.vitviz p { margin: .3rem 0 } .vitviz small { opacity: .85; font-size: 12.5px }
.vitviz img { display: block; max-width: 100%; height: auto; image-rendering: pixelated; border-radius: 3px }
.vitviz .vitviz-row { display: flex; flex-wrap: wrap; gap: 10px 18px; align-items: flex-start }
.vitviz .vitviz-ends { display: flex; justify-content: space-between; font-size: 12px }
.vitviz .vitviz-strip { display: flex; flex-wrap: wrap; gap: 6px; margin-top: 4px; font-size: 12px }
.vitviz table { border-collapse: collapse; margin: .4rem 0; background: none; font-size: 13px }
.vitviz td, .vitviz th { text-align: left; vertical-align: top; border: 0;
  border-bottom: 1px solid rgb(128 128 128 / .35);
  padding: .2rem .9rem .2rem 0; background: none; color: inherit; overflow-wrap: break-word }
.vitviz td.n { text-align: right; font-variant-numeric: tabular-nums }
.vitviz svg { width: 100%; max-width: 620px; height: auto; display: block }
"""


def text(value: Any) -> str:
    """Return any value as escaped HTML text."""
    return html.escape(str(value))


def number(value: float | None) -> str:
    """Return a number as text with four significant digits; a dash for None, NaN and infinity."""
    return "–" if value is None or not np.isfinite(value) else f"{value + 0.0:.4g}"


def card(title: str, *body: str, caption: str = "") -> str:
    """Return the HTML card of a result: title, body and caption."""
    said = f"<p><small>{text(caption)}</small></p>" if caption else ""
    inside = f"<figcaption>{text(title)}</figcaption>{''.join(body)}{said}"
    return f'<div class="vitviz"><style>{STYLE}</style><figure>{inside}</figure></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table; numbers are right-aligned, with four significant digits."""
    top = "".join(f"<th>{text(cell)}</th>" for cell in head)
    lines = ["".join(_cell(value) for value in row) for row in rows]
    headed = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    return f"<table>{headed}<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"


def _cell(value: Any) -> str:
    """Return a value as an HTML table cell: numbers right-aligned, None as a dash, booleans in words."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, str) or value is None or not np.isscalar(value):
        return f"<td>{text('–' if value is None else value)}</td>"
    return f'<td class="n">{value if isinstance(value, int) else number(float(value))}</td>'


def image(pixels: UInt8[np.ndarray, "height width 3"], label: str, width: int | None = None) -> str:
    """Return pixels as an img element, `width` CSS pixels wide."""
    data = base64.b64encode(encode_image(pixels, ".png")).decode()
    size = f' style="width:{width}px"' if width else ""
    return f'<img alt="{text(label)}"{size} src="data:image/png;base64,{data}">'


def scale(low: float, high: float, colours: str, label: str, width: int = 240) -> str:
    """Return a colour bar as HTML, labelled at both ends, and at zero for a diverging map; `label` below."""
    ramp = map_to_rgb(np.linspace(0, 1, 256)[None].repeat(10, axis=0), 0.0, 1.0, colours)
    middle = "<span>0</span>" if low < 0 < high and colours == "balance" else ""
    ends = f"<span>{number(low)}</span>{middle}<span>{number(high)}</span>"
    bar = image(ramp, f"colours from {number(low)} to {number(high)}", width)
    details = f'<div class="vitviz-ends">{ends}</div><small>{text(label)}</small>'
    return f'<div style="width:{width}px;max-width:100%">{bar}{details}</div>'


def bounds(values: np.ndarray, diverging: bool = False) -> tuple[float, float, str]:
    """Return (low, high, colour map name) for finite values; symmetric about zero if `diverging`."""
    if diverging:
        most = symmetric_limit(values)
        return -most, most, "balance"
    return *finite_range(values), "viridis"


def squares(
    values: Float[np.ndarray, "*shape"], low: float, high: float, colours: str
) -> UInt8[np.ndarray, "*shape 3"]:
    """Return one RGB pixel per number; mid-grey for NaN and infinity."""
    pixels = map_to_rgb(np.nan_to_num(values), low, high, colours)
    pixels[~np.isfinite(values)] = 128
    return pixels


WIDTH = 224  # width of a map, CSS pixels
ACROSS = 16  # maps of filters per row
STRIP = 72  # width of a map in a strip, CSS pixels


def tensor_card(tensor: Any, what: TensorName) -> str:
    """Return the card of a named tensor, drawn by its axes, or as text for other axes."""
    values = np.asarray(tensor, dtype=np.float64)
    draw = {
        "layer head": lambda values, what: by_layers(values, what.unit, what.first),
        "row col": lambda values, what: map_card(values, what.unit, what.picture, what.diverging),
        "layer row col": _strip, "row col row2 col2": _mosaic, "filter row col": _mosaic,
        "layer token": _matrix, "layer class": _class_table, "depth depth2": _square,
    }.get(what.axes)  # fmt: skip
    if draw is None or not values.size:
        return card(what.title, f"<pre>{text(tensor)}</pre>", caption=what.caption)
    return card(what.title, draw(values, what), caption=what.caption)


def map_card(values: Any, label: str, picture: np.ndarray | None = None, diverging: bool = False) -> str:
    """Return a patch map with its colour bar as HTML: over its image if given, otherwise in squares."""
    values = np.asarray(values, dtype=np.float64)
    low, high, colours = look = bounds(values, diverging)
    pixels = squares(values, *look)
    if picture is not None and np.isfinite(values).all():
        pixels = overlay(picture, values, colours=colours, low=low, high=high)
    drawn = image(pixels, f"map of {values.shape[0]} × {values.shape[1]} patches: {label}", WIDTH)
    return f"<div>{drawn}{scale(*look, label, WIDTH)}</div>"


def atlas(pictures: Float[np.ndarray, "count row col channel"]) -> str:
    """Return small images side by side as HTML, each scaled to its own range."""
    shown = np.rint(255 * display_scaled(pictures).numpy()).astype(np.uint8)
    if shown.shape[-1] != 3:
        shown = shown[..., :1].repeat(3, axis=-1)
    across = next((n for n in (7, 8, 6, 5) if len(shown) % n == 0), min(8, len(shown)))
    return image(_tiled(shown, across, gap=2), f"{len(shown)} filters", min(560, 60 * across))


def by_layers(values: Any, unit: str, first: int = 1, error: Any = None, up: str = "") -> str:
    """Return a chart of values by layer as SVG: a dot per head, or a line for one number per layer."""
    return inline_chart(by_layer(np.asarray(values), up or unit, first=first, error=error, unit=unit))


def inline_chart(chart: Chart) -> str:
    """Return a chart as SVG text."""
    from vitviz.charts.mpl.page import inline_svg  # imports matplotlib

    return inline_svg(chart)


def _strip(values: np.ndarray, what: TensorName) -> str:
    """Return one small map per layer as HTML, all on one scale."""
    look = bounds(values, what.diverging)
    small = ""
    for n, value in enumerate(values, what.first):
        small += f"<span>{image(squares(value, *look), f'layer {n}', STRIP)}{n}</span>"
    return f'<div class="vitviz-strip">{small}</div>{scale(*look, what.unit)}'


def _mosaic(values: np.ndarray, what: TensorName) -> str:
    """Return a map per patch (at the patch's position) or per filter as HTML, all on one scale."""
    *many, rows, cols = values.shape
    look = bounds(values, what.diverging)
    tiles = squares(values.reshape(-1, rows, cols), *look)
    across = many[1] if len(many) == 2 else ACROSS
    whole = image(_tiled(tiles, across, gap=1), f"{' × '.join(map(str, many))} maps", 480)
    return f"{whole}{scale(*look, what.unit)}"


def _matrix(values: np.ndarray, what: TensorName) -> str:
    """Return a matrix as HTML, with layers as rows and tokens as columns."""
    look = bounds(values)
    tall = max(1, round(0.4 * values.shape[1] / len(values)))
    pixels = squares(values, *look).repeat(tall, axis=0)
    return f"{image(pixels, f'{what.unit} by layer and token', 560)}{scale(*look, what.unit)}"


def _square(values: np.ndarray, what: TensorName) -> str:
    """Return a matrix as HTML, with one square per pair of depths, on a scale from 0 to 1."""
    pixels = image(squares(values, 0.0, 1.0, "viridis"), f"{what.unit} by depth and depth", WIDTH)
    return f"{pixels}{scale(0.0, 1.0, 'viridis', what.unit, WIDTH)}"


def _class_table(values: np.ndarray, what: TensorName) -> str:
    """Return a table by depth: top class and score of the final class; for a head of values, all outputs."""
    scores = scores_of(torch.from_numpy(values), what.head_type).numpy()
    of_values = what.head_type == "value"
    last = int(values[-1].argmax())

    def name(number):
        other = "output" if of_values else "class"
        return what.labels[number] if number < len(what.labels) else f"{other} {number}"

    if of_values:
        rows = [(n, *map(float, row)) for n, row in enumerate(scores, what.first)]
        return table(("depth", *map(name, range(scores.shape[1]))), rows)
    rows = [
        (n, name(int(row.argmax())), f"{row.max():.1%}", f"{row[last]:.1%}", number(own[last]))
        for n, (row, own) in enumerate(zip(scores, values, strict=True), what.first)
    ]
    return table(("depth", "likeliest", "probability", f"of {name(last)}", "its logit"), rows)


def _tiled(tiles: np.ndarray, across: int, gap: int) -> np.ndarray:
    """Return images of one size as one image, `across` per row, with grey lines of `gap` px in between."""
    spare = ((0, -len(tiles) % across), (0, gap), (0, gap), (0, 0))
    spaced = np.pad(tiles, spare, constant_values=128)
    whole = rearrange(spaced, "(down across) row col rgb -> (down row) (across col) rgb", across=across)
    return whole[:-gap, :-gap]
