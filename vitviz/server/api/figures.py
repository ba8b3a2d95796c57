"""Export figures: check the parameters of a request, then draw."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vitviz.errors import TooMuch, Unknown, VitvizError, WrongSetting, quoted
from vitviz.export import Figure, captions, print_view
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import View
from vitviz.views.availability import refusal
from vitviz.views.printing import ALONE, PrintStyle
from vitviz.views.routes import parse_settings

FORMATS = ("svg", "pdf", "png", *captions.FORMS)
QueryTexts = Mapping[str, str]  # settings as in a link
PREFIX, ASKED = "print.", ("width", "dpi", "detail", "dark", "lang", "definition")
NOT_YET = (
    "This view’s numbers have not been computed yet. Open the view, wait for them, then export the figure."
)
TOO_LARGE = (
    "This figure would have {count} million pixels; the limit is {most} million. Reduce the "
    "width or the dots per inch, or choose SVG or PDF."
)
USUAL = 4_000_000  # pixels; larger figures are drawn alone


def figure(
    service: AnalysisService, key: str, slug: str, query: QueryTexts, style: PrintStyle = ALONE
) -> Figure:
    """Return a view's figure; `query` has settings as in a link. Raises VitvizError for invalid ones."""
    view, subject = service.view(slug), service.subject(key)
    if subject.survey is not None and not view.scope.averages:
        raise Unknown(f"{view.title} has no average over a set of images.")
    return figure_of_settings(service, key, view, parse_settings(view, query, subject.about), style)


def figure_of_settings(
    service: AnalysisService, key: str, view: View, settings: Mapping[str, Any], style: PrintStyle
) -> Figure:
    """Return a view's figure for parsed settings."""
    with service.work.hold_place():
        subject = service.subject(key)
        if subject.trace is not None:
            picture = service.pictures.sample_of(service.runs.run(key).picture) or "own-picture"
            style = replace(style, upload=service.photograph(key), picture=picture)
        with service.work.reading(subject):
            return print_view(view, subject, settings, style)


def write_figure(service: AnalysisService, made: Figure, form: str, width: float | None, dpi: int) -> bytes:
    """Draw and encode the file in a drawing turn. Raises TooMuch above this server's limit of pixels."""
    pixels, most = made.pixels(width, dpi) if form == "png" else 0, service.settings.limits.pixels
    if pixels > most:
        raise TooMuch(LocalizedText(TOO_LARGE, count=round(pixels / 1e6), most=round(most / 1e6)))
    with service.work.drawing(max(pixels, USUAL), pixels > USUAL):
        return made.file(form, width, dpi)


def figure_file(
    service: AnalysisService, key: str, slug: str, ending: str, query: QueryTexts
) -> tuple[bytes, str]:
    """Return a figure file, or its caption, and its name.

    print.width (mm), .dpi, .detail, .dark and .lang set the format; with print.definition=0, a caption has
    two sentences.
    """
    wanted = FigureRequest(query, PREFIX, "Figures for print", ASKED, ending, FORMATS)
    view, subject = service.view(slug), service.subject(key)
    settings = parse_settings(view, wanted.theirs, subject.about)
    if view.scope.on_request and not refusal(view, subject) and not view.scope.available(subject, settings):
        raise VitvizError(NOT_YET)  # drawing would run a computation that visitors start with a button
    made = figure(service, key, slug, wanted.theirs, wanted.look())
    width, dpi = wanted.number("width", ""), wanted.number("dpi", "300")
    whole = wanted.flag("definition", "1")
    if ending in captions.FORMS:
        return made.caption_as(ending, whole).encode(), f"{made.name}.{ending}"
    return write_figure(service, made, ending, width, dpi), f"{made.name}.{ending}"


def split_by_prefix(query: QueryTexts, prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """Split parameters into those under a prefix, without the prefix, and the rest.

    >>> split_by_prefix({"print.dpi": "300", "fusion": "max"}, "print.")
    ({'dpi': '300'}, {'fusion': 'max'})
    """
    ours = {name.removeprefix(prefix): value for name, value in query.items() if name.startswith(prefix)}
    return ours, {name: value for name, value in query.items() if not name.startswith(prefix)}


def settings_of(text: str) -> dict[str, str]:
    """Return the settings of a text such as "fusion=max discard=0.9". Raises WrongSetting without a name."""
    settings = {}
    for part in text.split():
        name, sign, value = part.partition("=")
        if not sign or not name:
            raise WrongSetting(f"settings holds {quoted(part)}; expected name=value, such as fusion=max.")
        settings[name] = value
    return settings


class FigureRequest:
    """Check the export parameters of a query.

    Parameters that begin with `prefix` are checked; `theirs` holds all others. Raises Unknown for an unknown
    parameter or an unsupported file format.
    """

    def __init__(
        self, query: QueryTexts, prefix: str, what: str, known_names: Sequence[str], ending: str,
        formats: Sequence[str]
    ):  # fmt: skip
        self._prefix, (self._ours, self.theirs) = prefix, split_by_prefix(query, prefix)
        for one, known in (*((name, known_names) for name in sorted(self._ours)), (ending, formats)):
            if one not in known:
                raise Unknown(f"{what} have no {quoted(one)}; expected one of {', '.join(known)}.")

    def text(self, name: str, usual: str, form: str = ".*", expected: str = "") -> str:
        """Return a parameter, or `usual` if it is missing. Raises WrongSetting unless it matches `form`."""
        value = self._ours.get(name, usual)
        if not re.fullmatch(form, value, re.DOTALL):
            raise WrongSetting(f"{self._prefix}{name}={quoted(value)} is not valid; expected {expected}.")
        return value

    def number(self, name: str, usual: str) -> int | None:
        """Return a parameter as a whole number; None for an empty text, allowed if `usual` is empty."""
        text = self.text(name, usual, "[0-9]{1,4}" if usual else "[0-9]{0,4}", "a whole number")
        return int(text) if text else None

    def flag(self, name: str, usual: str = "0") -> bool:
        """Return a parameter that is 0 or 1 as a boolean."""
        return self.text(name, usual, "[01]", "0 or 1") == "1"

    def look(self) -> PrintStyle:
        """Return the print style that the parameters describe."""
        flags = {name: self.flag(name) for name in ("detail", "dark")}
        return PrintStyle(**flags, language=self.text("lang", "en"))
