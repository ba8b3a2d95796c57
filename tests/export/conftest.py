"""Figures made once."""

import pytest

import vitviz
from vitviz.views.trial import compute as trials


@pytest.fixture(scope="session")
def made(inspector, trace, photo):
    """Every figure, made once for all files."""
    return kept_figures(inspector, trace, photo)


def kept_figures(inspector, trace, photo):
    kept = {}

    def make(view: str, detail: bool = False, **settings):
        name = f"{view} {detail} {settings}"
        if name not in kept:
            kept[name] = vitviz.figure(view, inspector, trace, detail=detail, picture=photo, **settings)
        return kept[name]

    return make


TRIED = {}  # a trial takes half a minute, and every figure makes its own: of one picture it is made once


@pytest.fixture(autouse=True)
def tried_once(monkeypatch):
    """Here alone: tests of other folders in the same process ask whether a trial waits for its turn."""
    own = trials.evaluate_method

    def tried(subject, target, patches_as, method, steps=None):
        seen = subject.trace.view.picture.tobytes()
        name = (subject.checkpoint, seen, target, patches_as, method, steps)
        if name not in TRIED:
            TRIED[name] = own(subject, target, patches_as, method, steps)
        return TRIED[name]

    monkeypatch.setattr(trials, "evaluate_method", tried)
