"""Base class of the views: a view declares, and everything else about it is derived.

A view declares its needs, its settings and its items (arrays). Its folder holds its translations and, if the
shared map is not enough, its own script. The route and its checks, the cache key, the link, the page's
fields, the downloads, the zip, the endpoint with its documentation, and the tests are derived from that. The
texts are English and serve as keys of their translations.
"""

from __future__ import annotations

import enum
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vitviz.charts.chart import Chart, to_json
from vitviz.charts.mpl.spec import FigureSpec, Panel
from vitviz.errors import Unknown, VitvizError, WrongSetting, quoted
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import printing
from vitviz.views.controls import (
    DIFFERENCE,
    Choice,
    Control,
    IntListSetting,
    IntSetting,
    ModelShape,
    token_names,
)
from vitviz.views.shared import json_bytes
from vitviz.views.subject import Settings, ViewContext

LEFT_OUT = (
    "{view} is not applicable here, because patches have been dropped from the sequence. Restore "
    "them, or remove them by painting over them."
)
ROUNDED = "{view} is not applicable here, because it needs float32, and {checkpoint} computes in {dtype}."
UNCHANGED = (
    "There is no difference to show: the image is unedited and nothing is removed. Edit the image, "
    "remove something, or turn the difference off."
)
PAPER = "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, arXiv 2010.11929"
CHART = "the chart, as JSON"


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

    def checked(self, array: np.ndarray, about: ModelShape) -> np.ndarray:
        """Return the array as it is sent; RuntimeError if its shape contradicts the declaration (a bug)."""
        array = np.ascontiguousarray(array, dtype=self.dtype)
        grid, names = about.grid, self.axes.split()
        known = {"layer": about.layers, "depth": about.layers + 1, "head": about.heads}
        known |= {"row": grid.rows, "col": grid.cols, "patch": grid.patches}
        known |= dict.fromkeys(("token", "query", "key"), grid.tokens)
        sizes = [known.get(name, size) for name, size in zip(names, array.shape, strict=False)]
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


@dataclass(frozen=True)
class File:
    """A download besides the numbers: its name, also used in the route, and its label on the page."""

    name: str
    label: str
    kind: str = "application/octet-stream"


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
    def from_text(cls, text: str) -> ViewTexts:
        """Return the texts from five paragraphs, `what` to `caveat`."""
        return cls(*paragraphs(text))

    @classmethod
    def of_paper(cls, text: str) -> ViewTexts:
        """Return the texts from five paragraphs of which `source` cites the ViT paper."""
        return cls(*paragraphs(text), PAPER)


