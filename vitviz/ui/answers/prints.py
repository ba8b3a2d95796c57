"""Figures for print from the server: what is asked for in an address or by a program, checked and drawn."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vitviz.errors import TooMuch, Unknown, VitvizError, WrongSetting
from vitviz.prints import Figure, printed
from vitviz.record.sentence import Sentence
from vitviz.ui.memory.studio import Studio
from vitviz.views import View
from vitviz.views.printing import Asked

FORMATS = ("svg", "pdf", "png", "txt")
PREFIX, ASKED = "print.", ("width", "dpi", "detail", "dark", "lang")
NOT_YET = "Its numbers take a while to compute; once the view itself has found them, their figure is there."
TOO_LARGE = (
    "This figure would have {count} million pixels, and this server draws at most {most} million. Ask for a"
    " smaller width or fewer dots per inch, or for SVG or PDF, which need none."
)
USUAL = 4_000_000  # pixels; what has more is drawn alone
FLAGS = {"0": False, "1": True}


def figure(
    studio: Studio,
    key: str,
    slug: str,
    given: Mapping[str, str],
    detail=False,
    dark=False,
    language: str = "en",
) -> Figure:
    """A view's figure for print, for a key and settings as in a link; VitvizError for what does not fit."""
    view, subject = studio.view(slug), studio.subject(key)
    if subject.survey is not None and not view.averages:
        raise Unknown(f"{view.title} has no average over a set of pictures.")
    return of_settings(studio, key, view, view.settings(given, subject.about), detail, dark, language)


def of_settings(
    studio: Studio, key: str, view: View, settings: Mapping[str, Any], detail: bool, dark: bool, language: str
) -> Figure:
    """The same for settings that have been read."""
    with studio.work.placed():
        subject = studio.subject(key)
        upload = None if subject.trace is None else studio.photograph(key)
        with studio.work.reading(subject):
            picture = (
                ""
                if upload is None
                else studio.pictures.sample_of(studio.runs.run(key).picture) or "own-picture"
            )
            return printed(view, subject, settings, Asked(detail, upload, picture), dark, language)


def written(studio: Studio, made: Figure, form: str, width: float | None, dpi: int) -> bytes:
    """The file, drawn and written in a turn; TooMuch for more pixels than this server draws."""
    pixels, most = made.pixels(width, dpi) if form == "png" else 0, studio.settings.limits.pixels
    if pixels > most:
        count = {"count": round(pixels / 1e6), "most": round(most / 1e6)}
        raise TooMuch(Sentence(TOO_LARGE, **count))
    with studio.work.drawing(max(pixels, USUAL), pixels > USUAL):
        return made.file(form, width, dpi)


def asked_for(
    studio: Studio, key: str, slug: str, ending: str, given: Mapping[str, str]
) -> tuple[bytes, str]:
    """The file of an address, and its name; print.width (mm), .dpi, .detail, .dark, .lang say how."""
    ours, theirs = apart(given, PREFIX)
    require_known("Figures for print", ours, ASKED, ending, FORMATS)
    require_found(studio, key, slug, theirs)
    flags = {name: flag(ours, name) for name in ("detail", "dark")}
    made = figure(studio, key, slug, theirs, **flags, language=ours.get("lang", "en"))
    width = None if not ours.get("width") else number(ours, "width")
    dpi = number(ours, "dpi") if "dpi" in ours else 300
    return written(studio, made, ending, width, dpi), f"{made.name}.{ending}"


def require_found(studio: Studio, key: str, slug: str, given: Mapping[str, str]) -> None:
    """VitvizError where a figure would first have to wait for what its view is asked for by a button."""
    view, subject = studio.view(slug), studio.subject(key)
    settings = view.settings(given, subject.about)
    if view.on_request and not view.refused(subject) and not view.at_hand(subject, settings):
        raise VitvizError(NOT_YET)


def apart(given: Mapping[str, str], prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """What an address says under a prefix, without it, and all else.

    >>> apart({"print.dpi": "300", "fusion": "max"}, "print.")
    ({'dpi': '300'}, {'fusion': 'max'})
    """
    ours = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    return ours, {name: value for name, value in given.items() if not name.startswith(prefix)}


def settings_of(text: str) -> dict[str, str]:
    """Settings as a program writes them: "fusion=max discard=0.9"; WrongSetting for a part without a name."""
    found = {}
    for part in text.split():
        name, sign, value = part.partition("=")
        if not sign or not name:
            raise WrongSetting(f"settings holds {part[:60]!r}; expected name=value, such as fusion=max.")
        found[name] = value
    return found


def require_known(
    what: str, given: Mapping[str, str], asked: Sequence[str], ending: str, formats: Sequence[str]
) -> None:
    """Unknown for a form of file, or something asked of it, that there is not."""
    for one, known in (*((name, asked) for name in sorted(given)), (ending, formats)):
        if one not in known:
            raise Unknown(f"{what} have no {one[:60]!r}; expected one of {', '.join(known)}.")


def flag(given: Mapping[str, str], name: str, prefix: str = PREFIX) -> bool:
    """A setting of an address that is 0 or 1; 0 where it is not given."""
    value = given.get(name, "0")
    if value not in FLAGS:
        raise WrongSetting(f"Given {prefix}{name}={value[:60]!r}; expected 0 or 1.")
    return FLAGS[value]


def number(given: Mapping[str, str], name: str, prefix: str = PREFIX) -> int:
    """A setting of an address that is a whole number."""
    value = given[name]
    if not re.fullmatch(r"[0-9]{1,4}", value):
        raise WrongSetting(f"Given {prefix}{name}={value[:60]!r}; expected a whole number.")
    return int(value)
