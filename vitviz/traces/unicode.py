"""Checks that text can be encoded as UTF-8.

A lone surrogate (half a character) has no UTF-8 encoding. In a label, such a character would break the event
stream of every page that shows the label.
"""

import json
from typing import Any

from vitviz.errors import VitvizError, quoted


def require_unicode(text: str, what: str) -> str:
    """Return a text that encodes to UTF-8; raises VitvizError, which names `what` it is, for any other.

    >>> require_unicode("caf\u00e9", "the label")
    'café'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise VitvizError(
            f"Given {what} {quoted(text)}, which has half a character (a lone surrogate) and cannot be"
            " written"
            " as UTF-8. Write it again without."
        ) from None
    return text


def parse_json(data: str | bytes) -> Any:
    """Parse JSON; raises ValueError for invalid JSON or half a character, and RecursionError."""
    parsed = json.loads(data)
    json.dumps(parsed, ensure_ascii=False).encode()
    return parsed
