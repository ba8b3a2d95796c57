"""Shareable links: checkpoint, sample, tab and the tab's settings as the query of the address.

`?checkpoint=vitviz-tiny&sample=coffee&tab=rollout&fusion=max`. Links are untrusted, so unknown names and
invalid values are skipped. The page's scripts read the settings from the same address and check them against
the model's bounds; links.js keeps the address up to date and copies it. A visitor's own upload has no link:
images are never put into an address.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from vitviz.errors import VitvizError, WrongSetting
from vitviz.traces import samples
from vitviz.traces.image_edits import ImageEdits
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS, View

LONGEST = 4_000  # characters of a checkpoint's name with overrides and sentences; timm's longest name has 70
_HOST = re.compile(r"[A-Za-z0-9.-]+(:\d+)?")


@dataclass(frozen=True)
class Link:
    """Parsed contents of an address; None for parts that are missing or invalid.

    No setting of a view uses one of these names (tested).
    """

    checkpoint: str | None = None
    sample: str | None = None
    tab: str | None = None
    second: str | None = None
    size: str | None = None
    without: str | None = None  # ablation, as `Ablation.text` writes it
    strokes: str | None = None  # edits of the image, as `ImageEdits.text` writes them
    settings: dict[str, str] = field(default_factory=dict)  # of the tab, as text, each checked


def parse_link(query: Mapping[str, Any]) -> Link:
    """Parse the query of an address. Never raises: invalid values are skipped.

    >>> asked = {"sample": "coffee", "tab": "rollout", "fusion": "max", "residual": "1e9", "colour": "red"}
    >>> parse_link(asked)  # doctest: +NORMALIZE_WHITESPACE
    Link(checkpoint=None, sample='coffee', tab='rollout', second=None, size=None, without=None,
         strokes=None, settings={'fusion': 'max'})
    """
    query = {name: text for name, text in query.items() if isinstance(text, str)}
    sample = query.get("sample")
    view = {view.slug: view for view in VIEWS}.get(query.get("tab", ""))
    return Link(
        _name(query.get("checkpoint", "")),
        sample if sample in [sample.name for sample in samples.samples()] else None,
        view.slug if view else None,
        _name(query.get("second", "")),
        _name(query.get("size", "")),
        _normal_text(Ablation, query.get("without", ""), LONGEST),
        _normal_text(ImageEdits, query.get("strokes", "")),
        accepted_settings(view, query) if view else {},
    )


def _name(text: str) -> str | None:
    """Return a checkpoint name or size from a link, stripped; None if empty, too long or unprintable."""
    text = text.strip()
    return text if 0 < len(text) <= LONGEST and text.isprintable() else None


def link_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a session that the page's script needs for links and history."""
    names = "key checkpoint second second_key size without strokes picture scene".split()
    details = {name: state.get(name, "") for name in names}
    return {**details, "sample": state.get("sample"), "base": link_base()}


def link_base() -> str:
    """Return the base address of links: on a Space, the Space's own address (the page is framed); else ''."""
    host = os.environ.get("SPACE_HOST", "")
    return f"https://{host}/" if _HOST.fullmatch(host) else ""


def _normal_text(kind: type[Ablation | ImageEdits], text: str, most: int | None = None) -> str | None:
    """Return an ablation's or edits' text in normal form; None if empty, invalid or above `most`."""
    try:
        return kind.parse(text).text() or None if most is None or len(text) <= most else None
    except VitvizError:
        return None


def accepted_settings(view: View, query: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings in a query that a view accepts, as far as can be checked without a model."""
    settings = {}
    for control in view.controls:
        text = query.get(control.name)
        if isinstance(text, str) and re.fullmatch(control.pattern, text, re.ASCII):
            with suppress(WrongSetting):
                control.parse(text)
                settings[control.name] = text
    return settings
