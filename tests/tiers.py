"""A parametrisation of which a few values run in the quick tier and all others in the sweep tier."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest


def sweep(names: str, values: Iterable, quick: int | Collection, **options) -> pytest.MarkDecorator:
    """Return `pytest.mark.parametrize` with the marker `sweep` on every value that is not quick.

    Args:
        names: the test's arguments, as `parametrize` takes them.
        values: their values.
        quick: the values of the quick tier, or how many of the first; of several parametrisations of a test
            only what is quick in each of them is in the quick tier.
        options: what else `parametrize` takes.
    """
    given = []
    for number, value in enumerate(values):
        if number < quick if isinstance(quick, int) else value in quick:
            given.append(value)
        else:
            given.append(pytest.param(*(value if "," in names else [value]), marks=pytest.mark.sweep))
    if not isinstance(quick, int):
        assert all(value in given for value in quick), f"a quick value of {names} is none of the values"
    return pytest.mark.parametrize(names, given, **options)
