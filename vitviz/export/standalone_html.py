"""A view of the page as standalone HTML for an output cell: script, settings and all numbers in one document.

The document needs no server, no kernel and no network; its content security policy forbids all requests. All
numbers are computed beforehand. A setting is live if the document contains the numbers for each of its
values. The other settings are fixed and listed. Requests for missing numbers show a message.
"""

from __future__ import annotations

import base64
import html
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from vitviz.charts.encode import encode_image
from vitviz.engine import Inspector
from vitviz.errors import VitvizError, quoted
from vitviz.export.bundle import bundle_modules
from vitviz.export.figure import RETOUCHED, setting_as_text, settings_as_text, upright_upload, view_contexts
from vitviz.surveys.result import Survey
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.localized_text import LocalizedText, message_of, text_to_json
from vitviz.traces.trace import Trace
from vitviz.views import scripts
from vitviz.views.availability import refusal
from vitviz.views.base import CHART, Item, View
from vitviz.views.controls import DIFFERENCE, Choice, Control, IntSetting, ModelShape, QuerySetting, Slider
from vitviz.views.languages import NAMES, translations
from vitviz.views.printing import is_mapped, map_item
from vitviz.views.routes import item_array, parse_settings
from vitviz.views.scripts import figure_frame, view_declaration
from vitviz.views.subject import ViewContext

MOST = 1_000  # maximum number of values of a live setting
SettingTexts = Mapping[str, str]  # text of every setting, as in an address
Domains = dict[str, tuple[str, ...]]  # values of the live settings
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
STYLE = """
:root { --body-text-color: #1f2937; --background-fill-primary: #fff; --border-color-primary: #d7dce3;
  --color-accent: #0f766e; color-scheme: light; }
:root.dark { --body-text-color: #e5e7eb; --background-fill-primary: #14181e; --border-color-primary: #3a4350;
  --color-accent: #2dd4bf; color-scheme: dark; }
html { background: var(--background-fill-primary); color: var(--body-text-color); }
body { margin: 0; padding: 10px 12px; font: 14px/1.5 system-ui, "Noto Sans", sans-serif; }
h1 { font-size: 16px; margin: 0 0 4px; }
body > p { margin: 0 0 10px; max-width: 68ch; font-size: 13px; }
/* what only a server can do */
.vv :is(.vv-npz, .vv-take, .vv-print, .vv-filmed, .vv-paged, .vv-away) { display: none; }
"""


@dataclass(frozen=True)
class StandaloneView(NotebookDisplay):
    """View as a complete HTML document (`page`) that opens offline and displays itself in a notebook."""

    view: str
    page: str = field(repr=False)
    fixed: tuple[str, ...] = ()  # settings that cannot be changed in the document

    def frame(self) -> str:
        """Return an HTML iframe that contains the document; its height adapts to the content."""
        details = f'title="vitviz: {self.view}" style="width:100%;height:640px;border:0;border-radius:8px"'
        return f'<iframe {details} srcdoc="{html.escape(self.page)}"></iframe>'

    def save(self, path: str | os.PathLike) -> None:
        """Write the document to an HTML file."""
        Path(path).write_text(self.page, encoding="utf-8")


def show(
    view: str, inspector: Inspector, of: Trace | Survey | None = None, *, image: Any = None,
    live: Iterable[str] | None = None, language: str = "en", megabytes: float = 12, seconds: float = 60,
    before: Trace | None = None, **settings: Any,
) -> StandaloneView:  # fmt: skip
    """Return an interactive view of the page for a notebook's output cell, without a server.

    Args:
        view: Slug of the view in the page's links, such as "explorer".
        inspector: The model.
        of: Trace of an image, or a survey if the view can be averaged; None for views of the weights alone.
        image: The traced image, to be shown whole; None shows the crop that the model received.
        live: Settings that can be changed in the cell. None selects as many as `megabytes` and `seconds`
            allow. The other settings are fixed.
        language: "en", "zh-CN" or "ko".
        megabytes: Maximum size of the numbers if `live` is None.
        seconds: Maximum time to compute the numbers if `live` is None.
        before: Trace of the unedited image, as for `vitviz.figure`.
        settings: Settings of the page by their names in links. Layers and heads count from 1.

    Returns:
        The view as an HTML document that displays itself.

    Raises:
        VitvizError: For an unknown view, setting or language, and if the view does not apply to the model,
            with the reason.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> show("rollout", inspector, trace, live=["fusion"], discard=0.9)
    StandaloneView(view='rollout', fixed=('query', 'discard', 'residual', 'layers'))
    """
    shown, subject = view_contexts(view, inspector, of, before=before)
    if reason := refusal(shown, subject):
        raise VitvizError(reason)
    given = settings_as_text(shown, settings)
    return standalone_view(shown, subject, given, image, live, language, megabytes, seconds)


