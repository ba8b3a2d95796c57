"""The letters of a figure for print: the font, a text's width, where it is folded, how a number is said."""

import re
from collections.abc import Sequence
from functools import cache

from matplotlib.font_manager import FontProperties, fontManager
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


@cache
def families(language: str) -> tuple[str, ...] | None:
    """The fonts for a language, best first; None where none is installed, and English stands instead."""
    if language not in FOUND:
        return (USUAL,)
    known = {font.name for font in fontManager.ttflist}
    found = next((name for name in FOUND[language] if name in known), None)
    return None if found is None else (found, USUAL)


class Letters:
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
