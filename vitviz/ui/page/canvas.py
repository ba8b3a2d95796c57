"""What the page draws itself: HTML components whose whole state is their `value`.

The templates are static and never filled in, because Gradio evaluates what stands in a template; all text
reaches the page through `textContent` in modules that the component's own script loads.
"""

from __future__ import annotations

import gradio as gr

from vitviz.ui.serving import modules


class _Static(gr.HTML):
    def __init__(self, html: str, js: str, value: dict | None = None, **options):
        templates = {"html_template": html, "css_template": "", "js_on_load": js, "apply_default_css": False}
        super().__init__(value=value or {}, **templates, **options)

    def api_info(self) -> dict:
        return {"type": "object"}

    def get_block_name(self) -> str:
        return "html"  # the page has no component of its own for this class


class Canvas(_Static):
    """The figure of one view, drawn by its module or by the map that all views share."""

    def __init__(self, view: str, **options):
        path = "canvas/stage.js" if view == "stage" else modules.script_of(view)
        mounted = (
            f"([{{ mount }}, {{ default: spec }}]) => mount(element, props, watch, trigger, spec('{view}'))"
        )
        script = modules.loading("canvas/mount.js", path, then=mounted)
        super().__init__(f'<div class="vv" data-view="{view}"></div>', script, **options)


class Part(_Static):
    """A part of the page beside the views: its module is the file of that name, such as `notice` (a
    sentence).

    `events` are those that its script triggers; Gradio knows an event by its name in quotes.
    """

    def __init__(self, name: str, events: tuple[str, ...] = (), **options):
        triggers = "; ".join(f"trigger('{event}', data)" for event in events)
        known = f"// (data) => {{ {triggers} }}\n" if events else ""
        mounted = "([{ default: part }]) => part(element, props, watch, trigger)"
        script = known + modules.loading(f"ui/page/{name}.js", then=mounted)
        super().__init__(f'<div class="vv-{name}" role="status" hidden></div>', script, **options)


__all__ = ["Canvas", "Part"]
