"""Checks that text can be encoded as UTF-8.

A lone surrogate (half a character) has no UTF-8 encoding. In a label, such a character would break the event
stream of every page that shows the label.
"""

import json
from typing import Any

from vitviz.errors import VitvizError, quoted


def require_unicode(text: str, what: str) -> str:
    """Return the text if it encodes to UTF-8; otherwise raise VitvizError, which says `what` the text is.

    >>> require_unicode("caf\u00e9", "the label")
    'café'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise VitvizError(
            f"{what} {quoted(text)} contains half a character (a lone surrogate) and cannot be written as"
            " UTF-8. Write it again without."
        ) from None
    return text


def escape_unencodable(text: str) -> str:
    """Return the text with every character that UTF-8 cannot encode written as an escape sequence.

    >>> escape_unencodable("caf\\udce9.jpg")
    'caf\\\\udce9.jpg'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def parse_json(data: str | bytes) -> Any:
    """Parse JSON; raise ValueError for invalid JSON or half a character, RecursionError for deep nesting."""
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
    text.encode()
    parsed = json.loads(text)
    if "\\ud" in text.lower():  # the escape of half a character, or of one of a pair
        json.dumps(parsed, ensure_ascii=False).encode()
    return parsed
