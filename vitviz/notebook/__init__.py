"""What results look like in a notebook: figures and tables as HTML, and the page's own canvas in a cell.

    html(result)                                        what `result._repr_html_()` gives
    show("explorer", inspector, trace, layer=3)         a view of the page, in an output cell, offline

Everything is one piece of HTML: no server, no request, no font. Text takes the notebook's own colour, so that
it reads in light and in dark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {"html": "cards", "show": "cell", "Cell": "cell"}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from vitviz.notebook.cards import html
    from vitviz.notebook.cell import Cell, show


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"vitviz.notebook has no {name!r}; it has {', '.join(__all__)}.")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