def standalone_view(
    shown: View, subject: ViewContext, given: Mapping[str, str], image: Any = None,
    live: Iterable[str] | None = None, language: str = "en", megabytes: float = 12, seconds: float = 60,
) -> StandaloneView:  # fmt: skip
    """Return the standalone view of a view and its context; settings are texts as in an address."""
    if language not in NAMES:
        raise VitvizError(f"language={quoted(language)} is not valid; expected one of {', '.join(NAMES)}.")
    upload, subject = image_addresses(subject, image)
    texts, domains, fixed = _choose_live(shown, subject, given, live, megabytes * 2**20, seconds)
    details = {
        **figure_frame(subject, shown.slug), **view_declaration(shown, subject), "key": "cell",
        "scene": "cell"
    }  # fmt: skip
    details |= {"files": [], "summary": shown.summary(subject)}
    for one in details["controls"]:  # the controls start at the given settings
        text = texts[one["name"]]
        one["default"] = float(text) if one["kind"] in ("slider", "whole") else text
    strokes = subject.seen.retouched.text() if subject.seen else ""
    lead = [shown.words.what, shown.words.how]
    lead += [text_to_json(LocalizedText(RETOUCHED, what=strokes))] if strokes else []
    parts = {**upload, **_encoded_arrays(shown, subject, texts, domains)}
    data = {"value": details, "lead": lead, "fixed": fixed, "parts": parts}
    return StandaloneView(shown.slug, _page(shown.slug, data, language), fixed)


def _page(slug: str, data: dict[str, Any], language: str) -> str:
    """Return the HTML document. Every < of the data is escaped, so that no data can close the script."""
    sources = {**scripts.module_texts(".js"), **scripts.generated_modules()}
    sources["frontend/plotly_address.js"] = "export default '';"  # the document makes no requests
    spoken = f"server/i18n/{language}.js"
    sources[spoken] = f"export default {json.dumps(translations(language), ensure_ascii=False)};"
    paths = ("frontend/standalone_html.js", scripts.drawing_module(slug))
    script = bundle_modules(sources, paths, also=(spoken,))
    style = "\n".join([*scripts.module_texts(".css").values(), STYLE])
    content = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    begun = (
        f"Object.defineProperty(navigator, 'language', {{ value: '{language}' }});\n"
        f"Promise.all(['{paths[0]}', '{paths[1]}'].map($load))\n"
        "  .then(([{ default: cell }, { default: spec }]) =>\n"
        f"  cell(JSON.parse(document.getElementById('data').textContent), spec('{slug}')));"
    )
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>vitviz: {slug}</title>'
        f"<style>{style}</style></head><body>"
        f'<script type="application/json" id="data">{content}</script>'
        f"<script>(() => {{\n{script}\n{begun}\n}})();</script></body></html>\n"
    )


def _choose_live(
    view: View, subject: ViewContext, given: SettingTexts, live: Iterable[str] | None, budget: float,
    seconds: float
) -> tuple[SettingTexts, Domains, tuple[str, ...]]:  # fmt: skip
    """Return the texts of all settings, the values of the live ones, and the names of the fixed ones.

    Settings are live as far as `budget` (bytes) and `seconds` allow. Fixed settings are those that an item
    depends on but that keep one value.

    Raises:
        VitvizError: For an unknown setting or an invalid value.
    """
    about = subject.about
    parse_settings(view, given, about)
    starts = ((control, given.get(control.name, control.start(about))) for control in view.controls)
    texts = {control.name: setting_as_text(control, value) for control, value in starts}
    depended = {name for item in drawn_items(view, subject, texts) for name in item.depends}
    named = {control.name: control for control in view.controls if control.name in depended}
    kept = [name for name in named if subject.original or name != DIFFERENCE.name]
    domains, live = {}, [live] if isinstance(live, str) else live
    for name in kept if live is None else live:
        values = view.export.values(subject, name) or _domain(named.get(name), name, about, live is not None)
        domains |= {name: values} if texts.get(name) in values else {}
    if live is None:
        domains = _limit_domains(view, subject, texts, domains, budget, seconds)
    return texts, domains, tuple(name for name in kept if name not in domains)


def _encoded_arrays(
    view: View, subject: ViewContext, texts: SettingTexts, domains: Domains
) -> dict[str, dict[str, Any]]:
    """Return the encoded array, or error message, of every address that the script can request."""
    parts = {}
    for item in drawn_items(view, subject, texts):
        for values in product(*(domains.get(name, (texts[name],)) for name in item.depends)):
            asked = dict(zip(item.depends, values, strict=True))
            query = "&".join(f"{name}={value}" for name, value in asked.items())
            array = _array_or_error(view, subject, item, {**texts, **asked})
            # the key must match frontend/standalone_html.js
            parts[f"cell/{view.slug}/{item.name}?{query}"] = _encode_array(array)
    return parts


