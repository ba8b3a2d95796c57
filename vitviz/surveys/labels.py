"""Ground truth of images: the class that a source's label stands for, and object boxes.

Boxes come from JSON, a folder of Pascal VOC XML files, or Python. The JSON form is {"cats/7.jpg": [[left,
top, right, bottom], ...], ...} in pixels of the upright image; right and bottom are exclusive. VOC counts
pixels from 1 and includes both ends; its boxes are converted to the exclusive form. Images are matched by
their name in the source, otherwise by the last part of that name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np

from vitviz.analyses.faithfulness.pointing import Box
from vitviz.errors import VitvizError, quoted
from vitviz.traces.trace import Trace
from vitviz.traces.unicode import parse_json

ClassNames = Mapping[str, int | str] | Sequence[str] | None


class Labels:
    """Mapping from a source's labels to class numbers of the checkpoint.

    A label is looked up in this order: in `classes`, among the checkpoint's labels, among the names within
    one label (separated by commas), as a class number from 0.

    Args:
        count: Number of classes of the checkpoint.
        names: The checkpoint's labels, in class order.
        classes: The source's names in the order of the checkpoint's classes, or a mapping from these names
            to a class number or label.
        required: If true, a missing or unknown label is an error.

    Raises:
        VitvizError: If a value of `classes` is not a class of the checkpoint.
    """

    def __init__(
        self, count: int, names: Sequence[str] = (), classes: ClassNames = None, required: bool = False
    ):
        self.count, self.required = count, required
        parts = [(part, number) for number, name in enumerate(names) for part in {*name.split(",")}]
        whole = [(name, number) for number, name in enumerate(names)]
        self._known = _unique(parts) | _unique(whole)  # a full label takes precedence over a part of another
        if classes is not None and not isinstance(classes, Mapping):
            classes = {name: number for number, name in enumerate(classes)}
        self._given = {str(name): self._class_number(value) for name, value in (classes or {}).items()}
        for name, number in self._given.items():
            if number is None:
                raise VitvizError(
                    f"The class given for {quoted(name)} is none of the checkpoint's {count}; expected"
                    " a number from 0 or a label."
                )

    def number(self, label: str | int | None, picture: str = "A picture") -> int | None:
        """Return the class number (from 0) of a source's label; None if the label is missing or unknown.

        Raises:
            VitvizError: If the label is missing or unknown and labels are required.
        """
        result = self._given.get(str(label)) if label is not None else None
        result = self._class_number(label) if result is None else result
        if result is None and self.required:
            other = f"the label {quoted(str(label))}, which is none of the checkpoint's {self.count} classes"
            said = "has no label" if label is None else f"has {other}"
            raise VitvizError(
                f"{picture} {said}; accuracy needs one for every image. Say what the source's labels mean"
                " with classes (on the command line: --classes), or leave accuracy out."
            )
        return result

    def _class_number(self, label: str | int | None) -> int | None:
        """Return the class number (from 0) of a class name or number; None if there is no such class."""
        if not isinstance(label, str):  # an int or a NumPy integer
            return None if label is None or not 0 <= int(label) < self.count else int(label)
        if (plain := _normalised_name(label)) in self._known:
            return self._known[plain]
        return int(label) if label.isdecimal() and int(label) < self.count else None


def _unique(pairs: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Return the class number of every normalised name that stands for exactly one class."""
    result: dict[str, set[int]] = {}
    for name, number in pairs:
        result.setdefault(_normalised_name(name), set()).add(number)
    return {name: numbers.pop() for name, numbers in result.items() if len(numbers) == 1}


