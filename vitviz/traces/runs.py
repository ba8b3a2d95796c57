"""Runs: an image with the checkpoint, size, edits and ablation used to analyse it.

Equal runs have equal traces; a run is the only cache key. Runs are written into links and zips and sent to
other processes. Hooks of Python users are not part of a run, so a trace made under such hooks is never cached
under one. Layers and heads count from 0 here, as everywhere in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import quote, unquote

from vitviz.errors import VitvizError, quoted, whole_number
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.image_edits import NONE, ImageEdits
from vitviz.traces.unicode import require_unicode

HEADS_AS = ("mean", "tokens", "zero", "other")
PATCHES_AS = ("dropped", "mean", "blur", "black")
LARGEST = 999_999  # numbers in a link have at most six digits, and layers and heads count from 1 there


@dataclass(frozen=True)
class Ablation(NotebookDisplay):
    """Components and patches to remove from a forward pass, and their replacements; empty by default.

    Args:
        heads: (layer, head) pairs whose output is replaced; both count from 0.
        mlps: layers whose MLP output is replaced, from 0.
        patches: sequence numbers of the patches to remove, from 0 without prefix tokens.
        heads_as: replacement of heads and MLPs: "mean" over a reference set of images, the mean over the
            image's own "tokens", "zero", or the output for the `other` image.
        patches_as: "dropped" removes the tokens; "mean" (colour: 0 in the model's units), "blur" (a Gaussian
            one patch wide) and "black" paint over the patches, as in a faithfulness test.
        other: name of the other image.
        at: from this layer on, all tokens are those of `other` (activation patching).

    Settings without effect are reset (`heads_as` without heads or MLPs), so that equal passes have equal
    values.

    Raises:
        VitvizError: a value is not one of these.

    >>> Ablation(heads=[(7, 1), (0, 2)], patches=[17, 0, 17])
    Ablation(heads=((0, 2), (7, 1)), patches=(0, 17))
    >>> bool(Ablation()), Ablation() == Ablation(heads=[], heads_as="zero")
    (False, True)
    """

    heads: tuple[tuple[int, int], ...] = ()
    mlps: tuple[int, ...] = ()
    patches: tuple[int, ...] = ()
    heads_as: str = "mean"
    patches_as: str = "dropped"
    other: str | None = None
    at: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name, clean in (("heads", _pair), ("mlps", _whole), ("patches", _whole)):
            put(self, name, _sorted(name, getattr(self, name), clean))
        for name, known in (("heads_as", HEADS_AS), ("patches_as", PATCHES_AS)):
            if (given := getattr(self, name)) not in known:
                raise VitvizError(f"{name}={quoted(given)} is not valid; expected one of {', '.join(known)}.")
        if self.at is not None:
            put(self, "at", _whole("at", self.at))
        if not (self.heads or self.mlps):
            put(self, "heads_as", "mean")
        if not self.patches:
            put(self, "patches_as", "dropped")
        if self.at is None and self.heads_as != "other":
            put(self, "other", None)
        elif not self.other or not isinstance(self.other, str):
            expected = "expected one, since what is taken away is to be replaced by it"
            raise VitvizError(f"The other image is missing; {expected}.")
        require_unicode(self.other or "", "the other image's name")

    def __bool__(self) -> bool:
        return bool(self.heads or self.mlps or self.patches or self.at is not None)

    def __repr__(self) -> str:
        usual = {one.name: one.default for one in fields(self)}
        details = [f"{name}={value!r}" for name, value in vars(self).items() if value != usual[name]]
        return f"Ablation({', '.join(details)})"

    def text(self) -> str:
        """Return the ablation as written in a link; "" if it is empty.

        Heads and layers count from 1 in a link, patches from 0.

        >>> Ablation(heads=[(7, 1)], mlps=[2], patches=[0, 17]).text()
        'heads=8.2 mlps=3 patches=0.17'
        """
        parts = {
            "heads": "_".join(f"{layer + 1}.{head + 1}" for layer, head in self.heads),
            "mlps": ".".join(str(layer + 1) for layer in self.mlps),
            "patches": ".".join(map(str, self.patches)),
            "heads_as": self.heads_as if (self.heads or self.mlps) and self.heads_as != "mean" else "",
            "patches_as": self.patches_as if self.patches and self.patches_as != "dropped" else "",
            "at": "" if self.at is None else str(self.at + 1), "other": quote(self.other or "", safe=""),
        }  # fmt: skip
        return " ".join(f"{name}={value}" for name, value in parts.items() if value)

    @classmethod
    def parse(cls, text: str) -> Ablation:
        """Parse the result of `text`; other orders and repetitions give the same value.

        Raises VitvizError for text that is not an ablation.

        >>> Ablation.parse("heads=8.2_1.1 patches=3 patches_as=blur")
        Ablation(heads=((0, 0), (7, 1)), patches=(3,), patches_as='blur')
        """
        given: dict[str, Any] = {}
        for part in text.split():
            name, equals, value = part.partition("=")
            if not equals or name in given or name not in {one.name for one in fields(cls)}:
                expected = "expected a text such as heads=8.2 or patches=0.17"
                raise VitvizError(f"{quoted(part)} cannot be removed; {expected}.")
            given[name] = value
        firsts = {"mlps": 1, "patches": 0, "at": 1}
        numbers = {name: _numbers(name, given[name], one) for name, one in firsts.items() if name in given}
        if "heads" in given:
            numbers["heads"] = [tuple(_numbers("heads", pair, 1)) for pair in given["heads"].split("_")]
        if "at" in numbers:
            numbers["at"], *others = numbers["at"]
            if others:
                raise VitvizError(f"at={quoted(given['at'])} is not valid; expected the number of one layer.")
        other = {"other": unquote(given["other"])} if "other" in given else {}
        return cls(**{**given, **numbers, **other})


@dataclass(frozen=True)
class Run:
    """An image, the checkpoint and input size it is analysed with, the edits applied to it, and the ablation.

    `picture` is the caller's key. `size` is the input's (height, width); None for the checkpoint's own.
    """

    picture: str
    checkpoint: str
    size: tuple[int, int] | None = None
    without: Ablation = field(default_factory=Ablation)
    weights: str = ""  # digest of the checkpoint's files, if known: the name may later refer to other files
    strokes: ImageEdits = NONE


def _sorted(name: str, values: Iterable, clean) -> tuple:
    """Return the sorted distinct values of an ablation's field, each checked by `clean(name, value)`.

    Raise VitvizError if `values` is no collection.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        expected = f"expected several, such as {name}=[{'(7, 1)' if name == 'heads' else '0'}]"
        raise VitvizError(f"{name}={quoted(values)} is not valid; {expected}.")
    return tuple(sorted({clean(name, value) for value in values}))


def _pair(name: str, pair) -> tuple[int, ...]:
    """Return (layer, head) as two checked numbers from 0; raise VitvizError for anything else."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise VitvizError(f"heads={quoted(pair)} is not valid; expected (layer, head), both counted from 0.")
    return tuple(_whole(name, number) for number in pair)


def _whole(name: str, number) -> int:
    """Return a number if it is whole, from 0 to LARGEST - 1; otherwise raise VitvizError.

    `name` is the ablation's field, for the message.
    """
    result = whole_number(number, 0, LARGEST)
    if result is None:
        expected = f"expected a whole number from 0 to {LARGEST - 1}"
        raise VitvizError(f"{quoted(number)} in {name} is not valid; {expected}.")
    return result


def _numbers(name: str, text: str, first: int) -> list[int]:
    """Parse numbers that a link joins by dots and counts from `first`; return them counted from 0.

    Raise VitvizError for other text; `name` is the field, for the message.
    """
    parts = text.split(".")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 6 for part in parts):
        raise VitvizError(f"{name}={quoted(text)} is not valid; expected whole numbers joined by dots.")
    return [int(part) - first for part in parts]