def paragraphs(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a text, each on one line; an empty line separates paragraphs.

    >>> paragraphs("One, and\\n    more of it.\\n\\n    Two.")
    ('One, and more of it.', 'Two.')
    """
    return tuple(re.sub(r"\s*\n\s*", " ", part.strip()) for part in text.split("\n\n"))


def original_context(subject: ViewContext) -> ViewContext:
    """Return the original image's context; VitvizError if nothing was edited or removed."""
    if subject.original is None:
        raise VitvizError(LocalizedText(UNCHANGED))
    return subject.original()


def with_difference(
    subject: ViewContext, settings: Settings, of: Callable[[ViewContext], np.ndarray]
) -> np.ndarray:
    """Return `of(subject)`; if the setting "difference" is on, minus `of` of the original image."""
    found = of(subject)
    if settings.get("difference") != "on":
        return found
    return np.asarray(found, float) - np.asarray(of(original_context(subject)), float)


class View(ABC):
    """A view of the model. Subclasses are stateless; `vitviz.views.VIEWS` holds one instance of each.

    A view without its own script is drawn as a map over the image. The map is the first item whose last two
    axes are row and col. A control with the name of another axis (layer, head) selects the index along it.
    The `chart` of a view is drawn beside the map, or alone if there is no map.
    """

    slug: ClassVar[str]  # the name of its folder
    title: ClassVar[str]
    words: ClassVar[ViewTexts]
    needs: ClassVar[Needs] = Needs.RUN
    controls: ClassVar[tuple[Control, ...]] = ()
    items: ClassVar[tuple[Item, ...]] = ()
    arrays: ClassVar[Mapping[str, str]] = {}  # arrays in `numbers` besides the items: name -> axes
    files: ClassVar[tuple[File, ...]] = ()
    endpoint: ClassVar[str | None] = None  # for programs; None for one derived from settings and items
    every_patch: ClassVar[bool] = False  # not applicable if patches were dropped
    # starts from gradients: those of a rounded model belong to a different function
    float32_only: ClassVar[bool] = False
    unprinted: ClassVar[str] = ""  # reason why there is no figure for print; empty if there is one
    on_request: ClassVar[bool] = False  # expensive: computed only when a visitor requests the numbers
    averages: ClassVar[bool] = False  # can also be drawn for a survey, as the mean over images
    set_control: ClassVar[str] = ""  # the choice that selects the protocol for a set of images, if any
    most_pictures: ClassVar[int] = 1_000  # most images of a set on the page
    # the figure needs no forward pass and is shown while one runs
    needs_no_pass: ClassVar[bool] = False
    charted: ClassVar[tuple[str, ...] | None] = None  # settings that change the chart; None for all
    paired: ClassVar[bool] = False  # a figure also covers the second checkpoint, if there is one
    sided: ClassVar[bool] = False  # a figure of one image that can also use the second checkpoint
    differs: ClassVar[tuple[str, ...]] = ()  # items that can be shown as a difference, after - before
    # settings of a video unless given: they keep everything but the content fixed between frames
    video_defaults: ClassVar[Mapping[str, str]] = {}
    extra_strings: ClassVar[Iterable[str]] = ()  # further English texts of the view

    def __init_subclass__(cls, **more: Any):
        super().__init_subclass__(**more)
        cls.slug = getattr(cls, "slug", cls.__module__.rpartition(".")[-1])
        if cls.differs and DIFFERENCE not in cls.controls:
            cls.controls += (DIFFERENCE,)
            cls.charted = None if cls.charted is None else (*cls.charted, "difference")
            cls.items = tuple(
                replace(item, depends=(*item.depends, "difference")) if item.name in cls.differs else item
                for item in cls.items
            )
        if cls.chart is not View.chart and all(item.name != "chart" for item in cls.items):
            asked = tuple(one.name for one in cls.controls) if cls.charted is None else cls.charted
            cls.items += (Item("chart", "byte", CHART, "uint8", asked, in_export=False),)

    @property
    def mapped(self) -> bool:
        """True if a shared script draws the view because its folder has none."""
        return not self._has("view.js")

    @property
    def map(self) -> Item | None:
        """The item drawn over the patches; None if there is none."""
        return next((item for item in self.items if item.axes.split()[-2:] == ["row", "col"]), None)

    def chart(self, subject: ViewContext, settings: Settings) -> Chart | None:
        """Return the chart for the browser, print, reports and notebooks; None by default."""
        return None

    def detail(self, subject: ViewContext, settings: Settings) -> tuple[Panel, ...]:
        """Return the panels that a print with detail adds to the figure; none by default."""
        return ()

    def array(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return a declared item, or the chart, as it is sent."""
        item = self.find_item(name)
        if item.description == CHART:
            return json_bytes(to_json(self.chart(subject, settings)))
        return item.checked(self.item_values(subject, name, settings), subject.about)

    def spec(self, subject: ViewContext, settings: Settings, asked: printing.PrintStyle) -> FigureSpec:
        """Return the figure for print: that of the view's figure.py, else one derived from map and chart.

        Views with a short figure override this method.

        Raises:
            VitvizError: If the view has no figure for print; the message gives the reason.
        """
        if not self.printable:
            raise VitvizError(self.unprinted or LocalizedText(printing.NO_PRINT, view=self.title))
        if not self._has("figure.py"):
            return printing.derived_spec(self, subject, settings, asked)
        module = importlib.import_module(f"{type(self).__module__}.figure")
        return module.spec(self, subject, settings, asked)

    def layer_frames(self, settings: Settings, about: ModelShape) -> printing.FrameSettings:
        """Return label and settings of each frame of the video over the layers; () if none changes."""
        found = [one.name for one in self.controls if self.mapped and one.name in printing.GROWS]
        return printing.setting_frames(found[0], settings, about) if found else ()

    @property
    def printable(self) -> bool:
        """True if the view has a figure for print."""
        own = type(self).chart is not View.chart or type(self).spec is not View.spec
        return (self.mapped or own or self._has("figure.py")) and not self.unprinted

    def _has(self, file: str) -> bool:
        """Return True if the view's folder contains a file of this name, such as view.js."""
        return (Path(__file__).with_name(self.slug) / file).is_file()

    def offered_controls(self, subject: ViewContext) -> tuple[Control, ...]:
        """Return the controls to offer for this subject; all by default."""
        return self.controls

    def unsupported(self, subject: ViewContext) -> str | None:
        """Return the reason why this view is not applicable to this model, for the page; else None."""
        return None

    def refused(self, subject: ViewContext) -> str | None:
        """Return the reason why this view is not applicable to this model or run, for the page; else None."""
        trace = subject.trace
        if self.misses_patches(subject):
            return LocalizedText(LEFT_OUT, view=self.title)
        if self.float32_only and trace is not None and trace.dtype != "float32":
            return LocalizedText(ROUNDED, view=self.title, checkpoint=subject.checkpoint, dtype=trace.dtype)
        return self.unsupported(subject)

    def misses_patches(self, subject: ViewContext) -> bool:
        """True if the view needs every patch and patches were dropped."""
        return self.every_patch and subject.trace is not None and subject.trace.kept is not None

    def available_now(self, subject: ViewContext, settings: Settings) -> bool:
        """True if the numbers need no long computation; for `on_request` views, if they are cached."""
        return not self.on_request

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the few values that the figure needs at once, for JSON.

        File names and labels in them must not be used as HTML.
        """
        return {}

    def drawn_items(self, subject: ViewContext) -> tuple[Item, ...]:
        """Return the items that the script requests; the shared scripts request the map and the chart."""
        drawn = {"chart", self.map and self.map.name}
        return tuple(item for item in self.items if not self.mapped or item.name in drawn)

    def exported_values(self, subject: ViewContext, name: str) -> tuple[str, ...]:
        """Return values of an unbounded setting that an export should include; none by default."""
        return ()

    @abstractmethod
    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return a declared item."""

    def item_values(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return a declared item, or its difference if the setting "difference" is on."""
        if name not in self.differs:
            return self.item(subject, name, settings)
        return with_difference(subject, settings, lambda one: self.item(one, name, settings))

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the arrays for export by name: the numbers that the figure shows."""
        return {
            item.name: self.item_values(subject, item.name, settings) for item in self.items if item.in_export
        }

    def axes(self) -> dict[str, str]:
        """Return the axes of each array of `numbers`; a token axis starts with the prefix tokens."""
        return {**{item.name: item.axes for item in self.items}, **self.arrays}

    def settings_for_files(self, settings: Settings, grid: Grid) -> dict[str, Any]:
        """Return the settings as written to files: a token is a prefix token's name or a patch number."""
        counted = {
            one.name for one in self.controls if isinstance(one, IntSetting | IntListSetting) and one.tokens
        }
        return {
            name: token_names(value, grid) if name in counted else value for name, value in settings.items()
        }

    def file(self, subject: ViewContext, name: str, settings: Settings, upload: Any = None) -> bytes:
        """Return a declared file; `upload` is the upright image in RGB, if there is one."""
        raise NotImplementedError(f"{self.slug} declares no files")

    def settings(self, given: Mapping[str, str], about: ModelShape | None = None) -> dict[str, Any]:
        """Return the checked value, or the default, of every control; WrongSetting for an invalid one."""
        known = {control.name: control for control in self.controls}
        for name in given:
            if name not in known:
                expected = ", ".join(known) or "none"
                raise WrongSetting(f"{self.title} has no setting {quoted(name)}; it has {expected}.")
        return {
            name: control.parse(given.get(name, str(control.start(about))), about)
            for name, control in known.items()
        }

    def image_set_setting(self, given: str = "") -> str:
        """Return the checked value of `set_control`; "" if the view has no such choice."""
        if not self.set_control:
            return ""
        return self.settings({self.set_control: given} if given else {})[self.set_control]

    def find_item(self, name: str) -> Item:
        """Return the item of this name; Unknown if there is none."""
        found = next((item for item in self.items if item.name == name), None)
        if found is None:
            raise Unknown(f"{self.title} has no numbers called {quoted(name)}.")
        return found

    def texts(self) -> set[str]:
        """Return all English texts that the view declares, for translation."""
        words = {text for name, text in vars(self.words).items() if name != "cites"}
        found = {
            self.title, self.unprinted, *words, *self.extra_strings, *(file.label for file in self.files)
        }  # fmt: skip
        if self.mapped:
            found |= {self.map.description} if self.map else set()
        for control in self.controls:
            found |= {control.label, control.info}
            if isinstance(control, Choice) and control.label:
                found |= {text for _, text in (*control.options, *control.of_values)}
        return found - {""}
