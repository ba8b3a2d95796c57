"""Texts that can be sent and saved: half a character (a lone surrogate) has no UTF-8, so one in a label would
break the event stream of every page that shows it.
"""

import json
from typing import Any

from vitviz.errors import VitvizError, quoted


def require_unicode(text: str, what: str) -> str:
    """Return a text that encodes to UTF-8. VitvizError, which says `what` it is, for any other.

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
    """Return what JSON says. ValueError where it is none or has half a character; RecursionError."""
    parsed = json.loads(data)
    json.dumps(parsed, ensure_ascii=False).encode()
    return parsed
