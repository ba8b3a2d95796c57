"""What a visitor is told when something failed: never where a file lies on the server."""

from __future__ import annotations

import logging
import re

from vitviz.errors import VitvizError
from vitviz.sentence import Sentence, said, travelling
from vitviz.ui.words import told

log = logging.getLogger("vitviz")

UNEXPECTED = told(
    "This failed by a mistake in vitviz; the log of the server says where. What was there before stays."
)

# An absolute path of two parts or more, but neither an address (https://a/b) nor a part of a name (a/b/c).
_PATH = re.compile(r"""(?<![\w.:/\\~-])(?:~?/|[A-Za-z]:[\\/])(?:[^\s/\\'",;:()]+[\\/])+(?=[^\s])""")


def without_paths(sentence: str) -> str:
    """The sentence with only the last part of every absolute path.

    >>> without_paths("'/srv/weights/a.pth' is damaged; see https://example.org/a/b and second/input.png.")
    "'…/a.pth' is damaged; see https://example.org/a/b and second/input.png."
    """
    return _PATH.sub("…/", sentence)


def told_of(error: BaseException, place: str = "the page") -> dict:
    """An error for the page, as a sentence with its values; a mistake of ours is logged, with where, and told
    as such.
    """
    if not isinstance(error, VitvizError):
        log.error("%s failed by a mistake of ours", place, exc_info=error)
        return travelling(UNEXPECTED)
    sentence = said(error)
    return travelling(sentence if isinstance(sentence, Sentence) else without_paths(sentence))
