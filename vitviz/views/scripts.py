"""The scripts that draw views, as text: those of the canvas and of the views, and two that are made here; and
what each is told in JSON, of the model, the picture and the view.

Colour maps are computed, and the list of views stands in Python. Whoever draws a view hands them to a
browser: the page serves them, a notebook's cell carries them.
"""

import base64
import json
from pathlib import Path
from typing import Any

from vitviz.charts.colormaps import TABLES
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS, View, ViewContext
from vitviz.views.languages import worded

PACKAGE = Path(__file__).parents[1]
ROOMS = ("frontend", "views")
MAP, CHART = "frontend/map.js", "frontend/chart.js"  # draw every view that has no script of its own


def script_of(slug: str) -> str:
    """The module that draws a view: its own, the shared map, or the chart where nothing lies over patches."""
    view = next((one for one in VIEWS if one.slug == slug and one.mapped), None)
    return f"views/{slug}/view.js" if view is None else MAP if view.map else CHART


def files(ending: str, rooms: tuple[str, ...] = ROOMS) -> dict[str, str]:
    """The text of every file of a kind, by its path in the package, in order."""
    found = sorted(path for room in rooms for path in (PACKAGE / room).rglob(f"*{ending}"))
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in found}


def generated() -> dict[str, str]:
    """The modules that lie in no file."""
    colours = {name: base64.b64encode(table.tobytes()).decode() for name, table in TABLES.items()}
    return {
        "frontend/colormaps.js": f"export default {json.dumps(colours)};\n",
        "frontend/views.js": f"export default {json.dumps([view.slug for view in VIEWS])};\n",
    }


def framed(subject: ViewContext, slug: str) -> dict[str, Any]:
    """What every figure is told of the model and the picture."""
    grid, about, view = subject.grid, subject.about, subject.seen
    cells = {"rows": grid.rows, "cols": grid.cols}
    without = subject.trace.without if subject.trace is not None else Ablation()
    picture = view and {"upload": list(view.upload), "box": list(view.box), "input": list(grid.pixels)}
    return {
        "view": slug,
        "checkpoint": subject.checkpoint,
        "grid": cells | {"patch": list(grid.patch), "prefix": list(grid.prefix_names)},
        "layers": about.layers,
        "heads": about.heads,
        "head_type": about.head_type,
        "picture": picture,
        "missing": {"patches": list(without.patches), "as": without.patches_as},
        "controls": [],
        "items": {},
        "summary": {},
        "changed": subject.original is not None,
        "written": worded(() if subject.trace is None else subject.trace.labels),
        "message": None,
    }


def declared(view: View, subject: ViewContext) -> dict[str, Any]:
    """Its settings with the model's own bounds, and its items."""
    return {
        "controls": [control.to_json(subject.about) for control in view.offered(subject)],
        "items": {item.name: list(item.depends) for item in view.items},
        "axes": {item.name: item.axes.split() for item in view.items},
        "says": {item.name: item.description for item in view.items},
        "title": view.title,
        "signed": bool(view.map and view.map.signed),
    }
