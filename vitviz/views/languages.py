"""The languages that vitviz speaks: English, Simplified Chinese and Korean.

An English text is the key of its translations, which lie where it is said: in a view's folder, with the
canvas, or with the page.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from vitviz.traces.localized_text import Verbatim, fill

NAMES = {"en": "English", "zh-CN": "中文", "ko": "한국어"}


def translated(text: str, tag: str, **parts: str) -> str:
    """The text in a language, English where it has none; `parts` fill its braces and are translated too.

    What a visitor wrote stays as it is.

    >>> translated("Reset", "en"), translated("{value} of {count}", "en", value=1, count=2)
    ('Reset', '1 of 2')
    """
    if isinstance(text, Verbatim):
        return text
    pattern, values = getattr(text, "pattern", text), {**getattr(text, "values", {}), **parts}
    said = {
        name: translated(value, tag) if isinstance(value, str) else value for name, value in values.items()
    }
    return fill(texts(tag).get(pattern, pattern), said)


def worded(labels: Iterable[str]) -> list[str]:
    """Those of a visitor's own words that the page has too, and would translate."""
    return [one for one in labels if isinstance(one, Verbatim) and any(one in texts(tag) for tag in NAMES)]


@cache
def texts(tag: str) -> Mapping[str, str]:
    """English text → translation, out of every room's own file; empty for English."""
    if tag == "en":
        return {}
    found = sorted(Path(__file__).parents[1].rglob(f"*{tag}.json"))
    return {english: said for path in found for english, said in json.loads(path.read_bytes()).items()}
