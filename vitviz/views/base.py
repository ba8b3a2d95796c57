"""What a view is: it declares, and everything else about it is derived.

A view says what it needs, which settings it has and which items of numbers; its folder holds its words in
each language and, where the shared map is not enough, a script of its own. From that come the route and its
checks, the cache's key, the link, the page's fields, the downloads, the zip, the endpoint with its
documentation, and the tests. The texts are English and double as keys of their translations.
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
    """An array of numbers that a view can be asked for.

    `axes` names its axes, such as "layer head" or "row col": what they are called on the page and in the
    endpoint, and how long those are that the model decides. `depends` names the settings that change it:
    nothing else asks for it anew. `description` says what the numbers are, with their unit. An item that is
    not `in_export` is for drawing alone. Of a `signed` one zero is the middle of the scale: for and against.
    An item with `only_when` is requested only where the settings have these values.
    """

    name: str
    axes: str
    description: str = ""
    dtype: str = "float32"
    depends: tuple[str, ...] = ()
    in_export: bool = True
    signed: bool = False
    only_when: tuple[tuple[str, str], ...] = ()

    def checked(self, array: np.ndarray, about: ModelShape) -> np.ndarray:
        """The array as it travels; RuntimeError where it is not what was declared: a bug of the view."""
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
    """An item for drawing alone, which is not taken home."""
    return Item(name, axes, says, depends=depends, in_export=False, **more)


def as_json(name: str, says: str, *depends: str, **more: Any) -> Item:
    """The same of JSON."""
    return drawing_item(name, "byte", f"{says}, as JSON", *depends, dtype="uint8", **more)


@dataclass(frozen=True)
class File:
    """A download besides the numbers: its name, which is the route's too, and what the page calls it."""

    name: str
    label: str
    kind: str = "application/octet-stream"


class Needs(enum.Enum):
    """What a view is made from; it decides what its numbers are kept under."""

    WEIGHTS = "weights"  # the checkpoint and its input size alone: computed once, whatever the picture
    RUN = "run"  # one picture's trace
    SET = "set"  # a set of pictures


@dataclass(frozen=True)
class ViewTexts:
    """What the page says about a view: `what` and `how` are two sentences, the rest folds away."""

    what: str
    how: str
    definition: str  # Markdown, with the formula
    source: str  # section and figure of the paper
    caveat: str  # what it does not show
    cites: str = ""  # the work whose section, figure or equation the source begins with

    @classmethod
    def from_text(cls, text: str) -> ViewTexts:
        """Those of a text of five paragraphs, `what` to `caveat`."""
        return cls(*paragraphs(text))

    @classmethod
    def of_paper(cls, text: str) -> ViewTexts:
        """The same of what is the ViT paper's own."""
        return cls(*paragraphs(text), PAPER)


def paragraphs(text: str) -> tuple[str, ...]:
    """Those of a text in lines, which an empty one parts.

    >>> paragraphs("One, and\\n    more of it.\\n\\n    Two.")
    ('One, and more of it.', 'Two.')
    """
    return tuple(re.sub(r"\s*\n\s*", " ", part.strip()) for part in text.split("\n\n"))


def before(subject: ViewContext) -> ViewContext:
    """The picture as it was; VitvizError where it is as it was."""
    if subject.original is None:
        raise VitvizError(LocalizedText(UNCHANGED))
    return subject.original()


def changed(subject: ViewContext, settings: Settings, of: Callable[[ViewContext], np.ndarray]) -> np.ndarray:
    """What `of` says of a subject; where the settings ask for it less that of the picture as it was."""
    found = of(subject)
    if settings.get("difference") != "on":
        return found
    return np.asarray(found, float) - np.asarray(of(before(subject)), float)


