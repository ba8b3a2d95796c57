"""Languages of vitviz: English, Simplified Chinese and Korean.

An English text is the key of its translations. They are stored beside the code that uses the text: in a
view's folder, with the frontend, or with the page.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from vitviz.traces.localized_text import Verbatim, fill

NAMES = {"en": "English", "zh-CN": "中文", "ko": "한국어"}


def translate(text: str, tag: str, **parts: str) -> str:
    """Return the text in a language, or in English if there is no translation.

    `parts` fill the braces of the text and are translated too. A visitor's own text is not translated.

    >>> translate("Reset", "en"), translate("{value} of {count}", "en", value=1, count=2)
    ('Reset', '1 of 2')
    """
    if isinstance(text, Verbatim):
        return text
    pattern, values = getattr(text, "pattern", text), {**getattr(text, "values", {}), **parts}
    texts = {
        name: translate(value, tag) if isinstance(value, str) else value for name, value in values.items()
    }
    return fill(translations(tag).get(pattern, pattern), texts)


def labels_needing_escape(labels: Iterable[str]) -> list[str]:
    """Return the labels that a visitor wrote but that are also texts of the page with a translation."""
    return [
        key for key in labels if isinstance(key, Verbatim) and any(key in translations(tag) for tag in NAMES)
    ]


@cache
def translations(tag: str) -> Mapping[str, str]:
    """Return English text → translation from all files of the language; empty for English."""
    if tag == "en":
        return {}
    result = sorted(Path(__file__).parents[1].rglob(f"*{tag}.json"))
    return {english: text for path in result for english, text in json.loads(path.read_bytes()).items()}
