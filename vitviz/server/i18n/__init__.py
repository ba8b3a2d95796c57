"""The languages of the page: English, Simplified Chinese and Korean.

An English text is the key of its translations, languages/*.json. Gradio's components and what our scripts
draw are translated by the browser: the first through `gr.I18n` (say), the second through
`window.vitviz.texts` (head). Only what Python writes for one visitor, such as the chart, is translated here,
in the language that the request asks for.

The browser chooses (first.js): `?lang=` in the address, else the first of its languages that we
speak. Gradio reads `navigator.language` alone, so the script puts the chosen one there, and stands before
Gradio's own.
"""

import hashlib
import re
from pathlib import Path

import gradio as gr
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection

from vitviz.views.languages import NAMES, texts, translated

# key → what `say` was asked for, until the page is launched
_said: dict[str, tuple[str, dict[str, str]]] = {}


def say(text: str, **parts: str) -> gr.i18n.I18nData:
    """A text for one of Gradio's components, in the visitor's language; `parts` are texts that fill its
    braces.

    The key is a short hash, because Gradio puts it into JSON inside a string and stops reading at the first
    brace.
    """
    key = "t" + hashlib.blake2b(repr((text, parts)).encode(), digest_size=8).hexdigest()
    _said[key] = (text, parts)
    return gr.i18n.I18nData(key)


def i18n() -> gr.I18n:
    """Return all texts of `say` for `launch()`, with two that Gradio itself lacks."""
    said = {**_said, "common.complete": (mark("Done"), {}), "common.upload": (mark("Upload"), {})}
    return gr.I18n(
        **{tag: {key: translated(text, tag, **parts) for key, (text, parts) in said.items()} for tag in NAMES}
    )


def mark(text: str) -> str:
    """Mark a text that is sent in English and translated by the page's scripts."""
    return text


def language_of(request: gr.Request | HTTPConnection | None) -> str:
    """Return a visitor's language: from the address, the referring page, the browser, or English."""
    if not request:
        return "en"
    page = QueryParams(request.headers.get("referer", "").partition("?")[2])
    asked = (request.query_params.get("lang", ""), page.get("lang", ""))
    tags = map(ours, (*asked, *_preferred(request.headers.get("accept-language", ""))))
    return next((tag for tag in tags if tag), "en")


def ours(tag: str) -> str | None:
    """Map a browser's language tag to one of ours; every Chinese tag maps to zh-CN.

    >>> ours("zh-Hant-TW"), ours("ko-KR"), ours("en-GB"), ours("fr")
    ('zh-CN', 'ko', 'en', None)
    """
    return {"zh": "zh-CN", "ko": "ko", "en": "en"}.get(re.split("[-_]", tag.strip().lower())[0])


def first() -> str:
    """Return the script that chooses the language, which runs before Gradio's scripts."""
    return Path(__file__).with_name("first.js").read_text(encoding="utf-8")


def _preferred(header: str) -> list[str]:
    """Return the tags of an Accept-Language header, preferred first.

    >>> _preferred("de;q=0.5, ko-KR,ko;q=0.9")
    ['ko-KR', 'ko', 'de']
    """

    def weight(part: str) -> float:
        found = re.search(r";\s*q=([01](\.\d+)?)", part)
        return float(found[1]) if found else 1.0

    parts = sorted(filter(str.strip, header.split(",")), key=weight, reverse=True)
    return [part.partition(";")[0].strip() for part in parts]


__all__ = ["NAMES", "first", "i18n", "ours", "say", "texts", "mark", "translated", "language_of"]
