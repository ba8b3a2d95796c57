"""Figures made once."""

import pytest

import vitviz


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
