"""`vitviz.figure`: a view's figure for print, from the same items as its figure on the page."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz.errors import Unknown, VitvizError
from vitviz.languages import NAMES, translated
from vitviz.prints.caption import caption_of, name_of, spelled
from vitviz.views import VIEWS, Needs, Subject, View
from vitviz.views.printing import Asked

if TYPE_CHECKING:
    from vitviz.engine import Inspector
    from vitviz.figures.paper.plates import Plate
    from vitviz.surveys import Survey
    from vitviz.trace import Trace

MISSING = "Figures for print are drawn by matplotlib, which is not installed: pip install 'vitviz[print]'."


def paper(name: str) -> ModuleType:
    """A module of those that draw on paper; VitvizError where matplotlib is not installed."""
    try:
        return importlib.import_module(f"vitviz.figures.paper.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise VitvizError(MISSING) from None


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure for print. `plate` holds its numbers and words; what is drawn of it is the same every time."""

    plate: Plate
    name: str  # view, checkpoint and settings: a file's name without its ending
    caption: str  # definition, settings, source and citation
    title: str
    dark: bool = False
    language: str = "en"

    def svg(self, width: float | None = None) -> bytes:
        """`width` mm wide, by default as wide as it needs; text stays text."""
        return self._drawn("svg", width)

    def pdf(self, width: float | None = None) -> bytes:
        """The same as PDF."""
        return self._drawn("pdf", width)

    def png(self, width: float | None = None, dpi: int = 300) -> bytes:
        """The same as round(width / 25.4 · dpi) pixels across, at 150, 300 or 600 dpi."""
        return self._drawn("png", width, dpi)

    def file(self, form: str, width: float | None = None, dpi: int = 300) -> bytes:
        """Any of them by its name, and "txt" for the caption; VitvizError for what does not exist."""
        return self.caption.encode() if form == "txt" else self._drawn(form, width, dpi)

    def save(self, path: str | Path, width: float | None = None, dpi: int = 300) -> Path:
        """Writes a .svg, .pdf or .png, and the caption beside it as .txt; returns the figure's path.

        `width` is in mm (40 to 400), `dpi` 150, 300 or 600. VitvizError for any other ending, width or
        resolution.
        """
        path = Path(path)
        data = self.file(path.suffix.lower().removeprefix("."), width, dpi)
        path.write_bytes(data)
        if path.suffix.lower() != ".txt":
            path.with_suffix(".txt").write_text(self.caption, encoding="utf-8")
        return path

    def _repr_svg_(self) -> str:
        return self.svg().decode()

    def _drawn(self, form: str, width: float | None, dpi: int = 300) -> bytes:
        def say(text):
            return translated(text, self.language)

        about = self.caption.partition("\n")[0]
        return paper("sheet").drawn(
            self.plate, form, width, dpi, self.dark, say, self.language, self.title, about
        )


def figure(
    view: str,
    inspector: Inspector,
    trace: Trace | Survey | None = None,
    *,
    detail: bool = False,
    dark: bool = False,
    language: str = "en",
    picture: Any = None,
    second: Inspector | Survey | None = None,
    **settings: Any,
) -> Figure:
    """The figure of one view for print.

    `view` is one of "patches", "filters", "positions", "experiment", "explorer", "tokens", "evidence",
    "distance", "rollout", "trial" and "compared"; filters and positions need no trace. `settings` are those
    of the page, by the names in its links: layers and heads count from 1, patches from 0. `detail` adds what
    stands beside the figure there. `picture` is the upright photograph (path, PIL image or array) behind the
    trace, for a figure at its own resolution; without it the model's input is shown. Light on white unless
    `dark`; `language` is "en", "zh-CN" or "ko" (English where the machine has no font for it).

    Compared is over a set of pictures: the 20 parts of the sample photographs, which are looked at now, at a
    trace's input size where one is handed in; or in place of the trace a survey with what
    `vitviz.surveys.LAYERS` measures. `second` is the checkpoint beside it: an inspector, or a survey of the
    same pictures. Distance and Trial, too, can be of a survey.

    Raises VitvizError for a view or setting that does not exist, for what does not fit together, and where
    the view is not applicable to the model, with the reason.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> figure("filters", inspector).png(width=86, dpi=300)[1:4]
    b'PNG'
    """
    found, subject = looked_at(view, inspector, trace, second)
    parsed = read(found, subject, settings)
    return printed(found, subject, parsed, Asked(detail, upload_of(picture, subject.trace)), dark, language)


def looked_at(
    view: str,
    inspector: Inspector,
    of: Trace | Survey | None,
    second: Inspector | Survey | None = None,
) -> tuple[View, Subject]:
    """A view by its slug, and what it looks at; VitvizError for another, and where it needs more."""
    found = next((one for one in VIEWS if one.slug == view), None)
    if found is None:
        raise Unknown(f"There is no view {view!r}; there are {', '.join(one.slug for one in VIEWS)}.")
    made: dict[str, Any] = {}

    def once(name, make):
        return made[name] if name in made else made.setdefault(name, make())

    from vitviz.prints import over_a_set

    if found.needs is Needs.SET:
        return found, over_a_set.subject_over(inspector, of, second, once)
    if second is not None:
        raise VitvizError(f"{found.title} is of one checkpoint: `second` is for Compared.")
    if isinstance(of, over_a_set.Survey):
        if not found.averages:
            raise VitvizError(f"{found.title} is of one picture, and no average over a survey's.")
        fitting = over_a_set.fitting(inspector, of)
        return found, Subject(fitting, survey=of, once=once, once_of_weights=once)
    if found.needs is Needs.RUN and of is None:
        raise VitvizError(
            f"{found.title} is of a picture: hand in a trace, such as inspector.trace(picture)."
        )
    return found, Subject(inspector, of, once=once, once_of_weights=once)


def read(view: View, subject: Subject, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as Python hands them in, checked, with the defaults of all others."""
    controls = {control.name: control for control in view.controls}
    given = {name: spelled(controls.get(name), value) for name, value in settings.items()}
    return view.settings(given, subject.about)


def printed(
    view: View,
    subject: Subject,
    settings: Mapping[str, Any],
    asked: Asked,
    dark: bool = False,
    language: str = "en",
) -> Figure:
    """The same for a view, a subject and settings that are at hand."""
    if language not in NAMES:
        raise VitvizError(f"There is no language {language!r}; expected one of {', '.join(NAMES)}.")
    reason = view.refused(subject)
    if reason:
        raise VitvizError(reason)
    plate = view.plate(subject, settings, asked)
    second = subject.beside if plate.second else None
    caption = caption_of(view, subject, settings, second, language)
    title = f"{translated(view.title, language)} · {subject.checkpoint}"
    name = name_of(view, subject, settings, asked.detail, second)
    return Figure(plate, name, caption, title, dark, language)


def upload_of(picture: Any, trace: Trace | None) -> np.ndarray | None:
    """The upright photograph in RGB, if there is one; VitvizError for another size than the trace's."""
    if picture is None:
        return None
    from vitviz.engine.pictures.images import open_image

    pixels = np.asarray(open_image(picture))
    expected = None if trace is None else tuple(trace.view.upload)
    if expected is not None and (pixels.shape[1], pixels.shape[0]) != expected:
        raise VitvizError(
            f"The picture has {pixels.shape[1]} x {pixels.shape[0]} pixels, but the trace is of one of"
            f" {expected[0]} x {expected[1]}. Hand in the picture that was traced."
        )
    return pixels


__all__ = ["Figure", "figure", "looked_at", "paper", "printed", "read", "upload_of"]
