"""The pieces that cards are made of: a frame with title and caption, tables, pictures, scales; and numbers of
patches, layers and classes as figures, each with its scale.

Colours are the notebook's own (`currentColor`), so that a card reads on a light and on a dark page; what is
drawn in a colour of its own keeps 3 : 1 to white and to near-black. Texts that strangers may have chosen
(labels, names of files) are escaped here and nowhere else.
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
from vitviz.charts.chart import Chart, balanced, by_layer, ends
from vitviz.charts.colormaps import coloured
from vitviz.charts.encode import encoded
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
    """Any text as HTML."""
    return html.escape(str(value))


def number(value: float | None) -> str:
    """Four digits; a dash where there is none."""
    return "–" if value is None or not np.isfinite(value) else f"{value + 0.0:.4g}"


def card(title: str, *body: str, caption: str = "") -> str:
    """What a result looks like: its name, its figures, and a sentence on what is seen, in which unit."""
    said = f"<p><small>{text(caption)}</small></p>" if caption else ""
    inside = f"<figcaption>{text(title)}</figcaption>{''.join(body)}{said}"
    return f'<div class="vitviz"><style>{STYLE}</style><figure>{inside}</figure></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Numbers stand at the right of their column, with four digits."""
    top = "".join(f"<th>{text(cell)}</th>" for cell in head)
    lines = ["".join(_cell(value) for value in row) for row in rows]
    headed = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    return f"<table>{headed}<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, str) or value is None or not np.isscalar(value):
        return f"<td>{text('–' if value is None else value)}</td>"
    return f'<td class="n">{value if isinstance(value, int) else number(float(value))}</td>'


def image(pixels: UInt8[np.ndarray, "height width 3"], said: str, width: int | None = None) -> str:
    """Pixels as they are, `width` CSS pixels wide."""
    data = base64.b64encode(encoded(pixels, ".png")).decode()
    size = f' style="width:{width}px"' if width else ""
    return f'<img alt="{text(said)}"{size} src="data:image/png;base64,{data}">'


def scale(low: float, high: float, colours: str, said: str, width: int = 240) -> str:
    """A colour bar with both ends, and zero where numbers are for and against."""
    ramp = coloured(np.linspace(0, 1, 256)[None].repeat(10, axis=0), 0.0, 1.0, colours)
    middle = "<span>0</span>" if low < 0 < high and colours == "balance" else ""
    ends = f"<span>{number(low)}</span>{middle}<span>{number(high)}</span>"
    bar = image(ramp, f"colours from {number(low)} to {number(high)}", width)
    told = f'<div class="vitviz-ends">{ends}</div><small>{text(said)}</small>'
    return f'<div style="width:{width}px;max-width:100%">{bar}{told}</div>'


def bounds(values: np.ndarray, diverging: bool = False) -> tuple[float, float, str]:
    """A scale over what is a number, its colours last; even about zero where numbers are for and against."""
    if diverging:
        most = balanced(values)
        return -most, most, "balance"
    return *ends(values), "viridis"


def squares(
    values: Float[np.ndarray, "*shape"], low: float, high: float, colours: str
) -> UInt8[np.ndarray, "*shape 3"]:
    """A pixel a number; mid-grey where there is none."""
    pixels = coloured(np.nan_to_num(values), low, high, colours)
    pixels[~np.isfinite(values)] = 128
    return pixels


WIDTH = 224  # CSS pixels of a map
STRIP = 72  # of one in a strip


def tensor_card(tensor: Any, what: TensorName) -> str:
    """The card of a named tensor: by its axes; as text where a picture of it would mean nothing."""
    values = np.asarray(tensor, dtype=np.float64)
    draw = {
        "layer head": lambda values, what: by_layers(values, what.unit, what.first),
        "row col": lambda values, what: map_card(values, what.unit, what.picture, what.diverging),
        "layer row col": _strip, "row col row2 col2": _mosaic,
        "layer token": _matrix, "layer class": _answers, "depth depth2": _square,
    }.get(what.axes)  # fmt: skip
    if draw is None or not values.size:
        return card(what.title, f"<pre>{text(tensor)}</pre>", caption=what.caption)
    return card(what.title, draw(values, what), caption=what.caption)


