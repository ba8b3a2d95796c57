"""The languages of the page: English, Simplified Chinese and Korean.

An English text is the key of its translations, languages/*.json. Gradio's components and what our scripts draw are
translated by the browser: the first through `gr.I18n` (say), the second through `window.vitviz.texts` (head). Only what
Python writes for one visitor, such as the chart, is translated here, in the language that the request asks for.

The browser chooses (language.first.js): `?lang=` in the address, else the first of its languages that we speak.
Gradio reads `navigator.language` alone, so the script puts the chosen one there, and stands before Gradio's own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import gradio as gr

from vitviz.panels import PANELS

NAMES = {"en": "English", "zh-CN": "中文", "ko": "한국어"}
_HERE = Path(__file__).parent

# Sentences that reach the page with their values already in them: what unsupported() says, the chart, the facts. They
# are recognised by their English words. Errors of the engine stay English: they speak of files and their contents.
PATTERNS = (
    "{checkpoint} does not project pixels linearly and has no first convolution over pixels either, so there are no filters that could be shown as pictures.",
    "{checkpoint} has no learned table of absolute position embeddings: {how}. So there is no similarity of position embeddings to draw.",
    "it uses {kind} positions",
    "register {number}",
    "Our own training: it names {share} % of {count} validation pictures of Tiny-ImageNet rightly ({five} % within five guesses).",
    "After {step} steps of training.",
    "{rows} × {cols} of {tall} × {wide} px",
    "{tokens} ({patches} patches, prefix: {prefix})",
    "uniform attention: {distance} px",
    "layer {layer}",
    "{checkpoint}, one picture",
    "{checkpoint}, mean of {count} pictures",
    "{name} cuts patches of {rows} x {cols} pixels: an input of {height} x {width} does not divide into them. The nearest size that does is {tall} x {wide}.",
    "{size} is no input size: expected a number of pixels such as 224, or height x width such as 224 x 320.",
)

_said: dict[str, tuple[str, dict[str, str]]] = {}  # key → what `say` was asked for, until the page is launched


def say(text: str, **parts: str) -> gr.i18n.I18nData:
    """A text for one of Gradio's components, in the visitor's language; `parts` are texts that fill its braces.

    The key is a short hash, because Gradio puts it into JSON inside a string and stops reading at the first brace.
    """
    key = "t" + hashlib.blake2b(repr((text, parts)).encode(), digest_size=8).hexdigest()
    _said[key] = (text, parts)
    return gr.i18n.I18nData(key)


def i18n() -> gr.I18n:
    """Everything that was said, for `launch()`."""
    return gr.I18n(**{tag: {key: translated(text, tag, **parts) for key, (text, parts) in _said.items()} for tag in NAMES})


def translated(text: str, tag: str, **parts: str) -> str:
    """The text in a language, English where it has none; `parts` fill its braces and are translated too.

    >>> translated("Reset", "en"), translated("{what} {how}", "en", what="Look.", how="Point.")
    ('Reset', 'Look. Point.')
    """
    found = texts(tag).get(text) or _recognised(text, tag) or text
    return filled(found, {name: translated(part, tag) for name, part in parts.items()})


def told(text: str) -> str:
    """Marks a text that travels in English and is translated by the page's scripts."""
    return text


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with values for its {names}; other braces, such as those of LaTeX, stay as they are.

    >>> filled("{count} of $x_{i}$", {"count": "3"})
    '3 of $x_{i}$'
    """
    return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], found[0])), text)


def wanted(request: gr.Request | None) -> str:
    """The language of a visitor: the address's, else the first of the browser's that we speak, else English."""
    asked = [request.query_params.get("lang", ""), *_preferred(request.headers.get("accept-language", ""))] if request else []
    return next((tag for tag in map(ours, asked) if tag), "en")


def ours(tag: str) -> str | None:
    """Our tag for a browser's: any Chinese gets the one that there is.

    >>> ours("zh-Hant-TW"), ours("ko-KR"), ours("en-GB"), ours("fr")
    ('zh-CN', 'ko', 'en', None)
    """
    return {"zh": "zh-CN", "ko": "ko", "en": "en"}.get(re.split("[-_]", tag.strip().lower())[0])


@cache
def texts(tag: str) -> Mapping[str, str]:
    """English text → translation; empty for English."""
    return {} if tag == "en" else json.loads((_HERE / "languages" / f"{tag}.json").read_text(encoding="utf-8"))


@cache
def first() -> str:
    """The script that chooses the language; before any of Gradio's."""
    return (_HERE / "language.first.js").read_text(encoding="utf-8")


@cache
def head() -> str:
    """The script for the page's <head> that brings the texts of the chosen language; after `canvas.head()`."""
    folded = {part for panel in PANELS for part in vars(panel.explanation).values()}  # these travel with gr.I18n
    others = [tag for tag in NAMES if tag != "en"]
    rows = [[english, *(texts(tag).get(english, english) for tag in others)] for english in texts(others[0]) if english not in folded]
    known = json.dumps({"names": NAMES, "rows": rows, "patterns": PATTERNS}, ensure_ascii=False).replace("<", "\\u003c")
    script = (_HERE / "language.head.js").read_text(encoding="utf-8").replace("KNOWN", known)
    return f"<script>{first()}{script}</script>"  # once more, for an app that is mounted in another


def _recognised(text: str, tag: str) -> str | None:
    for pattern, english in _patterns():
        found = pattern.fullmatch(text)
        if found and english in texts(tag):
            return filled(texts(tag)[english], {name: translated(value, tag) for name, value in found.groupdict().items()})
    return None


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(english)), re.DOTALL), english) for english in PATTERNS]


def _preferred(header: str) -> list[str]:
    """The tags of an Accept-Language header, best first.

    >>> _preferred("de;q=0.5, ko-KR,ko;q=0.9")
    ['ko-KR', 'ko', 'de']
    """
    weighed = [(re.search(r";\s*q=([\d.]+)", part), part.partition(";")[0].strip()) for part in header.split(",") if part.strip()]
    return [tag for _, tag in sorted(((-float(found[1]) if found else -1.0, tag) for found, tag in weighed), key=lambda pair: pair[0])]
