"""The pieces that cards are made of: a frame with title and caption, tables, pictures, scales.

Colours are the notebook's own (`currentColor`), so that a card reads on a light and on a dark page; what is
drawn in a colour of its own keeps 3 : 1 to white and to near-black. Texts that strangers may have chosen
(labels, names of files) are escaped here and nowhere else.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from vitviz.figures.colormaps import coloured
from vitviz.figures.encode import encoded

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
.vitviz svg text { font-size: 12px; fill: currentColor }
.vitviz svg circle { fill: #3580c0; fill-opacity: .85 }
.vitviz svg polyline { fill: none; stroke: currentColor; stroke-width: 1.5 }
.vitviz svg .grid { stroke: currentColor; stroke-opacity: .2 }
.vitviz svg .bar { stroke: #3580c0; stroke-width: 1.5 }
"""


def text(value: Any) -> str:
    """Any text as HTML."""
    return html.escape(str(value))


def number(value: float | None) -> str:
    """Four digits; a dash where there is none."""
    return "–" if value is None or not np.isfinite(value) else f"{value + 0.0:.4g}"


def card(title: str, *body: str, caption: str = "") -> str:
    """What a result looks like: its name, its figures, and a sentence that says what is seen and in which
    unit.
    """
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


def bounds(values: np.ndarray, diverging: bool = False) -> tuple[float, float]:
    """Both ends of a scale over what is a number; symmetric about zero where numbers are for and against."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    most = max(-low, high)
    return (-most, most) if diverging else (low, high)


def squares(
    values: Float[np.ndarray, "row col"], low: float, high: float, colours: str
) -> UInt8[np.ndarray, "row col 3"]:
    """A pixel a number; mid-grey where there is none."""
    pixels = coloured(np.nan_to_num(values), low, high, colours)
    pixels[~np.isfinite(values)] = 128
    return pixels


__all__ = ["bounds", "card", "image", "number", "scale", "squares", "table", "text"]
