"""Languages of the page: English, Simplified Chinese and Korean.

The English text is the key of its translations in languages/*.json. The browser translates most texts:
Gradio's components through `gr.I18n` (`translatable`), the scripts' texts through `window.vitviz.texts`.
Python translates only what it writes for one visitor, such as a figure, into the language of the request.

The browser chooses the language (first.js): `?lang=` in the address, else the first supported language of the
browser. Gradio reads only `navigator.language`, so first.js overrides that property and runs before Gradio's
scripts.
"""

import hashlib
import re
from pathlib import Path

import gradio as gr
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection

from vitviz.views.languages import NAMES, translate
from vitviz.views.languages import translations as translations

# key → arguments of `translatable`, until the page is launched
_said: dict[str, tuple[str, dict[str, str]]] = {}


def translatable(text: str, **parts: str) -> gr.i18n.I18nData:
    """Return a translatable text for a Gradio component; `parts` are the texts that fill its braces.

    The key is a short hash, because Gradio puts the key into JSON inside a string and stops reading at the
    first brace.
    """
    key = "t" + hashlib.blake2b(repr((text, parts)).encode(), digest_size=8).hexdigest()
    _said[key] = (text, parts)
    return gr.i18n.I18nData(key)


def gradio_translations() -> gr.I18n:
    """Return all texts of `translatable` for `launch()`, and two texts that Gradio itself lacks."""
    said = {**_said, "common.complete": (mark("Done"), {}), "common.upload": (mark("Upload"), {})}
    return gr.I18n(
        **{tag: {key: translate(text, tag, **parts) for key, (text, parts) in said.items()} for tag in NAMES}
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
    tags = map(supported_language, (*asked, *_preferred(request.headers.get("accept-language", ""))))
    return next((tag for tag in tags if tag), "en")


def supported_language(tag: str) -> str | None:
    """Map a browser's language tag to a supported one; every Chinese tag maps to zh-CN.

    >>> [supported_language(tag) for tag in ("zh-Hant-TW", "ko-KR", "en-GB", "fr")]
    ['zh-CN', 'ko', 'en', None]
    """
    return {"zh": "zh-CN", "ko": "ko", "en": "en"}.get(re.split("[-_]", tag.strip().lower())[0])


def language_script() -> str:
    """Return the script that chooses the language, which runs before Gradio's scripts."""
    return Path(__file__).with_name("first.js").read_text(encoding="utf-8")


def _preferred(header: str) -> list[str]:
    """Return the tags of an Accept-Language header, most preferred first.

    >>> _preferred("de;q=0.5, ko-KR,ko;q=0.9")
    ['ko-KR', 'ko', 'de']
    """

    def weight(part: str) -> float:
        match = re.search(r";\s*q=([01](\.\d+)?)", part)
        return float(match[1]) if match else 1.0

    parts = sorted(filter(str.strip, header.split(",")), key=weight, reverse=True)
    return [part.partition(";")[0].strip() for part in parts]
