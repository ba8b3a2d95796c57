"""Helpers that several test files share."""

from __future__ import annotations

import json

from tests.engine.random_inspectors import inspect, noise
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.engine.inspector import Inspector
from vitviz.views import ViewContext
from vitviz.views.routes import parse_settings
from vitviz.views.tour import TourView


def of_model(model, name="small") -> Inspector:
    return Inspector(
        Loaded(Checkpoint(name, name, "local", ""), model, Preprocessing((32, 32), (0.5,) * 3, (0.5,) * 3)),
        "cpu",
    )


TOUR = TourView()


NAMES = [
    "picture",
    "patches",
    "flatten",
    "embedding",
    "token",
    "positions",
    "attention",
    "layers",
    "readout",
    "probabilities",
    "sum",
    "without",
    "path",
]


def subject(model) -> ViewContext:
    inspector = inspect(model)
    return ViewContext(inspector, inspector.trace(noise()))


def item(of: ViewContext, name: str, **given):
    texts = {key: str(value) for key, value in given.items()}
    return TOUR.item(of, name, parse_settings(TOUR, texts, of.about))


def unpacked(of: ViewContext, name: str, **given):
    return json.loads(item(of, name, **given).tobytes())


def spoken(of: ViewContext) -> dict[str, str]:
    """What each step says, with its values filled in."""
    steps = TOUR.summary(of)["steps"]
    assert [step["name"] for step in steps] == NAMES
    said = {}
    for step in steps:
        parts = [text.format(**step["values"]) for text in (*step["said"], *step["shapes"], step["attempt"])]
        assert all(parts) and "None" not in " ".join(parts) and 1 <= len(step["said"]) <= 4
        said[step["name"]] = " ".join([step["title"], *parts, *step["formulas"]])
    return said
