"""What the page draws itself: HTML components whose whole state is their `value`.

The templates are static and never filled in, because Gradio evaluates what stands in a template; all text reaches the
page through `textContent` in the component's own script.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from vitviz.figures import canvas


class _Static(gr.HTML):
    def __init__(self, template: tuple[str, str, str], value: dict | None = None, **options):
        html, css, js = template
        super().__init__(value=value or {}, html_template=html, css_template=css, js_on_load=js, apply_default_css=False, **options)

    def api_info(self) -> dict:
        return {"type": "object"}

    def get_block_name(self) -> str:
        return "html"  # the page has no component of its own for this class


class Canvas(_Static):
    """The figure of one view; `view` names its script in vitviz/figures/canvas."""

    def __init__(self, view: str, **options):
        super().__init__(canvas.template(view), **options)


class Part(_Static):
    """A part of the page beside the views: its script is the file of that name, such as `notice` (a sentence)."""

    def __init__(self, name: str, **options):
        js = Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8")
        super().__init__((f'<div class="vv-{name}" role="status" hidden></div>', "", js), **options)
