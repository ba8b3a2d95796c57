"""Everything that adds up over pictures: what is measured of each, where they come from, and the averages.

    vitviz.survey("photos/", inspector, ["distance", "entropy"], out="report/").mean("distance")

Stands on the engine and on the analyses; knows no page. Importing it loads nothing that its use does not
need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "MEASURES": "measures",
    "Measure": "measure",
    "Moments": "moments",
    "Quantity": "measure",
    "Seen": "measure",
    "Survey": "result",
    "cka": "compared",
    "LAYERS": "layers",
    "in_batches": "layers",
    "parts_of_samples": "layers",
    "survey": "run",
    "surveying": "run",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from vitviz.surveys.compared import cka
    from vitviz.surveys.layers import LAYERS, in_batches, parts_of_samples
    from vitviz.surveys.measure import Measure, Quantity, Seen
    from vitviz.surveys.measures import MEASURES
    from vitviz.surveys.moments import Moments
    from vitviz.surveys.result import Survey
    from vitviz.surveys.run import survey, surveying


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"vitviz.surveys has no {name!r}; it has {', '.join(__all__)}.")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
