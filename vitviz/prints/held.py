"""What a cell holds: the numbers of a view under the given settings, and under every value of the live
ones.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from vitviz.errors import VitvizError
from vitviz.figures.encode import encoded
from vitviz.prints.figure import upload_of
from vitviz.record.sentence import said, travelling
from vitviz.views import About, Choice, Control, Item, Query, Slider, Subject, View, Whole
from vitviz.views.controls import DIFFERENCE

MOST = 1_000  # values of a setting that may be live by default
Texts = dict[str, str]


@dataclass(frozen=True)
class Held:
    """A view's items as a cell carries them. `fixed`: settings that an item depends on, held at one value."""

    view: View
    subject: Subject
    given: Texts  # every setting, as its text in an address
    live: Mapping[str, tuple[str, ...]]  # a setting's values
    fixed: tuple[str, ...]

    @classmethod
    def of(
        cls, view: View, subject: Subject, asked: Texts, live: Iterable[str] | None, room: float,
        seconds: float,
    ) -> Held:  # fmt: skip
        """As much as `room` (bytes) and `seconds` allow; VitvizError for a setting or value that is none."""
        about = subject.about
        view.settings(asked, about)
        given = {one.name: _text(asked.get(one.name, one.start(about))) for one in view.controls}
        depended = {name for item in _drawn(view, subject, given) for name in item.depends}
        named = {one.name: one for one in view.controls if one.name in depended}
        kept = [name for name in named if subject.original or name != DIFFERENCE.name]
        wanted = kept if live is None else list(live)
        domains = {}
        for name in wanted:
            values = view.likely(subject, name) or _domain(named.get(name), name, about, live is not None)
            domains |= {name: values} if given.get(name) in values else {}
        if live is None:
            domains = _fitting(view, subject, given, domains, room, seconds)
        return cls(view, subject, given, domains, tuple(name for name in kept if name not in domains))

    def controls(self, described: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The settings as the script is told them, beginning with the given values."""

        def begun(one: dict[str, Any]) -> float | str:
            text = self.given[one["name"]]
            return float(text) if one["kind"] in ("slider", "whole") else text

        return [{**one, "default": begun(one)} for one in described]

    def parts(self) -> dict[str, dict[str, Any]]:
        """Every address that the script can ask, with its array, or with the sentence that refuses it."""
        found = {}
        for item in _drawn(self.view, self.subject, self.given):
            for values in product(*(self.live.get(name, (self.given[name],)) for name in item.depends)):
                texts = {**self.given, **dict(zip(item.depends, values, strict=True))}
                found[address(self.view, item, texts)] = _packed(_array(self.view, self.subject, item, texts))
        return found


def address(view: View, item: Item, texts: Texts) -> str:
    """As canvas/cell.js names it."""
    return f"cell/{view.slug}/{item.name}?" + "&".join(f"{name}={texts[name]}" for name in item.depends)


def pictures(subject: Subject, image: Any) -> tuple[dict[str, dict[str, Any]], Subject]:
    """The pictures that scripts ask for, and the subject with the upload that they show: the given image,
    else what the model saw. VitvizError for an image of another size than was traced.
    """
    if subject.trace is None:
        return {}, subject
    view = subject.trace.view
    seen = {"data": _base64(encoded(view.picture, ".png")), "type": "image/png"}
    if image is None:
        height, width = view.picture.shape[:2]
        cropped = replace(view, box=(0.0, 0.0, float(width), float(height)), upload=(width, height))
        trace = replace(subject.trace, view=cropped)
        kept = {"once": subject.once, "once_of_weights": subject.once_of_weights}
        subject = Subject(subject.inspector, trace, original=subject.original, **kept)
        return {"cell/picture/input?": seen, "cell/picture/upload?": seen}, subject
    whole = {"data": _base64(encoded(upload_of(image, subject.trace), ".jpg")), "type": "image/jpeg"}
    return {"cell/picture/input?": seen, "cell/picture/upload?": whole}, subject


def _drawn(view: View, subject: Subject, given: Texts) -> list[Item]:
    """What it is drawn from under the given settings."""
    every = view.drawn_from(subject)
    return [one for one in every if all(given[name] == value for name, value in one.opened)]


def _fitting(
    view: View, subject: Subject, given: Texts, domains: dict[str, tuple[str, ...]], room: float,
    seconds: float,
) -> dict[str, tuple[str, ...]]:  # fmt: skip
    """Without the settings of most values, until all that is live fits."""
    cost = {}
    for item in _drawn(view, subject, given):
        begun = time.monotonic()
        found = _array(view, subject, item, given)
        size = found.nbytes if isinstance(found, np.ndarray) else 0
        cost[item] = np.array([size, time.monotonic() - begun])
    while domains:
        whole = sum(
            cost[item] * np.prod([len(domains.get(name, "1")) for name in item.depends], dtype=float)
            for item in cost
        )
        if whole[0] <= room and whole[1] <= seconds:
            break
        domains.pop(max(domains, key=lambda name: len(domains[name])))
    return domains


def _domain(control: Control | None, name: str, about: About, asked: bool) -> tuple[str, ...]:
    """Every value of a setting as its text; none of too many, VitvizError where they were `asked` for."""
    values: Iterable[Any] = ()
    if isinstance(control, Choice):
        values = [value for value, _ in control.options]
    elif isinstance(control, Slider):
        count = round((about.number(control.maximum) - control.minimum) / control.step) + 1
        whole = float(control.step).is_integer()
        values = [control.minimum + place * control.step for place in range(count)] if whole or asked else ()
    elif isinstance(control, Whole):
        values = range(control.minimum, int(about.number(control.maximum)) + 1)
    elif isinstance(control, Query):
        values = ["auto", "mean", *about.grid.prefix_names, *range(about.grid.patches)]
    found = tuple(map(_text, values)) if len(values) <= MOST else ()
    if asked and not found:
        raise VitvizError(
            f"Given live={name!r}; expected settings that the numbers depend on, with at most {MOST} values."
        )
    return found


def _text(value: Any) -> str:
    """As the browser writes it: 1 and not 1.0."""
    return f"{round(value, 6):g}" if isinstance(value, float) else str(value)


def _array(view: View, subject: Subject, item: Item, texts: Texts) -> np.ndarray | VitvizError:
    try:
        return view.array(subject, item.name, view.settings(texts, subject.about))
    except VitvizError as error:
        return error


def _packed(found: np.ndarray | VitvizError) -> dict[str, Any]:
    if isinstance(found, VitvizError):
        return {"said": travelling(said(found))}
    told = {"shape": ",".join(map(str, found.shape)), "dtype": str(found.dtype)}
    return {"data": _base64(found.tobytes()), "type": "application/octet-stream", **told}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
