"""Base class of the views: a view declares, and everything else about it is derived.

A view declares its needs, its settings and its items (arrays). Its folder holds its translations and, if the
shared map is not enough, its own script. The route and its checks, the cache key, the link, the page's
fields, the downloads, the zip, the endpoint with its documentation, and the tests are derived from that. The
texts are English and serve as keys of their translations.
"""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vitviz.charts.chart import Chart
from vitviz.errors import Unknown, VitvizError, quoted
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.controls import Control, ModelShape
from vitviz.views.parts import ExportDefaults, Scope
from vitviz.views.subject import Settings, ViewContext

UNCHANGED = (
    "There is no difference to show: the image is unedited and nothing is removed. Edit the image, remove"
    " something, or turn the difference off."
)
PAPER = "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, arXiv 2010.11929"
CHART = "chart"  # name of the item that holds the chart, as JSON


@dataclass(frozen=True)
class Item:
    """An array that can be requested from a view.

    Attributes:
        name: Name of the array.
        axes: Names of the axes, such as "layer head" or "row col". The page and the endpoint use them. The
            model fixes the lengths of some (layer, depth, head, row, col, patch, token, query, key).
        description: Meaning of the numbers, with the unit.
        dtype: NumPy dtype in which the array is sent.
        depends: Settings that change the array. Only a change of these requests it again.
        in_export: False for an array that is only drawn.
        signed: True if zero is the middle of the colour scale.
        only_when: Settings and values that all have to match; otherwise the item is not requested.
        of_image: True for an item of a view of weights that depends on the image, too.
        differs: True if the item can be shown as a difference, after - before. An item that computes its
            difference itself has "difference" in `depends` instead. The view offers the control DIFFERENCE.
    """

    name: str
    axes: str
    description: str = ""
    dtype: str = "float32"
    depends: tuple[str, ...] = ()
    in_export: bool = True
    signed: bool = False
    only_when: tuple[tuple[str, str], ...] = ()
    of_image: bool = False
    differs: bool = False

    def __post_init__(self):
        if self.differs:
            object.__setattr__(self, "depends", (*self.depends, "difference"))

    def checked(self, array: np.ndarray, about: ModelShape) -> np.ndarray:
        """Return the array in the declared dtype; raise RuntimeError if its axes are not as declared."""
        array = np.ascontiguousarray(array, dtype=self.dtype)
        grid, names = about.grid, self.axes.split()
        sizes_by_axis = {"layer": about.layers, "depth": about.layers + 1, "head": about.heads}
        sizes_by_axis |= {"row": grid.rows, "col": grid.cols, "patch": grid.patches}
        sizes_by_axis |= dict.fromkeys(("token", "query", "key"), grid.tokens)
        sizes = [sizes_by_axis.get(name, size) for name, size in zip(names, array.shape, strict=False)]
        if len(names) != array.ndim or sizes != list(array.shape):
            raise RuntimeError(
                f"{self.name} is declared as {quoted(self.axes)} ({sizes}); its shape is {array.shape}."
            )
        return array


def drawing_item(name: str, axes: str, says: str, *depends: str, **more: Any) -> Item:
    """Return an item that is only drawn and not exported."""
    return Item(name, axes, says, depends=depends, in_export=False, **more)


def as_json(name: str, says: str, *depends: str, **more: Any) -> Item:
    """Return an item of JSON bytes that is only drawn and not exported."""
    return drawing_item(name, "byte", f"{says}, as JSON", *depends, dtype="uint8", **more)


def chart_item(*depends: str) -> Item:
    """Return the item of a view's chart; a view whose chart depends on all controls need not declare it."""
    return as_json(CHART, "the chart", *depends)


class Needs(enum.Enum):
    """Input of a view; determines the cache key of its numbers."""

    WEIGHTS = "weights"  # checkpoint and input size: computed once for all images
    RUN = "run"  # trace of one image
    SET = "set"  # a set of images


