"""Cached figures and faithfulness evaluations."""

import pytest

import vitviz
from vitviz.views.trial import compute as trials


@pytest.fixture(scope="session")
def cached_figures(inspector, trace, photo):
    """Return a function that makes figures and caches them for all files."""
    return figure_cache(inspector, trace, photo)


def figure_cache(inspector, trace, photo):
    kept = {}

    def make(view: str, detail: bool = False, **settings):
        name = f"{view} {detail} {settings}"
        if name not in kept:
            kept[name] = vitviz.figure(view, inspector, trace, detail=detail, picture=photo, **settings)
        return kept[name]

    return make


EVALUATIONS = {}  # an evaluation takes half a minute, so each is computed once per image


@pytest.fixture(autouse=True)
def cached_evaluations(monkeypatch):
    """Applies to this folder only, because tests of other folders check when an evaluation is scheduled."""
    own = trials.evaluate_method

    def evaluate_cached(subject, target, patches_as, method, steps=None):
        seen = subject.trace.view.picture.tobytes()
        name = (subject.checkpoint, seen, target, patches_as, method, steps)
        if name not in EVALUATIONS:
            EVALUATIONS[name] = own(subject, target, patches_as, method, steps)
        return EVALUATIONS[name]

    monkeypatch.setattr(trials, "evaluate_method", evaluate_cached)
