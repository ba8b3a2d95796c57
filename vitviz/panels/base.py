"""What a view is: a Panel declares, the page derives.

A panel knows what it needs, what it says to a student, which settings it has and how numbers become its figure. It
knows neither Gradio nor routes: the page gives every panel the same frame (two sentences, figure, settings, details)
and asks for `summary` (small, JSON), `item` (bulk arrays, fetched by the canvas when it needs them), `chart` (Plotly)
and `numbers` (what the user takes home). The texts are English and double as keys of their translations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

if TYPE_CHECKING:  # a page is built before the engine (torch, timm) has been imported
    import plotly.graph_objects as go

    from vitviz.engine.inspector import Inspector
    from vitviz.trace import Trace


@dataclass(frozen=True)
class Choice:
    """One of a few values. `page` settings are applied in the browser alone; the others change the numbers."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]  # (value, text)
    default: str
    page: bool = False
    info: str = ""

    def parse(self, text: str) -> str:
        values = [value for value, _ in self.options]
        if text not in values:
            raise ValueError(f"{self.name}={text!r} is not one of {', '.join(values)}.")
        return text


@dataclass(frozen=True)
class Slider:
    """A number between two bounds, both included."""

    name: str
    label: str
    minimum: float
    maximum: float
    step: float
    default: float
    page: bool = False
    info: str = ""

    def parse(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not self.minimum <= number <= self.maximum:
            raise ValueError(f"{self.name}={text!r} is no number from {self.minimum:g} to {self.maximum:g}.")
        return number


@dataclass(frozen=True)
class LayerRange:
    """First and last layer, counted from 1 as in the paper; the page knows how many there are."""

    name: str
    label: str
    page: bool = False
    info: str = ""
    default: str = ""  # all layers

    def parse(self, text: str) -> tuple[int, int] | None:
        if not text:
            return None
        first, separator, last = text.partition("-")
        if not (separator and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
            raise ValueError(f"{self.name}={text!r} is no range of layers such as 1-12.")
        return int(first), int(last)


@dataclass(frozen=True)
class Query:
    """Which token asks: 'auto' (what the classifier reads), 'mean', a prefix token's name, or a patch's number from 0."""

    name: str = "query"
    label: str = "Query"
    page: bool = False
    info: str = ""
    default: str = "auto"

    def parse(self, text: str) -> str | int:
        return int(text) if text.isdecimal() else text


@dataclass(frozen=True)
class Whole:
    """A whole number that the figure asks for by itself, such as the token under the pointer."""

    name: str
    minimum: int = 0
    default: int = 0

    def parse(self, text: str) -> int:
        if not text.isdecimal() or int(text) < self.minimum:
            raise ValueError(f"{self.name}={text!r} is no whole number from {self.minimum}.")
        return int(text)


@dataclass(frozen=True)
class Wholes:
    """Several whole numbers, joined by dots."""

    name: str
    default: str = ""

    def parse(self, text: str) -> tuple[int, ...]:
        if text and not all(part.isdecimal() for part in text.split(".")):
            raise ValueError(f"{self.name}={text!r} are no whole numbers joined by dots.")
        return tuple(int(part) for part in text.split(".")) if text else ()


Control = Choice | Slider | LayerRange | Query


@dataclass(frozen=True)
class Subject:
    """What is looked at: a model and, unless only its weights matter, one picture's trace."""

    inspector: Inspector
    trace: Trace | None = None


@dataclass(frozen=True)
class Explanation:
    """What the page says about a view: `what` and `how` are the student's two sentences, the rest folds away."""

    what: str
    how: str
    definition: str  # Markdown, with the formula
    source: str  # section and figure of the paper
    caveat: str  # what it does not show


class Panel(ABC):
    """A view of the model. Subclasses are stateless; one instance each stands in `vitviz.panels.PANELS`."""

    slug: ClassVar[str]
    title: ClassVar[str]
    explanation: ClassVar[Explanation]
    needs: ClassVar[Literal["weights", "trace"]]
    controls: ClassVar[tuple[Control, ...]] = ()
    parameters: ClassVar[tuple[Choice | Whole | Wholes, ...]] = ()  # what the figure's script asks for besides
    drawn_by: ClassVar[Literal["canvas", "chart"]] = "canvas"

    def unsupported(self, subject: Subject) -> str | None:
        """Why this view does not exist for this model, as a sentence for the page; None where it does."""
        return None

    @abstractmethod
    def summary(self, subject: Subject) -> dict[str, Any]:
        """The few values that the figure needs at once, as JSON; never a file name or label to be used as HTML."""

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        """A bulk array of the figure, sent to the page as raw little-endian bytes; KeyError for an unknown name."""
        raise KeyError(name)

    def chart(self, subject: Subject, settings: Mapping[str, Any]) -> go.Figure:
        """The figure of a panel that is drawn by Plotly."""
        raise NotImplementedError(f"{self.slug} is drawn in the browser")

    @abstractmethod
    def numbers(self, subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The numbers behind the figure, by name, for the user's own use; the same that the figure shows."""

    def settings(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Every control's value, checked; the default where none is given. ValueError says what does not fit."""
        known = {control.name: control for control in (*self.controls, *self.parameters)}
        for name in given:
            if name not in known:
                raise ValueError(f"{self.title} has no setting {name!r}; it has {', '.join(known) or 'none'}.")
        return {name: control.parse(given.get(name, str(control.default))) for name, control in known.items()}


__all__ = ["Choice", "Control", "Explanation", "LayerRange", "Panel", "Query", "Slider", "Subject", "Whole", "Wholes"]