def image_addresses(subject: ViewContext, image: Any) -> tuple[dict[str, dict[str, Any]], ViewContext]:
    """Return the images that the scripts request, and the context whose upload they show.

    The upload is the given image, otherwise the crop that the model received.

    Raises:
        VitvizError: If the size of the image differs from that of the traced image.
    """
    if subject.trace is None:
        return {}, subject
    view = subject.trace.view
    seen = whole = _file(encode_image(view.picture, ".png"), "image/png")
    if image is not None:
        whole = _file(encode_image(upright_upload(image, subject), ".jpg"), "image/jpeg")
    else:
        height, width = view.picture.shape[:2]
        cropped = replace(view, box=(0.0, 0.0, float(width), float(height)), upload=(width, height))
        trace = replace(subject.trace, view=cropped)
        kept = {"once": subject.once, "once_of_weights": subject.once_of_weights}
        subject = ViewContext(subject.inspector, trace, original=subject.original, **kept)
    return {"cell/picture/input?": seen, "cell/picture/upload?": whole}, subject


def drawn_items(view: View, subject: ViewContext, texts: SettingTexts) -> list[Item]:
    """Return the items that the view's script requests with the given settings.

    The shared scripts request the map and the chart.
    """
    drawn = {CHART, *([map_item(view).name] if map_item(view) else [])}
    skipped = view.export.skipped(subject)
    offered = [one for one in view.items if one.name not in skipped]
    every = [one for one in offered if one.name in drawn or not is_mapped(view)]
    return [one for one in every if all(texts[name] == value for name, value in one.only_when)]


def _limit_domains(
    view: View, subject: ViewContext, texts: SettingTexts, domains: Domains, budget: float, seconds: float
) -> Domains:
    """Return `domains` without the live settings of most values, until all fits `budget` and `seconds`."""
    cost = {}
    for item in drawn_items(view, subject, texts):
        begun = time.monotonic()
        array = _array_or_error(view, subject, item, texts)
        size = array.nbytes if isinstance(array, np.ndarray) else 0
        cost[item] = np.array([size, time.monotonic() - begun])
    while domains:
        whole = sum(
            cost[item] * np.prod([len(domains.get(name, "1")) for name in item.depends], dtype=float)
            for item in cost
        )
        if whole[0] <= budget and whole[1] <= seconds:
            break
        domains.pop(max(domains, key=lambda name: len(domains[name])))
    return domains


def _domain(control: Control | None, name: str, about: ModelShape, asked: bool) -> tuple[str, ...]:
    """Return all values of a setting as texts; () if there are more than `MOST`.

    Raises:
        VitvizError: If the setting was `asked` for and has no such list of values.
    """
    values: Iterable[Any] = ()
    if isinstance(control, Choice):
        values = [value for value, _ in control.options]
    elif isinstance(control, Slider):
        count = round((about.number(control.maximum) - control.minimum) / control.step) + 1
        whole = float(control.step).is_integer()
        values = [control.minimum + place * control.step for place in range(count)] if whole or asked else ()
    elif isinstance(control, IntSetting):
        values = range(control.minimum, int(about.number(control.maximum)) + 1)
    elif isinstance(control, QuerySetting):
        values = ["auto", "mean", *about.grid.prefix_names, *range(about.grid.patches)]
    result = tuple(setting_as_text(control, value) for value in values) if len(values) <= MOST else ()
    if asked and not result:
        raise VitvizError(
            f"live={quoted(name)} is not valid; expected settings that the numbers depend on, with at most"
            f" {MOST} values."
        )
    return result


def _array_or_error(
    view: View, subject: ViewContext, item: Item, texts: SettingTexts
) -> np.ndarray | VitvizError:
    """Return the array of a view's item for setting texts, or the VitvizError raised by computing it."""
    try:
        return item_array(view, subject, item.name, parse_settings(view, texts, subject.about))
    except VitvizError as error:
        return error


def _encode_array(array: np.ndarray | VitvizError) -> dict[str, Any]:
    """Return an array as JSON (base64 data, shape, dtype), or an error as JSON with its message, `said`."""
    if isinstance(array, VitvizError):
        return {"said": text_to_json(message_of(array))}
    details = {"shape": ",".join(map(str, array.shape)), "dtype": str(array.dtype)}
    return {**_file(array.tobytes(), "application/octet-stream"), **details}


def _file(data: bytes, kind: str) -> dict[str, str]:
    """Return data as JSON: base64, with the MIME type `kind`."""
    return {"data": base64.b64encode(data).decode(), "type": kind}
