"""Views drawn by the browser: static templates for `gr.HTML`, and the script and style that they share.

Nothing of a picture, a checkpoint or a user ever enters a template: a view gets its state as the component's `value`
and its numbers as bytes from the server, and writes text with `textContent` only. `head()` goes into the page's
<head> once; `template(view)` makes one component.

The settings that a view reads are declared by its panel, by these names: patches `form` (picture, sequence), `gap`;
filters `kind` (components, raw); positions `form` (tiles, matrix), `scale` (data, full); rollout `query`, `fusion`,
`discard`, `residual`, `layers`, `overlay` (heat, paper), `opacity`, `colormap`, `smooth` (on, off) and, where given,
`scale` (zero, data). The explorer brings its own. Layers and heads count from 1 in an address too, patches and tokens
from 0.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path

from vitviz.figures.colormaps import TABLES

VIEWS = ("stage", "patches", "filters", "positions", "rollout", "explorer", "tour")
_HERE = Path(__file__).parent
_PARTS = {  # where one file would be too long
    "explorer": ("explorer.wall.js", "explorer.js"),
    "tour": ("tour.parts.js", "tour.input.js", "tour.shuffle.js", "tour.encoder.js", "tour.answer.js", "tour.js"),
}
_CORE = ("data", "draw", "toolbar", "export", "pointer", "mount")  # joined in this order into one script

_PUBLIC = (  # what the core lends to the views, as `window.vitviz.…`
    "t el sheet fit tinted enlarged bounds total number ticks colourbar tip "
    "array pixels cells outline save patchName placeName tokenName table"
).split()


def template(view: str) -> tuple[str, str, str]:
    """The html, css and js_on_load of one view, all static.

    >>> html, css, js = template("stage")
    >>> html
    '<div class="vv" data-view="stage"></div>'
    """
    if view not in VIEWS:
        raise ValueError(f"There is no view {view!r}; there are {', '.join(VIEWS)}.")
    script = "\n".join(_read(name) for name in _PARTS.get(view, (f"{view}.js",)))
    return f'<div class="vv" data-view="{view}"></div>', "", script


@cache
def head() -> str:
    """What the page's <head> needs: the shared style, and the shared script with the colour maps in it.

    The style travels here and not through Gradio's `css=`, which drops the container queries that it relies on.
    """
    return f"<style>{style()}</style>\n<script>{script()}</script>"


@cache
def style() -> str:
    """The shared style sheet."""
    return _read("style.css") + _read("tour.css")


@cache
def script() -> str:
    """The shared script: defines `window.vitviz` once, however often it is run."""
    tables = {name: base64.b64encode(table.tobytes()).decode() for name, table in TABLES.items()}
    parts = [_read(f"core.{name}.js") for name in _CORE]
    public = ", ".join(_PUBLIC)
    return "\n".join(
        [
            "(() => {\n'use strict';\nif (window.vitviz) return;",
            *parts,
            f"decodeTables({json.dumps(tables)});",
            f"window.vitviz = {{ texts: {{}}, memory, views, mount, speak, {public} }};",
            "})();",
        ]
    )


def texts() -> list[str]:
    """Every English text that the views themselves show: the keys that a translation needs."""
    found: set[str] = set()
    for file in sorted(_HERE.glob("*.js")):
        source = _read(file.name)
        found.update(re.findall(r"\bt\('((?:[^'\\]|\\.)+)'", source))
        found.update(re.findall(r"\b(?:title|extras): (?:\[\[)?'((?:[^'\\]|\\.)+)'", source))
    return sorted(found)


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


__all__ = ["VIEWS", "head", "script", "style", "template", "texts"]
