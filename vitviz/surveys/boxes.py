"""Where the objects of pictures are: boxes by picture, from JSON, a folder of Pascal VOC's XML, or Python.

JSON is {"cats/7.jpg": [[left, top, right, bottom], ...], ...} in pixels of the upright picture, right and
bottom no part of the box. VOC counts pixels from 1 and its ends in; both are read as they are meant. A
picture is found by its name in the source, else by its last part, with or without its ending.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from vitviz.analyses.trials.pointing import Box
from vitviz.errors import VitvizError
from vitviz.trace import Trace

EXPECTED = (
    "expected JSON with an object from pictures' names to lists of [left, top, right, bottom] in pixels, or"
    " a folder"
    " of Pascal VOC's .xml files named as the pictures"
)


class Boxes:
    """Boxes in pixels of the upright upload, by picture."""

    def __init__(self, given: Mapping[str, Sequence[Sequence[float]]]):
        self._boxes = {name: tuple(_box(name, one) for one in several) for name, several in given.items()}
        self._by_last: dict[str, str | None] = {}
        for name in self._boxes:
            for key in {PurePosixPath(name).name, PurePosixPath(name).stem}:
                self._by_last[key] = None if key in self._by_last else name  # of two pictures neither
        told = json.dumps(sorted(self._boxes.items()))
        self.digest = hashlib.sha256(told.encode()).hexdigest()

    @classmethod
    def of(cls, path: str | os.PathLike) -> Boxes:
        """From a file or folder; VitvizError for what is neither or cannot be read."""
        path = Path(path)
        if path.is_dir():
            files = sorted(path.rglob("*.xml"))
            if not files:
                raise VitvizError(f"In {path.name} lies no .xml file; {EXPECTED}.")
            return cls({file.relative_to(path).with_suffix("").as_posix(): _voc(file) for file in files})
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise VitvizError(f"{path.name} cannot be read ({type(error).__name__}); {EXPECTED}.") from None
        if not isinstance(told, dict):
            raise VitvizError(f"{path.name} holds no object; {EXPECTED}.")
        return cls(told)

    def of_picture(self, name: str) -> tuple[Box, ...]:
        """In pixels of the upload; none for a picture that is not listed."""
        last = PurePosixPath(name)
        found = name if name in self._boxes else self._by_last.get(last.name) or self._by_last.get(last.stem)
        return self._boxes.get(found, ()) if found else ()

    def on_input(self, name: str, trace: Trace) -> tuple[Box, ...]:
        """In pixels of the model's input, as far as the crop reaches; none where nothing of them is left."""
        left, top, right, bottom = trace.view.box
        height, width = trace.grid.pixels
        across, down = width / (right - left), height / (bottom - top)
        found = []
        for x0, y0, x1, y1 in self.of_picture(name):
            x = [min(max((value - left) * across, 0.0), width) for value in (x0, x1)]
            y = [min(max((value - top) * down, 0.0), height) for value in (y0, y1)]
            if x[0] < x[1] and y[0] < y[1]:
                found.append((x[0], y[0], x[1], y[1]))
        return tuple(found)

    def __len__(self) -> int:
        return len(self._boxes)


def _box(name: str, given: Any) -> Box:
    try:
        left, top, right, bottom = (float(value) for value in given)
    except (TypeError, ValueError):
        raise VitvizError(f"Given the box {str(given)[:60]} of {name}; {EXPECTED}.") from None
    if not (left < right and top < bottom):
        raise VitvizError(f"Given the box {str(given)[:60]} of {name}, which holds no pixel; {EXPECTED}.")
    return left, top, right, bottom


def _voc(file: Path) -> list[Box]:
    try:
        root = ElementTree.parse(file).getroot()
        corners = [
            [float(one.find(end).text) for end in ("xmin", "ymin", "xmax", "ymax")]
            for one in root.iter("bndbox")
        ]
    except (ElementTree.ParseError, AttributeError, TypeError, ValueError) as error:
        raise VitvizError(f"{file.name} cannot be read ({type(error).__name__}); {EXPECTED}.") from None
    return [(left - 1, top - 1, right, bottom) for left, top, right, bottom in corners]


__all__ = ["Boxes"]
