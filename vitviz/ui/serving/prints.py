"""Figures for print from the server: what is asked for in an address or by a program, checked and drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from vitviz.errors import Unknown, VitvizError, WrongSetting
from vitviz.prints import Figure, printed
from vitviz.ui.serving.studio import Studio
from vitviz.views import Needs, View
from vitviz.views.printing import Asked

FORMATS = ("svg", "pdf", "png", "txt")
PREFIX = "print."
NOT_YET = "Its numbers take a while to compute; once the view itself has found them, their figure is there."
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
    studio: Studio,
    key: str,
    view: View,
    settings: Mapping[str, Any],
    detail: bool,
    dark: bool,
    language: str,
) -> Figure:
    """The same for settings that have been read."""
    subject = studio.subject(key)
    upload = None if subject.trace is None else np.asarray(studio.upload(key))
    with nullcontext() if view.needs is Needs.SET else studio.reading(subject):  # a set takes turns by itself
        return printed(view, subject, settings, Asked(detail, upload), dark, language)


def asked_for(
    studio: Studio, key: str, slug: str, ending: str, given: Mapping[str, str]
) -> tuple[bytes, str]:
    """The file of an address, and its name; print.width (mm), .dpi, .detail, .dark, .lang say how."""
    ours = {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
    theirs = {name: value for name, value in given.items() if not name.startswith(PREFIX)}
    unknown = set(ours) - {"width", "dpi", "detail", "dark", "lang"}
    if ending not in FORMATS or unknown:
        wrong = sorted(unknown)[0] if unknown else ending
        known = "width, dpi, detail, dark, lang" if unknown else ", ".join(FORMATS)
        raise Unknown(f"Figures for print have no {wrong[:60]!r}; expected one of {known}.")
    require_found(studio, key, slug, theirs)
    flags = {name: flag(ours, name) for name in ("detail", "dark")}
    made = figure(studio, key, slug, theirs, **flags, language=ours.get("lang", "en"))
    width = None if not ours.get("width") else number(ours, "width")
    return made.file(ending, width, number(ours, "dpi") if "dpi" in ours else 300), f"{made.name}.{ending}"


def require_found(studio: Studio, key: str, slug: str, given: Mapping[str, str]) -> None:
    """VitvizError where a figure would first have to wait for what its view is asked for by a button."""
    view, subject = studio.view(slug), studio.subject(key)
    settings = view.settings(given, subject.about)
    if view.on_request and not view.refused(subject) and not view.at_hand(subject, settings):
        raise VitvizError(NOT_YET)


def settings_of(text: str) -> dict[str, str]:
    """Settings as a program writes them: "fusion=max discard=0.9"; WrongSetting for a part without a name."""
    found = {}
    for part in text.split():
        name, sign, value = part.partition("=")
        if not sign or not name:
            raise WrongSetting(f"settings holds {part[:60]!r}; expected name=value, such as fusion=max.")
        found[name] = value
    return found


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


__all__ = [
    "FORMATS", "asked_for", "figure", "flag", "number", "of_settings", "require_found", "settings_of",
]  # fmt: skip