@dataclass(frozen=True)
class ViewTexts:
    """Texts of a view on the page: `what` and `how` are always visible, the rest can be unfolded."""

    what: str
    how: str
    definition: str  # Markdown, with the formula
    source: str  # section and figure of the paper
    caveat: str  # what the view does not show
    cites: str = ""  # the work whose section, figure or equation `source` begins with

    @classmethod
    def read(cls, module: str, cites: str = "") -> ViewTexts:
        """Return the texts in the words.md beside a module: five paragraphs, `what` to `caveat`."""
        return cls(*paragraphs(Path(module).with_name("words.md").read_text(encoding="utf-8")), cites)


def paragraphs(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a text, each on one line; an empty line separates paragraphs.

    >>> paragraphs("One, and\\n    more of it.\\n\\n    Two.")
    ('One, and more of it.', 'Two.')
    """
    return tuple(re.sub(r"\s*\n\s*", " ", part.strip()) for part in text.split("\n\n"))


def original_context(subject: ViewContext) -> ViewContext:
    """Return the original image's context; raise VitvizError if nothing was edited or removed."""
    if subject.original is None:
        raise VitvizError(LocalizedText(UNCHANGED))
    return subject.original()


def with_difference(
    subject: ViewContext, settings: Settings, compute: Callable[[ViewContext], np.ndarray]
) -> np.ndarray:
    """Return `compute(subject)`; if "difference" is on, subtract `compute` of the original image."""
    result = compute(subject)
    if settings.get("difference") != "on":
        return result
    return np.asarray(result, float) - np.asarray(compute(original_context(subject)), float)


class View(ABC):
    """A view of the model: the twelve members that a new view declares or overrides.

    Subclasses are stateless; `vitviz.views.VIEWS` holds one instance of each. A view without its own script
    is drawn as a map over the image. The map is the first item whose last two axes are row and col. A control
    with the name of another axis (layer, head) selects the index along it. The `chart` of a view is drawn
    beside the map, or alone if there is no map. A function `spec` in the view's module, or in the figure.py
    of its folder, replaces the figure for print that is derived from map and chart.
    """

    slug: ClassVar[str]  # the name of the view's folder
    title: ClassVar[str]
    words: ClassVar[ViewTexts]
    needs: ClassVar[Needs] = Needs.RUN
    controls: ClassVar[tuple[Control, ...]] = ()
    items: ClassVar[tuple[Item, ...]] = ()
    scope: ClassVar[Scope] = Scope()
    export: ClassVar[ExportDefaults] = ExportDefaults()

    def __init_subclass__(cls, **more: Any):
        super().__init_subclass__(**more)
        cls.slug = getattr(cls, "slug", cls.__module__.rpartition(".")[-1])
        if cls.chart is not View.chart and all(item.name != CHART for item in cls.items):
            cls.items += (chart_item(*(control.name for control in cls.controls)),)

    def unsupported(self, subject: ViewContext) -> str | None:
        """Return the reason why this view is not applicable to this model, for the page; else None.

        Write the sentence as a LocalizedText where it is returned.
        """
        return None

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the few values that the figure needs at once, for JSON.

        File names and labels in them must not be used as HTML.
        """
        return {}

    @abstractmethod
    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return a declared item."""

    def chart(self, subject: ViewContext, settings: Settings) -> Chart | None:
        """Return the chart for the browser, print, reports and notebooks; None by default."""
        return None

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the arrays for export by name: the numbers that the figure shows."""
        exported = [item.name for item in self.items if item.in_export]
        return {name: item_values(self, subject, name, settings) for name in exported}


def find_item(view: View, name: str) -> Item:
    """Return a view's item by name; raise Unknown if there is none."""
    result = next((item for item in view.items if item.name == name), None)
    if result is None:
        raise Unknown(f"{view.title} has no numbers called {quoted(name)}.")
    return result


def item_values(view: View, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
    """Return a view's item by name; if it differs and "difference" is on, minus the original image's."""
    if not find_item(view, name).differs:
        return view.item(subject, name, settings)
    return with_difference(subject, settings, lambda context: view.item(context, name, settings))
