"""Parametrisation with a few values in the quick tier and all others in the sweep tier."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest


def sweep(names: str, values: Iterable, quick: int | Collection, **options) -> pytest.MarkDecorator:
    """Return `pytest.mark.parametrize` with the marker `sweep` on every value that is not quick.

    Args:
        names: Argument names of the test, as for `parametrize`.
        values: Values of the arguments.
        quick: Values of the quick tier, or the number of leading values. If a test has several
            parametrisations, a combination is in the quick tier only if all its values are quick.
        options: Further options of `parametrize`.
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
