"""A view of the page in an output cell: its script, its settings and all its numbers in one piece of HTML.

The frame stands by itself: no server, no kernel, no network (its own policy forbids any request). What may be
changed in it was computed beforehand, so it is a choice: settings of which every value is held are live, the
others are fixed and named. What it does not hold it says.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitviz.errors import VitvizError
from vitviz.prints.bundle import bundled
from vitviz.prints.figure import RETOUCHED, looked_at
from vitviz.prints.held import Held, pictures
from vitviz.record.sentence import Sentence, travelling
from vitviz.record.shown import Shown
from vitviz.record.trace import Trace
from vitviz.surveys.result import Survey
from vitviz.views import Subject, View, scripts
from vitviz.views.described import declared, framed
from vitviz.views.languages import NAMES, texts

if TYPE_CHECKING:
    from vitviz.engine import Inspector

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
.vv .vv-npz, .vv .vv-take, .vv .vv-print, .vv .vv-away { display: none; }
"""


@dataclass(frozen=True)
class Cell(Shown):
    """One view, ready to be shown. `page` is a whole HTML document that opens offline."""

    view: str
    page: str = field(repr=False)
    fixed: tuple[str, ...] = ()  # settings that cannot be changed in it

    def frame(self) -> str:
        """The document in a frame that becomes as high as it is."""
        told = f'title="vitviz: {self.view}" style="width:100%;height:640px;border:0;border-radius:8px"'
        return f'<iframe {told} srcdoc="{html.escape(self.page)}"></iframe>'

    def save(self, path: str | os.PathLike) -> None:
        """Writes the document to a file, which any browser opens."""
        Path(path).write_text(self.page, encoding="utf-8")


def show(
    view: str, inspector: Inspector, of: Trace | Survey | None = None, *, image: Any = None,
    live: Iterable[str] | None = None, language: str = "en", megabytes: float = 12, seconds: float = 60,
    before: Trace | None = None, **settings: Any,
) -> Cell:  # fmt: skip
    """One of the page's views, to be moved about in a notebook's output cell without a server.

    `view`: its name in the page's links, such as "explorer"; `of`: a trace, or a survey where the view can be
    averaged; none for views of the weights alone. `image`: the picture that was traced, to be shown whole;
    without it, what the model saw of it. `settings` are the page's and its links': layers and heads from 1.
    `live` names those that can be changed in the cell, by default as many as `megabytes` and `seconds` of
    computing allow; the others stay fixed. `language`: "en", "zh-CN" or "ko"; `before` as for `figure`.
    Raises VitvizError for a view, setting or language that does not exist, and with the reason where the view
    is not applicable.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> show("rollout", inspector, trace, live=["fusion"], discard=0.9)
    Cell(view='rollout', fixed=('query', 'discard', 'residual', 'layers'))
    """
    shown, subject = looked_at(view, inspector, of, before=before)
    if reason := shown.refused(subject):
        raise VitvizError(str(reason))
    given = {name: str(value) for name, value in settings.items()}
    return cell_of(shown, subject, given, image, live, language, megabytes, seconds)


def cell_of(
    shown: View, subject: Subject, given: Mapping[str, str], image: Any = None,
    live: Iterable[str] | None = None, language: str = "en", megabytes: float = 12, seconds: float = 60,
) -> Cell:  # fmt: skip
    """The same of a view and a subject that are at hand; settings as their texts in an address."""
    if language not in NAMES:
        raise VitvizError(f"Given language={language!r}; expected one of {', '.join(NAMES)}.")
    upload, subject = pictures(subject, image)
    held = Held.of(shown, subject, dict(given), live, megabytes * 2**20, seconds)
    told = {**framed(subject, shown.slug), **declared(shown, subject), "key": "cell", "scene": "cell"}
    told |= {"controls": held.controls(told["controls"]), "files": [], "summary": shown.summary(subject)}
    strokes = subject.seen.retouched.text() if subject.seen else ""
    lead = [shown.words.what, shown.words.how]
    lead += [travelling(Sentence(RETOUCHED, what=strokes))] if strokes else []
    data = {"value": told, "lead": lead, "fixed": held.fixed, "parts": {**upload, **held.parts()}}
    return Cell(shown.slug, _page(shown.slug, data, language), held.fixed)


def _page(slug: str, data: dict[str, Any], language: str) -> str:
    """The document. Nothing in it can end a script early: every < of the data is written as an escape."""
    sources = {**scripts.files(".js"), **scripts.made()}
    spoken = f"ui/words/{language}.js"
    sources[spoken] = f"export default {json.dumps(texts(language), ensure_ascii=False)};"
    paths = ("canvas/cell.js", scripts.script_of(slug))
    script = bundled(sources, paths, also=(spoken,))
    style = "\n".join([*scripts.files(".css").values(), STYLE])
    told = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
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
        f'<script type="application/json" id="data">{told}</script>'
        f"<script>(() => {{\n{script}\n{begun}\n}})();</script></body></html>\n"
    )
