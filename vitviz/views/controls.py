"""Settings of a view, declared once for the page's fields, the links, the checks and the endpoints.

A bound is a number or the name of a number that depends on the model: "layers", "heads", "tokens",
"patches". A default may also be "middle", the token in the middle of the image. Layers and heads count from
1, tokens and patches from 0. A control without a label has no field: the figure sets it, for example when a
patch is clicked. `token_names` converts positions in the sequence to names for people; `position_of_name`
converts them back.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vitviz.errors import WrongSetting, quoted
from vitviz.traces.grid import Grid

MOST = 99_999  # bound of a link's numbers before the model is known
NAMED = ("layers", "heads", "patches", "tokens", "middle")  # names for bounds and defaults


@dataclass(frozen=True)
class ModelShape:
    """Numbers of layers, heads and outputs of a model, its token grid, and the meaning of its outputs."""

    layers: int
    heads: int
    grid: Grid
    head_type: str = "softmax"
    outputs: int | None = None  # None if unknown

    def number(self, bound: float | str) -> float:
        """Return a bound as a number; "layers", "heads", "patches", "tokens" and "middle" are looked up."""
        if not isinstance(bound, str):
            return bound
        grid = self.grid
        numbers = {"layers": self.layers, "heads": self.heads, "patches": grid.patches - 1}
        numbers |= {"tokens": grid.tokens - 1, "middle": grid.token(grid.rows // 2, grid.cols // 2)}
        return numbers[bound]


@dataclass(frozen=True)
class Control:
    """Base class of settings.

    Attributes:
        name: Name of the setting.
        label: Label of the field; empty for a setting without a field.
        info: Sentence behind a question mark.
        only: Other settings with values; the setting has an effect if at least one of them matches.
        advanced: True for a setting whose field is in the fold *More settings*.
    """

    name: str
    label: str = ""
    info: str = ""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    advanced: bool = field(default=False, kw_only=True)

    kind: ClassVar[str]
    pattern: ClassVar[str] = "(?!)"  # syntax of the value in a link, before `parse`

    def parse(self, text: str, about: ModelShape | None = None) -> Any:
        """Return the value of a text from an address, within the model's bounds if `about` is given.

        Raises:
            WrongSetting: If the text is no valid value.
        """
        raise NotImplementedError

    def start(self, about: ModelShape | None = None) -> Any:
        """Return the default; "" if it depends on the model and `about` is None."""
        if self.default not in NAMED:
            return self.default
        return about.number(self.default) if about else ""

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Return True if the setting has an effect, given the values of the other settings."""
        return not self.only or any(settings[name] in values for name, values in self.only.items())

    def to_json(self, about: ModelShape) -> dict[str, Any]:
        """Return the declaration for the page's script, with the model's bounds."""
        details = {**vars(self), "kind": self.kind, "default": self.start(about)}
        return {
            name: about.number(value) if name in ("minimum", "maximum") else value
            for name, value in details.items()
        }

    def _refuse(self, text: str, expected: str) -> WrongSetting:
        """Return (not raise) the error for a text that is not a valid value; it names `expected`."""
        return WrongSetting(f"{self.name}={quoted(text)} is not valid; expected {expected}.")


@dataclass(frozen=True)
class Choice(Control):
    """Choice among a few values with texts; `of_values` replaces `options` for a regression head."""

    options: tuple[tuple[str, str], ...] = ()
    default: str = ""
    of_values: tuple[tuple[str, str], ...] = ()
    kind = "choice"
    pattern = "[ -~]{1,40}"

    def known(self, about: ModelShape | None = None) -> tuple[tuple[str, str], ...]:
        """Return the options for this model as (value, text); `of_values` for a regression head."""
        return self.of_values if self.of_values and about and about.head_type == "value" else self.options

    def parse(self, text: str, about: ModelShape | None = None) -> str:
        """Return the text if it is one of this model's options; otherwise raise WrongSetting."""
        values = [value for value, _ in self.known(about)]
        if text not in values:
            expected = f"one of {', '.join(values)}"
            of_values = expected + ", as this model gives values (regression) and predicts no class"
            raise self._refuse(text, expected if self.known(about) is self.options else of_values)
        return text

    def start(self, about: ModelShape | None = None) -> str:
        """Return the default; the first option if the model's options do not include the default."""
        options = self.known(about)
        return self.default if self.default in dict(options) else options[0][0]

    def to_json(self, about: ModelShape) -> dict[str, Any]:
        """Return the declaration for the page's script, with the options for this model."""
        details = {**super().to_json(about), "options": self.known(about)}
        del details["of_values"]
        return details


@dataclass(frozen=True)
class Slider(Control):
    """A number between two bounds, both included."""

    minimum: float = 0
    maximum: float | str = 1
    step: float = 1
    default: float | str = 0  # or a name such as "layers": the last one
    kind = "slider"
    pattern = r"-?\d{1,6}(\.\d{1,6})?(e-?\d)?"

    def parse(self, text: str, about: ModelShape | None = None) -> float | int:
        """Return the number in a text, an int if step and minimum are whole.

        Raise WrongSetting for a text that is no number or is out of bounds.
        """
        is_integer = float(self.step).is_integer() and float(self.minimum).is_integer()
        try:
            number = int(text) if is_integer else float(text)
        except ValueError:
            number = float("nan")
        high = _largest(self.maximum, about)
        if not self.minimum <= number <= high:
            noun = "a whole number" if is_integer else "a number"
            raise self._refuse(text, f"{noun} from {self.minimum:g} to {high:g}")
        return number


