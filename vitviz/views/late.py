"""Modules that load torch, which a page that is being built has no use for: imported when first used."""

from importlib import import_module
from types import ModuleType

ANALYSES = ("altered", "effects", "experiment", "query", "relevance", "smallest", "writers")
ASKING = ("circuits", "experiments", "maps", "models")
PLACES = {"torch": "torch", "dense": "vitviz.analyses.relevance.dense"}
PLACES |= {name: f"vitviz.analyses.{name}" for name in ANALYSES}
PLACES |= {f"trial_{name}": f"vitviz.views.trial.{name}" for name in ("made", "over")}
PLACES |= {name: f"vitviz.engine.asking.{name}" for name in ASKING}


def __getattr__(name: str) -> ModuleType:
    if name not in PLACES:
        raise AttributeError(f"There is no {name!r} here; there are {', '.join(PLACES)}.")
    return import_module(PLACES[name])
