"""Modules that load torch, imported on first use: building the page does not need them."""

from importlib import import_module
from types import ModuleType

ANALYSES = ("effects", "image_changes", "perturbation", "query", "redundancy")
ANALYSES += ("saliency", "sufficient_edges", "upstream")
STUDIES = ("attribution", "circuits", "perturbation", "saliency")
PLACES = {"torch": "torch", "dense": "vitviz.analyses.saliency.dense"}
PLACES |= {name: f"vitviz.analyses.{name}" for name in ANALYSES}
PLACES |= {f"trial_{name}": f"vitviz.views.trial.{name}" for name in ("compute", "image_set")}
PLACES |= {name + "_study" * (name in ANALYSES): f"vitviz.engine.studies.{name}" for name in STUDIES}


def __getattr__(name: str) -> ModuleType:
    if name not in PLACES:
        raise AttributeError(f"There is no {name!r} here; there are {', '.join(PLACES)}.")
    return import_module(PLACES[name])