def _normalised_name(name: str) -> str:
    """Return a label case-folded, with runs of spaces, underscores and hyphens as one space."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


EXPECTED = (
    "expected JSON with an object from images' names to lists of [left, top, right, bottom] in pixels, or a"
    " folder of Pascal VOC's .xml files named as the images"
)


class Boxes:
    """Object boxes by image name: (left, top, right, bottom) in pixels of the upright upload."""

    def __init__(self, given: Mapping[str, Sequence[Sequence[float]]]):
        self._boxes = {name: tuple(_parse_box(name, one) for one in each) for name, each in given.items()}
        self._by_last: dict[str, str | None] = {}
        for name in self._boxes:
            for key in {PurePosixPath(name).name, PurePosixPath(name).stem}:
                self._by_last[key] = None if key in self._by_last else name  # ambiguous: matches neither
        details = json.dumps(sorted(self._boxes.items()))
        self.digest = hashlib.sha256(details.encode()).hexdigest()

    @classmethod
    def load(cls, path: str | os.PathLike) -> Boxes:
        """Load boxes from a JSON file or a folder of VOC XML files.

        Raises:
            VitvizError: If the path cannot be read or has another format.
        """
        path = Path(path)
        if path.is_dir():
            files = sorted(path.rglob("*.xml"))
            if not files:
                raise VitvizError(f"In {path.name} lies no .xml file; {EXPECTED}.")
            names = (file.relative_to(path).with_suffix("").as_posix() for file in files)
            return cls(dict(zip(names, map(_voc_boxes, files), strict=True)))
        try:
            details = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise VitvizError(f"{path.name} cannot be read ({type(error).__name__}); {EXPECTED}.") from None
        if not isinstance(details, dict):
            raise VitvizError(f"{path.name} holds no object; {EXPECTED}.")
        return cls(details)

    def of_picture(self, name: str) -> tuple[Box, ...]:
        """Return the boxes of an image in pixels of the upload; empty if the image is not listed."""
        last = PurePosixPath(name)
        result = name if name in self._boxes else self._by_last.get(last.name) or self._by_last.get(last.stem)
        return self._boxes.get(result, ()) if result else ()

    def on_input(self, name: str, trace: Trace) -> tuple[Box, ...]:
        """Return an image's boxes in pixels of the model's input, cut to the crop; without boxes outside."""
        left, top, right, bottom = trace.view.box
        height, width = trace.grid.pixels
        scale = width / (right - left), height / (bottom - top)
        corners = np.reshape(self.of_picture(name), (-1, 2, 2))  # box, corner, (x, y)
        corners = ((corners - (left, top)) * scale).clip(0.0, (width, height))
        inside = corners[(corners[:, 0] < corners[:, 1]).all(axis=1)]
        return tuple(map(tuple, inside.reshape(-1, 4).tolist()))

    def __len__(self) -> int:
        return len(self._boxes)


def _parse_box(name: str, given: Any) -> Box:
    """Return one box as floats (left, top, right, bottom); `name` is that of its image, for the error.

    Raise VitvizError unless it is four numbers that enclose an area.
    """
    try:
        left, top, right, bottom = (float(value) for value in given)
    except (TypeError, ValueError):
        raise VitvizError(f"The box {str(given)[:60]} of {name} is not valid; {EXPECTED}.") from None
    if not (left < right and top < bottom):
        raise VitvizError(f"The box {str(given)[:60]} of {name} contains no pixel; {EXPECTED}.")
    return left, top, right, bottom


def _voc_boxes(file: Path) -> list[Box]:
    """Return the boxes of a Pascal VOC file in pixels from 0, right and bottom exclusive.

    Raise VitvizError for a damaged file.
    """
    try:
        root = ElementTree.parse(file).getroot()
        ends = ("xmin", "ymin", "xmax", "ymax")
        corners = [[float(one.find(end).text) for end in ends] for one in root.iter("bndbox")]
    except (ElementTree.ParseError, AttributeError, TypeError, ValueError) as error:
        raise VitvizError(f"{file.name} cannot be read ({type(error).__name__}); {EXPECTED}.") from None
    return [(left - 1, top - 1, right, bottom) for left, top, right, bottom in corners]