@dataclass(frozen=True)
class LayerRange(Control):
    """First and last layer; an empty text means all layers."""

    default: str = ""
    kind = "layers"
    pattern = r"\d{1,3}-\d{1,3}"

    def parse(self, text: str, about: ModelShape | None = None) -> tuple[int, int] | None:
        """Return (first, last) layer, from 1, of a text such as 3-7; None (all layers) for "".

        Raise WrongSetting for any other text.
        """
        if not text:
            return None
        result = re.fullmatch(r"(\d{1,3})-(\d{1,3})", text, re.ASCII)
        last = about.layers if about else MOST
        if not (result and 1 <= int(result[1]) <= int(result[2]) <= last):
            raise self._refuse(text, f"first and last layer from 1 to {last}, such as 1-{min(last, 12)}")
        return int(result[1]), int(result[2])


@dataclass(frozen=True)
class QuerySetting(Control):
    """Query token: 'auto' (the classifier's input), 'mean', a prefix token's name, or a patch number."""

    default: str = "auto"
    kind = "query"
    pattern = r"\d{1,5}|[A-Za-z][\w -]{0,39}"

    def parse(self, text: str, about: ModelShape | None = None) -> str | int:
        """Return a patch number from 0 as int, or the text auto, mean or a prefix token's name.

        Raise WrongSetting for other texts; without `about`, any name is valid.
        """
        if text.isascii() and text.isdecimal():
            last = about.grid.patches - 1 if about else MOST
            if not _counts(text, last):
                raise self._refuse(text, f"a patch's number from 0 to {last}")
            return int(text)
        names = ("auto", "mean", *about.grid.prefix_names) if about else ()
        if about and text not in names:
            raise self._refuse(
                text, f"one of {', '.join(names)}, or a patch's number from 0 to {about.grid.patches - 1}"
            )
        return text


@dataclass(frozen=True)
class IntSetting(Control):
    """Whole number.

    Attributes:
        tokens: True for the number of a token, which is mapped to the same position on another grid.
        passing: True for a number that only steers requests: figures and captions do not depend on it.
    """

    minimum: int = 0
    maximum: int | str = MOST
    default: int | str = 0
    tokens: bool = False
    passing: bool = False
    kind = "whole"
    pattern = r"\d{1,5}"

    def parse(self, text: str, about: ModelShape | None = None) -> int:
        """Return the whole number in a text; raise WrongSetting if it is none within the bounds."""
        high = _largest(self.maximum, about)
        if not (_counts(text, high) and self.minimum <= int(text)):
            raise self._refuse(text, f"a whole number from {self.minimum} to {high}")
        return int(text)


@dataclass(frozen=True)
class IntListSetting(Control):
    """Whole numbers joined by dots, `most` at most."""

    maximum: int | str = MOST
    default: str = ""
    tokens: bool = False
    most: int = 16
    kind = "wholes"

    @property
    def pattern(self) -> str:
        """The regular expression of a value in a link: 1 to `most` numbers joined by dots."""
        return rf"\d{{1,5}}(\.\d{{1,5}}){{0,{self.most - 1}}}"

    def parse(self, text: str, about: ModelShape | None = None) -> tuple[int, ...]:
        """Return the numbers of a text such as "1.2.5"; () for an empty one."""
        parts = text.split(".") if text else []
        high = _largest(self.maximum, about)
        if len(parts) > self.most or not all(_counts(part, high) for part in parts):
            raise self._refuse(text, f"up to {self.most} whole numbers from 0 to {high}, joined by dots")
        return tuple(int(part) for part in parts)


@dataclass(frozen=True)
class Text(Control):
    """Short text that matches the pattern `fits`, such as a list of heads.

    Attributes:
        classes: True if its numbers are classes, which another model may not have.
    """

    default: str = ""
    fits: str = r"[ -~]{0,200}"
    classes: bool = False
    kind = "text"
    pattern = r"[ -~]{1,200}"

    def parse(self, text: str, about: ModelShape | None = None) -> str:
        """Return the text unchanged; raise WrongSetting if it does not match `fits`."""
        if not re.fullmatch(self.fits, text, re.ASCII):
            raise self._refuse(text, f"a text like {self.fits}")
        return text

    def to_json(self, about: ModelShape) -> dict[str, Any]:
        """Return the declaration; `classes` is the number of the model's classes, or None."""
        return super().to_json(about) | {"classes": about.outputs if self.classes else None}


def _counts(text: str, most: float) -> bool:
    """Return True if the text is a whole number from 0 to `most`, of fewer than 10 digits."""
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= most


def _largest(maximum: float | str, about: ModelShape | None) -> float:
    """Return a bound as a number; MOST if it depends on the model and `about` is None."""
    if about:
        return about.number(maximum)
    return MOST if isinstance(maximum, str) else maximum


DIFFERENCE = Choice(
    "difference",
    "Difference",
    "values after your edits and removals minus values of the original image",
    options=(("off", "Off"), ("on", "After − before")),
)


def token_names(tokens: int | tuple[int, ...], grid: Grid) -> Any:
    """Return the name of one or several positions in the sequence: a prefix token's name or a patch from 0.

    >>> token_names((0, 106), Grid(14, 14, (16, 16), ("class",)))
    ['class', 105]
    """
    if isinstance(tokens, tuple):
        return [token_names(token, grid) for token in tokens]
    return grid.prefix_names[tokens] if tokens < grid.prefix else tokens - grid.prefix


def position_of_name(text: str, grid: Grid) -> int:
    """Return the position in the sequence of a name from `token_names`; raise WrongSetting for others."""
    if text in grid.prefix_names:
        return grid.prefix_names.index(text)
    if not _counts(text, grid.patches - 1):
        names = " or ".join(f"{quoted(name)}" for name in grid.prefix_names)
        raise WrongSetting(
            f"token={quoted(text)}; expected {names}{' or ' if names else ''}a patch's number from 0 to"
            f" {grid.patches - 1}."
        )
    return grid.prefix + int(text)
