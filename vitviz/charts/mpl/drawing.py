"""What a figure for print is drawn with: one sheet in millimetres, x to the right and y down.

matplotlib places nothing here by itself: every line, text and picture stands where it is put, so that the
sheet is the same in every format, and nothing is cut off. What room a text needs its letters tell beforehand.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path

MM = 25.4 / 72  # of a point
USUAL = "DejaVu Sans"  # comes with matplotlib, so that a figure is the same on every machine
FOUND = {  # the first of these that is installed
    "zh-CN": (
        "Noto Sans CJK SC, Noto Sans SC, Source Han Sans SC, PingFang SC, Hiragino Sans GB, Microsoft YaHei,"
        " WenQuanYi Micro Hei, WenQuanYi Zen Hei, SimHei, Noto Sans CJK JP"
    ).split(", "),
    "ko": (
        "Noto Sans CJK KR, Noto Sans KR, Source Han Sans KR, Apple SD Gothic Neo, AppleGothic, Malgun Gothic,"
        " NanumGothic, NanumBarunGothic, UnDotum"
    ).split(", "),
}
SIGNS = "\u3000-\u9fff\uff00-\uffef"  # of Chinese, each of which may end a line with the marks behind it
CLOSING = "，。、；：！？）》」』】”’％%"
PIECES = re.compile(f"[^ {SIGNS}]*[ {SIGNS}][{CLOSING}]*|[^ {SIGNS}]+")  # of a text, that may end a line
# drawn and left out, in widths of the line
DASHES = {"dashed": (4, 3), "dotted": (1, 1.6), "dash-dotted": (4, 1.6, 1, 1.6)}
PHOTO = 200 / 25.4  # pixels per mm of a photograph in the file; numbers are never resampled


@cache
def families(language: str) -> tuple[str, ...] | None:
    """The fonts for a language, best first; None where none is installed, and English stands instead."""
    if language not in FOUND:
        return (USUAL,)
    known = {font.name for font in fontManager.ttflist}
    found = next((name for name in FOUND[language] if name in known), None)
    return None if found is None else (found, USUAL)


class FontMetrics:
    """A font, and the room that texts take in it, in mm."""

    def __init__(self, fonts: Sequence[str], size: float = 7.0):
        self.size, self._fonts = size, [*fonts, "sans-serif"]  # for who lacks them

    def font(self, size: float | None = None) -> FontProperties:
        """For a text of `size` points."""
        return FontProperties(family=self._fonts, size=size or self.size)

    def width(self, text: str, size: float | None = None) -> float:
        """Of one line, mm."""
        if not text:
            return 0.0
        return text_to_path.get_text_width_height_descent(text, self.font(size), ismath=False)[0] * MM * 1.01

    def line(self, size: float | None = None) -> float:
        """From one line to the next, mm."""
        return 1.36 * (size or self.size) * MM

    def folded(self, text: str, room: float, size: float | None = None) -> list[str]:
        """The text in lines that fit into `room` mm; between words, or between signs where there are none."""
        lines = [""]
        for part in PIECES.findall(text):
            longer = lines[-1] + part
            if lines[-1].strip() and self.width(longer.rstrip(), size) > room:
                lines.append(part.lstrip())
            else:
                lines[-1] = longer
        return [line.rstrip() for line in lines if line.strip()]

    def short(self, text: str, room: float, size: float | None = None) -> str:
        """The text, cut with an ellipsis where it is longer than `room` mm."""
        if self.width(text, size) <= room:
            return text
        while text and self.width(text + "…", size) > room:
            text = text[:-1]
        return text.rstrip(" ,·") + "…"


@dataclass(frozen=True)
class InkColours:
    """The colours of a sheet."""

    paper: str = "#ffffff"
    ink: str = "#1a1a1a"
    faint: str = "#d4d4d4"
    quiet: str = "#555555"


LIGHT = InkColours()
DARK = InkColours("#0f1115", "#ececec", "#3a3d44", "#b4b4b4")


class PageDrawing:
    """Draws on a figure of `width` x `height` mm; `say` translates; `dense` pixels a mm, 0 for vectors."""

    def __init__(
        self, figure: Figure, width: float, height: float, letters: FontMetrics, ink: InkColours,
        say: Callable[[str], str], dense: float,
    ):  # fmt: skip
        self.letters, self.ink, self.say, self._dense = letters, ink, say, dense
        figure.set_facecolor(ink.paper)
        self._axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))  # pictures change none
        self._axes.set_axis_off()
        self._order = itertools.count(1)  # what is drawn later lies above

    def text(
        self, x: float, y: float, text: str, size: float | None = None, align: str = "left",
        quiet: bool = False, upright: bool = False,
    ) -> None:  # fmt: skip
        """One line, y at its middle height; `upright` reads upwards."""
        turned = {"rotation": 90, "rotation_mode": "anchor"} if upright else {}
        self._axes.text(
            x, y, text, fontproperties=self.letters.font(size), ha=align, va="center_baseline",
            color=self.ink.quiet if quiet else self.ink.ink, parse_math=False, zorder=next(self._order),
            clip_on=False, **turned,
        )  # fmt: skip

    def line(
        self, x: list[float], y: list[float], colour: str = "", width: float = 0.2, dash: str = ""
    ) -> None:
        """A line of `width` mm through points, broken as `dash`, one of `DASHES`, says."""
        look = {"color": colour or self.ink.ink, "linestyle": (0, DASHES[dash]) if dash else "solid"}
        self._plot(x, y, linewidth=width / MM, solid_capstyle="butt", solid_joinstyle="round", **look)

    def area(self, x: list[float], low: list[float], high: list[float], colour: str) -> None:
        """What lies between two lines, so light that lines and other areas are seen through it."""
        look = {"color": colour, "alpha": 0.2, "linewidth": 0, "clip_on": False}
        self._axes.fill_between(x, low, high, zorder=next(self._order), **look)

    def dots(self, x: list[float], y: list[float], colour: str, size: float = 1.2, name: str = "") -> None:
        """Round dots of `size` mm, with an edge of the paper's colour so that neighbours are told apart."""
        edge = {"markeredgecolor": self.ink.paper, "markeredgewidth": 0.3, "gid": name or None}
        self._plot(x, y, linestyle="none", marker="o", markersize=size / MM, color=colour, **edge)

    def _plot(self, x: list[float], y: list[float], **look) -> None:
        self._axes.plot(x, y, clip_on=False, zorder=next(self._order), **look)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = "", edge: str = "", line=0.25
    ) -> None:
        """A rectangle, filled or as a frame of `line` mm."""
        look = {"facecolor": fill or "none", "edgecolor": edge or "none", "clip_on": False}
        look |= {"linewidth": line / MM if edge else 0, "joinstyle": "miter", "zorder": next(self._order)}
        self._axes.add_patch(Rectangle((x, y), width, height, **look))

    def frame(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A frame that shows on any picture: a dark line below the coloured one."""
        self.box(x, y, width, height, edge="#000000", line=0.85)
        self.box(x, y, width, height, edge=colour, line=0.45)

    def picture(
        self, pixels: UInt8[np.ndarray, "height width channel"], x: float, y: float, width: float,
        height: float, photo: bool = False, name: str = "",
    ) -> None:  # fmt: skip
        """Pixels over a rectangle: as they are, or a photograph, resampled for the size that it gets."""
        if photo:  # viewers show what is small in steps, and matplotlib is slow
            wide = max(2, round(width * (self._dense or PHOTO)))
            size = (wide, max(2, round(wide * pixels.shape[0] / pixels.shape[1])))
            how = cv2.INTER_AREA if wide < pixels.shape[1] else cv2.INTER_CUBIC
            pixels = cv2.resize(np.ascontiguousarray(pixels), size, interpolation=how)
        self._axes.imshow(
            pixels, extent=(x, x + width, y + height, y), origin="upper", aspect="auto", interpolation="none",
            zorder=next(self._order), clip_on=False, gid=name or None,
        )  # fmt: skip
