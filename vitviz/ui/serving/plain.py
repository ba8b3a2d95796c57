"""Numbers as JSON: nested lists, rounded to what they mean; and what comes in, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from vitviz.errors import WrongSetting

DIGITS = (
    6  # significant digits of every number; traces are float32, which has seven, even of a model in bfloat16
)


def plain(values: Any) -> Any:
    """Nested lists of numbers with six significant digits; null for what is not finite.

    >>> plain([[1 / 3, 0.0], [float("nan"), -2e-9]])
    [[0.333333, 0.0], [None, -2e-09]]
    """
    array = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(array)
    usual = finite & (
        np.abs(array) > 1e-290
    )  # beyond, a power of ten overflows, and there is nothing to tell from 0
    places = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(array), where=usual, out=np.zeros_like(array))))
    rounded = np.where(usual, np.round(np.where(usual, array, 0.0) * places) / places, 0.0)
    return rounded.tolist() if finite.all() else np.where(finite, rounded, None).tolist()


def cells(grid) -> dict[str, Any]:
    """A patch grid: rows, cols, patch (height and width in pixels), and the prefix tokens' names in sequence
    order.
    """
    return {
        "rows": grid.rows,
        "cols": grid.cols,
        "patch": list(grid.patch),
        "prefix": list(grid.prefix_names),
    }


def whole(value: Any, name: str, least: int, most: int) -> int:
    """A whole number between two bounds; WrongSetting says what was given.

    >>> whole(3.0, "layer", 1, 12)
    3
    """
    number = isinstance(value, int) and not isinstance(value, bool)
    number = number or isinstance(value, float) and value.is_integer()  # neither infinite nor NaN
    if not number or not least <= value <= most:
        raise WrongSetting(f"{name}={value!r} is no whole number from {least} to {most}.")
    return int(value)


def truth(value: object, name: str) -> bool:
    """True or false as a client may send it, the words too: any text counts as true in Python. WrongSetting
    for anything else.
    """
    words = {"true": True, "false": False}
    found = value if isinstance(value, bool) else words.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise WrongSetting(f"{name}={value!r} is neither true nor false.")
    return found
