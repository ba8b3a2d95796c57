"""The browser's scripts: ES modules that import each other by the paths that they have in the package.

Served under an address that holds a hash of all of them, so that a browser keeps them for ever and never
mixes two versions. Two kinds are made here: colour maps, which are computed, and the words of a language,
gathered from all rooms.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path

from vitviz.errors import Unknown
from vitviz.ui import words
from vitviz.views import VIEWS

_PACKAGE = Path(__file__).parents[2]
_ROOMS = ("canvas", "views", "ui")
_MAP = "canvas/map.js"  # draws every view that has no script of its own


def source(path: str) -> str:
    """A module's text; Unknown for any other path."""
    found = _sources().get(path)
    if found is None:
        raise Unknown(f"There is no script {path[:80]!r}.")
    return found


@cache
def base() -> str:
    """Where the modules lie, relative to the page."""
    whole = json.dumps(sorted(_sources().items())).encode()
    return f"gradio_api/vitviz/modules/{hashlib.blake2b(whole, digest_size=8).hexdigest()}/"


def loading(*paths: str, then: str) -> str:
    """JavaScript that loads modules and hands them to `then`, an expression; for a component's own script."""
    wanted = ", ".join(f"import(new URL('{base()}{path}', document.baseURI).href)" for path in paths)
    return f"Promise.all([{wanted}]).then({then}).catch((error) => console.error(error));"


def script_of(slug: str) -> str:
    """The module that draws a view: its own, or the shared map."""
    mapped = any(view.mapped for view in VIEWS if view.slug == slug)
    return _MAP if mapped else f"views/{slug}/view.js"


def style() -> str:
    """All style sheets: of the canvas, of the views, of the page."""
    files = sorted(path for room in _ROOMS for path in (_PACKAGE / room).rglob("*.css"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@cache
def _sources() -> dict[str, str]:
    files = sorted(path for room in _ROOMS for path in (_PACKAGE / room).rglob("*.js"))
    found = {file.relative_to(_PACKAGE).as_posix(): file.read_text(encoding="utf-8") for file in files}
    for tag in words.NAMES:
        found[f"ui/words/{tag}.js"] = (
            f"export default {json.dumps(dict(words.texts(tag)), ensure_ascii=False)};\n"
        )
    found["canvas/colormaps.js"] = f"export default {json.dumps(_colours())};\n"
    found["canvas/views.js"] = f"export default {json.dumps([view.slug for view in VIEWS])};\n"
    return found


def _colours() -> dict[str, str]:
    from vitviz.figures.colormaps import TABLES

    return {name: base64.b64encode(table.tobytes()).decode() for name, table in TABLES.items()}


__all__ = ["base", "loading", "script_of", "source", "style"]
