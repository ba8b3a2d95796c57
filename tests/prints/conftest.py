"""Figures made once."""

import pytest

import vitviz
from vitviz.views.trial import made as trials


@pytest.fixture(scope="module")
def made(inspector, trace, photo):
    """Every figure of this module, made once."""
    kept = {}

    def make(view: str, detail: bool = False, **settings):
        name = f"{view} {detail} {settings}"
        if name not in kept:
            kept[name] = vitviz.figure(view, inspector, trace, detail=detail, picture=photo, **settings)
        return kept[name]

    return make


@pytest.fixture(scope="session", autouse=True)
def tried_once():
    """A trial takes half a minute, and every figure of it makes its own: of one picture it is made once."""
    own, kept = trials.tried, {}

    def tried(subject, target, patches_as, method):
        seen = subject.trace.view.picture.tobytes()
        name = (subject.checkpoint, seen, target, patches_as, method)
        if name not in kept:
            kept[name] = own(subject, target, patches_as, method)
        return kept[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "tried", tried)
        yield