def map_card(values: Any, said: str, picture: np.ndarray | None = None, diverging: bool = False) -> str:
    """A map of patches with its colour bar: over its picture where that is known, else in squares."""
    values = np.asarray(values, dtype=np.float64)
    low, high, colours = look = bounds(values, diverging)
    pixels = squares(values, *look)
    if picture is not None and np.isfinite(values).all():
        pixels = overlay(picture, values, colours=colours, low=low, high=high)
    drawn = image(pixels, f"map of {values.shape[0]} × {values.shape[1]} patches: {said}", WIDTH)
    return f"<div>{drawn}{scale(*look, said, WIDTH)}</div>"


def atlas(pictures: Float[np.ndarray, "count row col channel"]) -> str:
    """Small pictures side by side, each stretched alone."""
    shown = np.rint(255 * display_scaled(pictures).numpy()).astype(np.uint8)
    if shown.shape[-1] != 3:
        shown = shown[..., :1].repeat(3, axis=-1)
    across = next((n for n in (7, 8, 6, 5) if len(shown) % n == 0), min(8, len(shown)))
    return image(_tiled(shown, across, gap=2), f"{len(shown)} filters", min(560, 60 * across))


def by_layers(values: Any, unit: str, first: int = 1, error: Any = None, up: str = "") -> str:
    """Dots of heads by layer, or a line of one number a layer, as paper draws them."""
    return inlined(by_layer(np.asarray(values), up or unit, first=first, error=error, unit=unit))


def inlined(chart: Chart) -> str:
    """A chart as SVG."""
    from vitviz.charts.mpl.page import inline  # with matplotlib

    return inline(chart)


def _strip(values: np.ndarray, what: TensorName) -> str:
    """A small map a layer, all on one scale."""
    look = bounds(values, what.diverging)
    small = [
        f"<span>{image(squares(one, *look), f'layer {n}', STRIP)}{n}</span>"
        for n, one in enumerate(values, what.first)
    ]
    return f'<div class="vitviz-strip">{"".join(small)}</div>{scale(*look, what.unit)}'


def _mosaic(values: np.ndarray, what: TensorName) -> str:
    """Each patch's own map, where the patch stands."""
    rows, cols = values.shape[:2]
    look = bounds(values)
    tiles = squares(rearrange(values, "row col row2 col2 -> (row col) row2 col2"), *look)
    whole = image(_tiled(tiles, cols, gap=1), f"{rows} × {cols} maps", 480)
    return f"{whole}{scale(*look, what.unit)}"


def _matrix(values: np.ndarray, what: TensorName) -> str:
    """Layers downwards, tokens across."""
    look = bounds(values)
    tall = max(1, round(0.4 * values.shape[1] / len(values)))
    pixels = squares(values, *look).repeat(tall, axis=0)
    return f"{image(pixels, f'{what.unit} by layer and token', 560)}{scale(*look, what.unit)}"


def _square(values: np.ndarray, what: TensorName) -> str:
    """A square a pair of depths, on a scale from 0 to 1."""
    pixels = image(squares(values, 0.0, 1.0, "viridis"), f"{what.unit} by depth and depth", WIDTH)
    return f"{pixels}{scale(0.0, 1.0, 'viridis', what.unit, WIDTH)}"


def _answers(values: np.ndarray, what: TensorName) -> str:
    """The likeliest class at every depth, and what the last one's had there; of values each of them."""
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
    """Pictures of one size in rows, with a grey line between them."""
    spare = ((0, -len(tiles) % across), (0, gap), (0, gap), (0, 0))
    spaced = np.pad(tiles, spare, constant_values=128)
    whole = rearrange(spaced, "(down across) row col rgb -> (down row) (across col) rgb", across=across)
    return whole[:-gap, :-gap]
