"""The languages that vitviz speaks: English, Simplified Chinese and Korean.

An English text is the key of its translations, which lie where it is said: in a view's folder, with the
canvas, or with the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from vitviz.sentence import filled
from vitviz.views import VIEWS

NAMES = {"en": "English", "zh-CN": "中文", "ko": "한국어"}
_HERE = Path(__file__).parent


def translated(text: str, tag: str, **parts: str) -> str:
    """The text in a language, English where it has none; `parts` fill its braces and are translated too.

    >>> translated("Reset", "en"), translated("{what} {how}", "en", what="Look.", how="Point.")
    ('Reset', 'Look. Point.')
    """
    pattern, values = getattr(text, "pattern", text), {**getattr(text, "values", {}), **parts}
    said = {
        name: translated(value, tag) if isinstance(value, str) else value for name, value in values.items()
    }
    return filled(texts(tag).get(pattern, pattern), said)


@cache
def texts(tag: str) -> Mapping[str, str]:
    """English text → translation, out of every room's own file; empty for English."""
    if tag == "en":
        return {}
    files = [_HERE / "ui/words" / f"{tag}.json", _HERE / "canvas" / f"{tag}.json"]
    files += [_HERE / "views" / view.slug / f"{tag}.json" for view in VIEWS]
    return {
        english: said
        for file in files
        for english, said in json.loads(file.read_text(encoding="utf-8")).items()
    }


__all__ = ["NAMES", "texts", "translated"]
