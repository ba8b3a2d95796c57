"""What a view's script is told in JSON: of the model and the picture, and of the view itself."""

from typing import Any

from vitviz.record.runs import Without
from vitviz.views.base import View
from vitviz.views.languages import worded
from vitviz.views.subject import Subject


def framed(subject: Subject, slug: str) -> dict[str, Any]:
    """What every figure is told of the model and the picture."""
    grid, about, view = subject.grid, subject.about, subject.seen
    cells = {"rows": grid.rows, "cols": grid.cols}
    without = subject.trace.without if subject.trace is not None else Without()
    picture = view and {"upload": list(view.upload), "box": list(view.box), "input": list(grid.pixels)}
    return {
        "view": slug,
        "checkpoint": subject.checkpoint,
        "grid": cells | {"patch": list(grid.patch), "prefix": list(grid.prefix_names)},
        "layers": about.layers,
        "heads": about.heads,
        "picture": picture,
        "missing": {"patches": list(without.patches), "as": without.patches_as},
        "controls": [],
        "items": {},
        "summary": {},
        "changed": subject.original is not None,
        "written": worded(() if subject.trace is None else subject.trace.labels),
        "message": None,
    }


def declared(view: View, subject: Subject) -> dict[str, Any]:
    """Its settings with the model's own bounds, and its items."""
    return {
        "controls": [control.described(subject.about) for control in view.offered(subject)],
        "items": {item.name: list(item.depends) for item in view.items},
        "axes": {item.name: item.axes.split() for item in view.items},
        "says": {item.name: item.says for item in view.items},
        "title": view.title,
        "signed": bool(view.map and view.map.signed),
    }
