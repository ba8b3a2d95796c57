"""Source text of the scripts that draw views, and the JSON that they receive about model, image and view.

Three modules are generated here: colour maps are computed, and the list of views and Plotly's version are
known in Python. The page
serves the scripts; a notebook cell embeds them.
"""

import base64
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vitviz.charts.colormaps import TABLES
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS, View, ViewContext
from vitviz.views.languages import labels_needing_escape
from vitviz.views.printing import is_mapped, map_item

PACKAGE = Path(__file__).parents[1]
ROOMS = ("frontend", "views")
MAP, CHART = "frontend/map.js", "frontend/plotly_chart.js"  # draw every view that has no script of its own


def drawing_module(slug: str) -> str:
    """Return the path of the module that draws a view: its own, else the shared map, else the chart."""
    view = next((view for view in VIEWS if view.slug == slug and is_mapped(view)), None)
    return f"views/{slug}/view.js" if view is None else MAP if map_item(view) else CHART


def module_texts(ending: str, folders: tuple[str, ...] = ROOMS) -> dict[str, str]:
    """Return the text of every file with this ending, by its path in the package, sorted."""
    result = sorted(path for folder in folders for path in (PACKAGE / folder).rglob(f"*{ending}"))
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in result}


def generated_modules() -> dict[str, str]:
    """Return the text of the generated modules, by path: colour maps, list of views, address of plotly.js."""
    colours = {name: base64.b64encode(table.tobytes()).decode() for name, table in TABLES.items()}
    return {
        "frontend/colormaps.js": f"export default {json.dumps(colours)};\n",
        "frontend/plotly_address.js": f"export default 'plotly/{version('plotly')}/plotly.min.js';\n",
        "frontend/views.js": f"export default {json.dumps([view.slug for view in VIEWS])};\n",
    }


def figure_frame(subject: ViewContext, slug: str) -> dict[str, Any]:
    """Return the facts about model and image that every figure's script receives, as JSON."""
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
        "missing": {
            "patches": list(without.patches),
            "as": without.patches_as,
            "heads": [[layer + 1, head + 1] for layer, head in without.heads],
        },
        "controls": [],
        "items": {},
        "summary": {},
        "changed": subject.original is not None,
        "written": labels_needing_escape(() if subject.trace is None else subject.trace.labels),
        "message": None,
    }


def view_declaration(view: View, subject: ViewContext) -> dict[str, Any]:
    """Return a view's settings, with the model's bounds, and items, for the page's script, as JSON."""
    declared_map = map_item(view)
    return {
        "controls": [
            control.to_json(subject.about) for control in view.scope.offered(view.controls, subject)
        ],
        "items": {item.name: list(item.depends) for item in view.items},
        "axes": {item.name: item.axes.split() for item in view.items},
        "says": {item.name: item.description for item in view.items},
        "title": view.title,
        "signed": declared_map is not None and declared_map.signed,
    }
