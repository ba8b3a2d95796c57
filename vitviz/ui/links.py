"""A link that says what is seen: checkpoint, sample, tab and the settings of that tab, as the query of the address.

`?checkpoint=vitviz-tiny&sample=coffee&tab=rollout&fusion=max`: a name that nobody knows and a value that does not fit
are passed over, because a link comes from a stranger. The page's script (links.head.js) puts the settings of canvas
views where they look for them, before they are drawn; links.js keeps the address current and copies it. An upload of
one's own has no link: pictures stay where they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vitviz import samples
from vitviz.panels import PANELS, Panel
from vitviz.panels.base import Choice, LayerRange, Query, Slider, Whole, Wholes

RESERVED = ("checkpoint", "second", "size", "sample", "tab")  # no setting of a view may have one of these names
LONGEST = 200  # characters of a checkpoint's name; timm's longest has 70
_PATTERNS = {LayerRange: r"\d{1,3}-\d{1,3}", Query: r"\d{1,5}|[A-Za-z][\w -]{0,39}", Wholes: r"\d{1,5}(\.\d{1,5}){0,15}"}
_HOST = re.compile(r"[A-Za-z0-9.-]+(:\d+)?")


@dataclass(frozen=True)
class Link:
    """What an address asks for; None where it says nothing that could be followed."""

    checkpoint: str | None = None
    sample: str | None = None
    tab: str | None = None
    second: str | None = None
    size: str | None = None
    settings: dict[str, str] = field(default_factory=dict)  # those of the tab, as text, each one checked

    def of(self, slug: str) -> dict[str, str]:
        """The settings that it asks of a view; none if it shows another."""
        return self.settings if slug == self.tab else {}


def read(query: Mapping[str, str]) -> Link:
    """The link in the query of an address. Never raises: what does not fit is passed over.

    >>> read({"sample": "coffee", "tab": "rollout", "fusion": "max", "residual": "1e9", "colour": "red"})
    Link(checkpoint=None, sample='coffee', tab='rollout', second=None, size=None, settings={'fusion': 'max'})
    """
    sample = query.get("sample")
    panel = {panel.slug: panel for panel in PANELS}.get(query.get("tab", ""))
    return Link(
        _name(query.get("checkpoint", "")),
        sample if sample in [one.name for one in samples.samples()] else None,
        panel.slug if panel else None,
        _name(query.get("second", "")),
        _name(query.get("size", "")),
        _fitting(panel, query) if panel else {},
    )


def _name(text: str) -> str | None:
    text = text.strip()
    return text if 0 < len(text) <= LONGEST and text.isprintable() else None


def shown(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's script has to know of a session to write its link."""
    seen = {name: state.get(name, "") for name in ("second", "second_key", "size")}
    return {"key": state["key"], "checkpoint": state["checkpoint"], **seen, "sample": state.get("sample"), "base": base()}


def base() -> str:
    """Where a link has to lead: on a Space to its own address, since a page there lies in a frame; else ''."""
    host = os.environ.get("SPACE_HOST", "")
    return f"https://{host}/" if _HOST.fullmatch(host) else ""


@cache
def head() -> str:
    """The script for the page's <head>, with the settings that a link may have; after `canvas.head()`."""
    script = Path(__file__).with_name("links.head.js").read_text(encoding="utf-8")
    return f"<script>{script.replace('KNOWN', _embedded(known()))}</script>"


def known() -> dict[str, dict[str, dict[str, Any]]]:
    """Each view's settings with what fits them, for the script: panel → name → bounds, options or pattern, and default."""
    return {panel.slug: {control.name: {**_fits(control), "default": control.default} for control in _controls(panel)} for panel in PANELS}


def _controls(panel: Panel) -> tuple:
    return (*panel.controls, *panel.parameters)


def _fitting(panel: Panel, query: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for control in _controls(panel):
        text = query.get(control.name)
        if text is None or control.name in RESERVED:
            continue
        pattern = _fits(control).get("pattern", "[ -~]+")
        try:
            control.parse(text)
        except (ValueError, OverflowError):
            continue
        if re.fullmatch(pattern, text, re.ASCII):
            found[control.name] = text
    return found


def _fits(control) -> dict[str, Any]:
    if isinstance(control, Choice):
        return {"options": [value for value, _ in control.options]}
    if isinstance(control, Slider):
        return {"minimum": control.minimum, "maximum": control.maximum}
    if isinstance(control, Whole):
        return {"minimum": control.minimum, "maximum": 99_999, "whole": True}
    return {"pattern": _PATTERNS.get(type(control), "(?!)")}  # of a kind that no link knows, nothing fits


def _embedded(value: Any) -> str:
    """JSON that cannot end the <script> it stands in."""
    return json.dumps(value).replace("<", "\\u003c")