class View(ABC):
    """A view of the model. Subclasses are stateless; one instance each stands in `vitviz.views.VIEWS`.

    A view without a script of its own is drawn as a map over the picture: its first item whose last two axes
    are row and col; every further axis that is also a control's name (layer, head) is chosen by that control.
    A view with a `chart` has it beside the map, or alone.
    """

    slug: ClassVar[str]  # the name of its folder
    title: ClassVar[str]
    words: ClassVar[ViewTexts]
    needs: ClassVar[Needs] = Needs.RUN
    controls: ClassVar[tuple[Control, ...]] = ()
    items: ClassVar[tuple[Item, ...]] = ()
    arrays: ClassVar[Mapping[str, str]] = {}  # in its numbers besides items: name -> axes, as in an item
    files: ClassVar[tuple[File, ...]] = ()
    endpoint: ClassVar[str | None] = None  # that programs call; None for one derived from settings and items
    every_patch: ClassVar[bool] = False  # whether it needs all: not applicable where some were left out
    # whether it begins with gradients: a rounded model's are another's
    float32_only: ClassVar[bool] = False
    unprinted: ClassVar[str] = ""  # why it has no figure for print; none where it has one
    on_request: ClassVar[bool] = False  # whether its numbers take so long that only who asks for them waits
    averages: ClassVar[bool] = False  # whether it can also be drawn of a survey, the mean over pictures
    set_control: ClassVar[str] = ""  # the choice by which a set of pictures is looked at, where there is one
    most_pictures: ClassVar[int] = 1_000  # of a set, from the page
    # whether its figure needs no pass, and stands there while one is made
    needs_no_pass: ClassVar[bool] = False
    charted: ClassVar[tuple[str, ...] | None] = None  # the settings that change its chart; all by default
    paired: ClassVar[bool] = False  # whether a figure is also of the second checkpoint, where there is one
    sided: ClassVar[bool] = False  # whether it is of one picture, and may be asked to look at that one too
    differs: ClassVar[tuple[str, ...]] = ()  # the items of which a difference can be shown: after - before
    # of a video, where they are not given: so that nothing else moves
    video_defaults: ClassVar[Mapping[str, str]] = {}
    extra_strings: ClassVar[Iterable[str]] = ()  # further English texts that it says

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
        """Whether a script of the canvas draws it, for want of one in its folder."""
        return not self._has("view.js")

    @property
    def map(self) -> Item | None:
        """The item that lies over the patches."""
        return next((item for item in self.items if item.axes.split()[-2:] == ["row", "col"]), None)

    def chart(self, subject: ViewContext, settings: Settings) -> Chart | None:
        """Its chart, which the browser, paper, reports and notebooks draw; none by default."""
        return None

    def detail(self, subject: ViewContext, settings: Settings) -> tuple[Panel, ...]:
        """What a print with its detail shows beside the figure."""
        return ()

    def array(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """One of the declared items as it travels, the chart among them."""
        item = self.declared(name)
        if item.description == CHART:
            return json_bytes(to_json(self.chart(subject, settings)))
        return item.checked(self.item_values(subject, name, settings), subject.about)

    def plate(self, subject: ViewContext, settings: Settings, asked: printing.PrintStyle) -> FigureSpec:
        """Its figure for print: its own, that of its figure.py where this is long, or of map and chart;
        VitvizError says why there is none.
        """
        if not self.printable:
            raise VitvizError(self.unprinted or LocalizedText(printing.NO_PRINT, view=self.title))
        if not self._has("figure.py"):
            return printing.derived(self, subject, settings, asked)
        room = importlib.import_module(f"{type(self).__module__}.figure")
        return room.plate(self, subject, settings, asked)

    def over_layers(self, settings: Settings, about: ModelShape) -> printing.FrameSettings:
        """Each frame of its film over the layers, by name and settings; none where nothing grows."""
        found = [one.name for one in self.controls if self.mapped and one.name in printing.GROWS]
        return printing.each(found[0], settings, about) if found else ()

    @property
    def printable(self) -> bool:
        """Whether it has a figure for print."""
        own = type(self).chart is not View.chart or type(self).plate is not View.plate
        return (self.mapped or own or self._has("figure.py")) and not self.unprinted

    def _has(self, file: str) -> bool:
        return (Path(__file__).with_name(self.slug) / file).is_file()

    def offered(self, subject: ViewContext) -> tuple[Control, ...]:
        """The settings that are offered here: all by default."""
        return self.controls

    def unsupported(self, subject: ViewContext) -> str | None:
        """Why this view does not exist for this model, as a sentence for the page; None where it does."""
        return None

    def refused(self, subject: ViewContext) -> str | None:
        """The same, or why it does not exist for this run."""
        trace = subject.trace
        if self.misses_patches(subject):
            return LocalizedText(LEFT_OUT, view=self.title)
        if self.float32_only and trace is not None and trace.dtype != "float32":
            return LocalizedText(ROUNDED, view=self.title, checkpoint=subject.checkpoint, dtype=trace.dtype)
        return self.unsupported(subject)

    def misses_patches(self, subject: ViewContext) -> bool:
        """Whether it does not exist because patches were left out, and would if they were painted over."""
        return self.every_patch and subject.trace is not None and subject.trace.kept is not None

    def at_hand(self, subject: ViewContext, settings: Settings) -> bool:
        """Whether its numbers keep nobody waiting: of what is made on request, whether it has been made."""
        return not self.on_request

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """The few values that the figure needs at once, as JSON; no file name or label to be used as HTML."""
        return {}

    def drawn_from(self, subject: ViewContext) -> tuple[Item, ...]:
        """The items that its script asks for; of one of the canvas its map and its chart."""
        drawn = {"chart", self.map and self.map.name}
        return tuple(item for item in self.items if not self.mapped or item.name in drawn)

    def likely(self, subject: ViewContext, name: str) -> tuple[str, ...]:
        """Values that are worth holding of a setting whose kind does not bound them; none by default."""
        return ()

    @abstractmethod
    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """One of the declared items."""

    def item_values(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """The same, or where the settings ask for it its difference."""
        if name not in self.differs:
            return self.item(subject, name, settings)
        return changed(subject, settings, lambda one: self.item(one, name, settings))

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """What the user takes home, by name; the same that the figure shows."""
        return {
            item.name: self.item_values(subject, item.name, settings) for item in self.items if item.in_export
        }

    def axes(self) -> dict[str, str]:
        """What each array of its numbers counts along, by name; a token axis begins with prefix tokens."""
        return {**{item.name: item.axes for item in self.items}, **self.arrays}

    def filed(self, settings: Settings, grid: Grid) -> dict[str, Any]:
        """The settings as files tell them: a token is its prefix token's name, or its patch's number."""
        counted = {
            one.name for one in self.controls if isinstance(one, IntSetting | IntListSetting) and one.tokens
        }
        return {
            name: token_names(value, grid) if name in counted else value for name, value in settings.items()
        }

    def file(self, subject: ViewContext, name: str, settings: Settings, upload: Any = None) -> bytes:
        """One of the declared files; `upload` is the upright picture in RGB, where there is one."""
        raise NotImplementedError(f"{self.slug} declares no files")

    def settings(self, given: Mapping[str, str], about: ModelShape | None = None) -> dict[str, Any]:
        """Every control's value, checked, or its default; WrongSetting says what does not fit."""
        known = {control.name: control for control in self.controls}
        for name in given:
            if name not in known:
                expected = ", ".join(known) or "none"
                raise WrongSetting(f"{self.title} has no setting {quoted(name)}; it has {expected}.")
        return {
            name: control.parse(given.get(name, str(control.start(about))), about)
            for name, control in known.items()
        }

    def set_choice(self, given: str = "") -> str:
        """How a set of pictures is looked at, checked; "" where that leaves no choice."""
        if not self.set_control:
            return ""
        return self.settings({self.set_control: given} if given else {})[self.set_control]

    def declared(self, name: str) -> Item:
        """An item by its name; Unknown for any other."""
        found = next((item for item in self.items if item.name == name), None)
        if found is None:
            raise Unknown(f"{self.title} has no numbers called {quoted(name)}.")
        return found

    def texts(self) -> set[str]:
        """The English texts that it declares, which need translations."""
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
