"""The scripts that draw views, as text: those of the canvas and of the views, and two that are made here.

Colour maps are computed, and the list of views stands in Python. Whoever draws a view hands them to a
browser: the page serves them, a notebook's cell carries them.
"""

import base64
import json
from pathlib import Path

from vitviz.figures.colormaps import TABLES
from vitviz.views import VIEWS

PACKAGE = Path(__file__).parents[1]
ROOMS = ("canvas", "views")
MAP, CHART = "canvas/map.js", "canvas/chart.js"  # draw every view that has no script of its own


def script_of(slug: str) -> str:
    """The module that draws a view: its own, the shared map, or the chart where nothing lies over patches."""
    view = next((one for one in VIEWS if one.slug == slug and one.mapped), None)
    return f"views/{slug}/view.js" if view is None else MAP if view.map else CHART


def files(ending: str, rooms: tuple[str, ...] = ROOMS) -> dict[str, str]:
    """The text of every file of a kind, by its path in the package, in order."""
    found = sorted(path for room in rooms for path in (PACKAGE / room).rglob(f"*{ending}"))
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in found}


def made() -> dict[str, str]:
    """The modules that lie in no file."""
    colours = {name: base64.b64encode(table.tobytes()).decode() for name, table in TABLES.items()}
    return {
        "canvas/colormaps.js": f"export default {json.dumps(colours)};\n",
        "canvas/views.js": f"export default {json.dumps([view.slug for view in VIEWS])};\n",
    }
