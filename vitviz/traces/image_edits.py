"""Edits applied to an image before a model sees it: a short value that fits into a link.

Format: `brush.mean_24.10.20.5.3 move_0.0.16.16.32.0`. Edits are separated by spaces and applied in order.
Each edit is a tool, for a brush its ink, and integers. Coordinates are pixels of the upright upload, angles
are degrees, brightness and contrast are hundredths. A path is a start point followed by steps.

A piece has left, top, width, height, and its shift to the right and down. Optionally follow its new width and
height, negative to mirror it, and then a closed outline within which it is cut. `onto.coffee_0.0.16.16.32.0`
pastes the piece onto another photograph, a sample or the "other" image. All later edits apply to that
photograph.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vitviz.errors import VitvizError, quoted

LONGEST, MOST = 20_000, 100  # characters, and edits
_NUMBER = r"(?:0|-?[1-9]\d{0,4})"
_INK = re.compile(r"mean|blur|noise(?:0|[1-9]\d{0,3})|[0-9a-f]{6}", re.ASCII)
_KEY = 40  # length of an uploaded image's key on a server; no sample has a name of this length
_STROKE = re.compile(rf"([a-z]+)(?:\.([a-z0-9]{{1,{_KEY}}}))?_({_NUMBER}(?:\.{_NUMBER})*)", re.ASCII)
_WIDEST, _LARGEST = 9_999, 4_096  # pixels: of a brush, and of the sides of a scaled piece
_PATH = ("brush", "erase")
_PIECE = (
    "left, top, width, height, and steps to the right and down in pixels; then, if at all, width and height"
    f" there, up to {_LARGEST:,}, negative where mirrored; then, if at all, three places or more around it"
)
_PIECES = ("move", "copy", "onto")
# largest magnitude in both directions
_WHOLES = {"brightness": 100, "contrast": 100, "hue": 180, "rotate": 180}
_INKED = ("brush", "onto")
TOOLS = (*_PATH, *_PIECES, *_WHOLES, "shift")


@dataclass(frozen=True)
class ImageEdit:
    """An edit: a tool, its numbers, and an ink for `brush` and `onto`.

    The ink of a brush is a colour as rrggbb, the image's "mean" colour, "blur", or "noise" with a seed. The
    ink of `onto` is the name of the photograph. Raises VitvizError for a value that the tool does not accept.

    >>> ImageEdit("brush", (24, 10, 20, 5, 3), "mean").text()
    'brush.mean_24.10.20.5.3'
    """

    tool: str
    numbers: tuple[int, ...]
    ink: str = ""

    def __post_init__(self) -> None:
        expected = self._expected()
        if expected:
            raise VitvizError(f"The edit {quoted(self.text())} is not valid; expected {expected}.")

    @property
    def goal(self) -> tuple[int, ...]:
        """Width and height of a piece after scaling, negative where mirrored; empty if it is not scaled."""
        return self.numbers[6:8] if self.tool in _PIECES else ()

    def text(self) -> str:
        """Return the edit as written in a link."""
        return f"{self.tool}{'.' * bool(self.ink)}{self.ink}_{'.'.join(map(str, self.numbers))}"

    def _expected(self) -> str:
        """Return what the tool expects instead of the given values; empty if they are valid."""
        count = len(self.numbers)
        if self.tool not in TOOLS:
            return f"one of {', '.join(TOOLS)}"
        if self.tool == "onto" and not self.ink:
            return "another photograph, such as onto.coffee or onto.other"
        if self.tool == "brush" and not _INK.fullmatch(self.ink) or self.ink and self.tool not in _INKED:
            return "an ink of a brush, such as brush.mean or brush.ff8800, and of no other tool"
        if self.tool in _PATH:
            fits = count % 2 and count > 2 and 0 < self.numbers[0] <= _WIDEST
            return "" if fits else "a width in pixels from 1, a place, and steps from there on"
        if self.tool in _PIECES:
            fits = (count in (6, 8) or (count > 13 and count % 2 == 0)) and min(self.numbers[2:4]) > 0
            for was, now in zip(self.numbers[2:4], self.goal, strict=False):
                fits = fits and (abs(now) == was or 0 < abs(now) <= _LARGEST)
            return "" if fits else _PIECE
        if self.tool == "shift":
            return "" if count == 2 else "steps to the right and down in pixels"
        most = _WHOLES[self.tool]
        return "" if count == 1 and abs(self.numbers[0]) <= most else f"a number from -{most} to {most}"


@dataclass(frozen=True)
class ImageEdits:
    """A sequence of edits, empty by default."""

    each: tuple[ImageEdit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.each)

    @property
    def ground(self) -> str:
        """Name of the last photograph that a piece was pasted onto; "" if there is none."""
        return next((one.ink for one in reversed(self.each) if one.tool == "onto"), "")

    @property
    def own(self) -> str:
        """Server key of an uploaded photograph that a piece was pasted onto; "" if there is none."""
        return next((one.ink for one in self.each if one.tool == "onto" and len(one.ink) == _KEY), "")

    def told(self) -> ImageEdits:
        """Return the edits as sent to clients: an uploaded photograph's key is replaced by "other"."""
        return ImageEdits.parse(self.text().replace(f"onto.{self.own}_", "onto.other_")) if self.own else self

    def text(self) -> str:
        """Return the edits as written in a link; "" if there are none."""
        return " ".join(stroke.text() for stroke in self.each)

    @classmethod
    def parse(cls, text: str) -> ImageEdits:
        """Parse the result of `text`; raise VitvizError for any other text and for more than 100 edits.

        >>> ImageEdits.parse("erase_9.4.4 shift_8.-4").each[1]
        ImageEdit(tool='shift', numbers=(8, -4), ink='')
        """
        if not isinstance(text, str) or len(text) > LONGEST:
            given = f"{len(text)} characters" if isinstance(text, str) else type(text).__name__
            raise VitvizError(
                f"Edits of {given} are not valid; expected a text of at most {LONGEST} characters."
            )
        parts = text.split()
        if len(parts) > MOST:
            raise VitvizError(f"{len(parts)} edits are too many; expected at most {MOST}. Undo some first.")
        strokes = []
        for part in parts:
            result = _STROKE.fullmatch(part)
            if result is None:
                expected = "expected a text such as brush.mean_24.10.20.5.3 or shift_8.-4"
                raise VitvizError(f"The edit {quoted(part)} is not valid; {expected}.")
            tool, ink, numbers = result.groups()
            strokes.append(ImageEdit(tool, tuple(map(int, numbers.split("."))), ink or ""))
        return cls(tuple(strokes))


NONE = ImageEdits()
