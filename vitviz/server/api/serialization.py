"""Serialise responses, check inputs and word errors.

Numbers are sent as JSON, rounded to their significant digits. Error messages never contain a path on the
server.
"""

import logging
import re
from typing import Any

import numpy as np

from vitviz.errors import VitvizError, WrongSetting, quoted, whole_number
from vitviz.server.i18n import mark
from vitviz.traces.localized_text import LocalizedText, message_of, text_to_json

log = logging.getLogger("vitviz")

UNEXPECTED = mark("vitviz hit an error; the server log has the details. Your previous result is unchanged.")

# Matches an absolute path of two parts or more, but no address (https://a/b) and no part of a name (a/b/c).
_PATH = re.compile(r"""(?<![\w.:/\\~-])(?:~?/|[A-Za-z]:[\\/])(?:[^\s/\\'",;:()]+[\\/])+(?=[^\s])""")

# significant digits of every number; traces are float32, which has seven, even for a bfloat16 model
DIGITS = 6


def to_lists(values: Any) -> Any:
    """Return nested lists of numbers with six significant digits; null for non-finite values.

    >>> to_lists([[1 / 3, 0.0], [float("nan"), -2e-9]])
    [[0.333333, 0.0], [None, -2e-09]]
    """
    array = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(array)
    usual = finite & (np.abs(array) > 1e-290)  # beyond this, a power of ten overflows; sent as 0
    places = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(array), where=usual, out=np.zeros_like(array))))
    rounded = np.where(usual, np.round(np.where(usual, array, 0.0) * places) / places, 0.0)
    return rounded.tolist() if finite.all() else np.where(finite, rounded, None).tolist()


def grid_json(grid) -> dict[str, Any]:
    """Return a patch grid: rows, cols, patch (height and width in px), names of prefix tokens in order."""
    said = {"patch": list(grid.patch), "prefix": list(grid.prefix_names)}
    return {"rows": grid.rows, "cols": grid.cols, **said}


def parse_whole(value: Any, name: str, least: int, most: int) -> int:
    """Return a number from `least` to `most` as int. Raises WrongSetting, with `name`, for any other value.

    >>> parse_whole(3.0, "layer", 1, 12)
    3
    """
    given = int(value) if isinstance(value, float) and value.is_integer() else value  # not inf or NaN
    if (number := whole_number(given, least, most + 1)) is None:
        raise WrongSetting(f"{name}={quoted(value)} is no whole number from {least} to {most}.")
    return number


def parse_boolean(value: object, name: str) -> bool:
    """Parse a boolean, also from words: in Python any non-empty text is true. Raises WrongSetting."""
    result = {"true": True, "false": False}.get(str(value).lower())
    if result is None:
        raise WrongSetting(f"{name}={quoted(value)} is neither true nor false.")
    return result


def without_paths(sentence: str) -> str:
    """Return the sentence with every absolute path reduced to its last part.

    >>> without_paths("'/srv/weights/a.pth' is damaged; see https://example.org/a/b and second/input.png.")
    "'…/a.pth' is damaged; see https://example.org/a/b and second/input.png."
    """
    return _PATH.sub("…/", sentence)


def error_text(error: BaseException) -> str:
    """Return an error's text for programs; internal errors are not described further."""
    return without_paths(str(error)) if isinstance(error, VitvizError) else UNEXPECTED


def error_json(error: BaseException, place: str = "the page") -> dict:
    """Return an error's message for the page as JSON; log an internal error, with its `place`."""
    if not isinstance(error, VitvizError):
        log.error("%s failed by a mistake of ours", place, exc_info=error)
        return text_to_json(UNEXPECTED)
    sentence = message_of(error)
    return text_to_json(sentence if isinstance(sentence, LocalizedText) else without_paths(sentence))
