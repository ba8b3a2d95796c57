"""Drawing primitives of figures for print: one page in millimetres, x to the right, y down.

matplotlib lays out nothing itself. Every line, text and image has an explicit position, so that the page is
identical in every format and nothing is cut off. Font metrics give the size of a text before drawing.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from functools import cache

import cv2
import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path

from vitviz.charts.chart import InkColours

MM = 25.4 / 72  # mm per point
USUAL = "DejaVu Sans"  # ships with matplotlib, so that a figure is identical on every machine
FOUND = {  # the first installed font is used
    "zh-CN": (
        "Noto Sans CJK SC, Noto Sans SC, Source Han Sans SC, PingFang SC, Hiragino Sans GB, Microsoft YaHei,"
        " WenQuanYi Micro Hei, WenQuanYi Zen Hei, SimHei, Noto Sans CJK JP"
    ).split(", "),
    "ko": (
        "Noto Sans CJK KR, Noto Sans KR, Source Han Sans KR, Apple SD Gothic Neo, AppleGothic, Malgun Gothic,"
        " NanumGothic, NanumBarunGothic, UnDotum"
    ).split(", "),
}
SIGNS = "\u3000-\u9fff\uff00-\uffef"  # CJK: a line may break after each, with the closing marks behind it
CLOSING = "，。、；：！？）》」』】”’％%"
PIECES = re.compile(f"[^ {SIGNS}]*[ {SIGNS}][{CLOSING}]*|[^ {SIGNS}]+")  # a line may break after each
# lengths of dashes and gaps, in line widths
DASHES = {"dashed": (4, 3), "dotted": (1, 1.6), "dash-dotted": (4, 1.6, 1, 1.6)}
PHOTO = 200 / 25.4  # pixels per mm of a photograph in vector files; data values are never resampled


@cache
def families(language: str) -> tuple[str, ...] | None:
    """Return the font families for a language, best first; None if none is installed."""
    if language not in FOUND:
        return (USUAL,)
    known = {font.name for font in fontManager.ttflist}
    result = next((name for name in FOUND[language] if name in known), None)
    return None if result is None else (result, USUAL)


class FontMetrics:
    """Font with the metrics of texts set in it, in mm."""

    def __init__(self, fonts: Sequence[str], size: float = 7.0):
        self.size, self._fonts = size, [*fonts, "sans-serif"]  # fallback of viewers without these fonts

    def font(self, size: float | None = None) -> FontProperties:
        """Return the font properties for a text of `size` points."""
        return FontProperties(family=self._fonts, size=size or self.size)

    def width(self, text: str, size: float | None = None) -> float:
        """Return the width of a line of text, mm."""
        if not text:
            return 0.0
        return text_to_path.get_text_width_height_descent(text, self.font(size), ismath=False)[0] * MM * 1.01

    def line(self, size: float | None = None) -> float:
        """Return the line spacing at `size` points, mm."""
        return 1.36 * (size or self.size) * MM

    def folded(self, text: str, area: float, size: float | None = None) -> list[str]:
        """Wrap the text into lines of at most `area` mm, breaking between words or CJK characters."""
        lines = [""]
        for part in PIECES.findall(text):
            longer = lines[-1] + part
            if lines[-1].strip() and self.width(longer.rstrip(), size) > area:
                lines.append(part.lstrip())
            else:
                lines[-1] = longer
        return [line.rstrip() for line in lines if line.strip()]

    def short(self, text: str, area: float, size: float | None = None) -> str:
        """Return the text, truncated with an ellipsis if it is wider than `area` mm."""
        if self.width(text, size) <= area:
            return text
        while text and self.width(text + "…", size) > area:
            text = text[:-1]
        return text.rstrip(" ,·") + "…"


class PageDrawing:
    """Page of `width` x `height` mm to draw on.

    `say` translates texts. `dense` is the resolution in pixels per mm, 0 for vector formats.
    """

    def __init__(
        self, figure: Figure, width: float, height: float, letters: FontMetrics, ink: InkColours,
        say: Callable[[str], str], dense: float,
    ):  # fmt: skip
        self.letters, self.ink, self.say, self._dense = letters, ink, say, dense
        figure.set_facecolor(ink.paper)
        self._axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))  # fixed limits
        self._axes.set_axis_off()
        self._order = itertools.count(1)  # later items are drawn on top

    def text(
        self, x: float, y: float, text: str, size: float | None = None, align: str = "left",
        quiet: bool = False, upright: bool = False,
    ) -> None:  # fmt: skip
        """Draw a line of text, vertically centred on y; `upright` rotates it to read upwards."""
        turned = {"rotation": 90, "rotation_mode": "anchor"} if upright else {}
        self._axes.text(
            x, y, text, fontproperties=self.letters.font(size), ha=align, va="center_baseline",
            color=self.ink.quiet if quiet else self.ink.ink, parse_math=False, zorder=next(self._order),
            clip_on=False, **turned,
        )  # fmt: skip

    def line(
        self, x: list[float], y: list[float], colour: str = "", width: float = 0.2, dash: str = ""
    ) -> None:
        """Draw a line of `width` mm through points; `dash` is a key of `DASHES`, or "" for a solid line."""
        look = {"color": colour or self.ink.ink, "linestyle": (0, DASHES[dash]) if dash else "solid"}
        self._plot(x, y, linewidth=width / MM, solid_capstyle="butt", solid_joinstyle="round", **look)

    def area(self, x: list[float], low: list[float], high: list[float], colour: str) -> None:
        """Fill the area between two lines with a transparent colour."""
        look = {"color": colour, "alpha": 0.2, "linewidth": 0, "clip_on": False}
        self._axes.fill_between(x, low, high, zorder=next(self._order), **look)

    def dots(self, x: list[float], y: list[float], colour: str, size: float = 1.2, name: str = "") -> None:
        """Draw round dots of `size` mm, with an edge in the paper's colour to separate neighbours."""
        edge = {"markeredgecolor": self.ink.paper, "markeredgewidth": 0.3, "gid": name or None}
        self._plot(x, y, linestyle="none", marker="o", markersize=size / MM, color=colour, **edge)

    def _plot(self, x: list[float], y: list[float], **look) -> None:
        """Draw a line or markers through points in mm, unclipped and above all that is drawn so far."""
        self._axes.plot(x, y, clip_on=False, zorder=next(self._order), **look)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = "", edge: str = "", line=0.25
    ) -> None:
        """Draw a rectangle, filled or as a frame of `line` mm."""
        look = {"facecolor": fill or "none", "edgecolor": edge or "none", "clip_on": False}
        look |= {"linewidth": line / MM if edge else 0, "joinstyle": "miter", "zorder": next(self._order)}
        self._axes.add_patch(Rectangle((x, y), width, height, **look))

    def frame(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Draw a frame visible on any image: the coloured line lies on a wider black one."""
        self.box(x, y, width, height, edge="#000000", line=0.85)
        self.box(x, y, width, height, edge=colour, line=0.45)

    def picture(
        self, pixels: UInt8[np.ndarray, "height width channel"], x: float, y: float, width: float,
        height: float, photo: bool = False, name: str = "",
    ) -> None:  # fmt: skip
        """Draw pixels over a rectangle, unchanged; a `photo` is resampled for its printed size."""
        if photo:  # viewers scale small images without smoothing, and matplotlib is slow
            wide = max(2, round(width * (self._dense or PHOTO)))
            size = (wide, max(2, round(wide * pixels.shape[0] / pixels.shape[1])))
            how = cv2.INTER_AREA if wide < pixels.shape[1] else cv2.INTER_CUBIC
            pixels = cv2.resize(np.ascontiguousarray(pixels), size, interpolation=how)
        self._axes.imshow(
            pixels, extent=(x, x + width, y + height, y), origin="upper", aspect="auto", interpolation="none",
            zorder=next(self._order), clip_on=False, gid=name or None,
        )  # fmt: skip
