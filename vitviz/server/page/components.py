"""The page's components: HTML that scripts draw, whose whole state is its `value`, and Gradio's inputs of
files with the edges taken off.

The templates are static and never filled in, because Gradio evaluates what stands in a template; all text
reaches the page through `textContent` in modules that the component's own script loads.
"""

from copy import copy
from typing import Any

import gradio as gr

from vitviz.server.api import modules


class Page(gr.Blocks):
    """Hands on what our components are given, and what stays as it was, without a detour.

    Gradio takes every value through a thread and builds a component anew for each that stays: half the time
    of the one thread that speaks to all visitors.
    """

    async def postprocess_data(self, block_fn, predictions, state) -> list:
        outputs = block_fn.outputs
        if len(outputs) == 1 or not isinstance(predictions, list) or len(predictions) != len(outputs):
            return await super().postprocess_data(block_fn, predictions, state)
        told = [
            given if isinstance(given, dict) and (isinstance(block, _Static) or given == gr.skip()) else None
            for block, given in zip(outputs, predictions, strict=True)
        ]
        others = [number for number, one in enumerate(told) if one is None or outputs[number].stateful]
        if others:
            fewer = copy(block_fn)
            fewer.outputs, given = [outputs[i] for i in others], [predictions[i] for i in others]
            made = await super().postprocess_data(fewer, given if len(given) > 1 else given[0], state)
            for number, one in zip(others, made, strict=True):
                told[number] = one
        return told


class _Static(gr.HTML):
    def __init__(self, html: str, js: str, value: dict | None = None, **options):
        templates = {"html_template": html, "css_template": "", "js_on_load": js, "apply_default_css": False}
        super().__init__(value=value or {}, **templates, **options)

    def api_info(self) -> dict:
        return {"type": "object"}

    def get_block_name(self) -> str:
        return "html"  # the page has no component of its own for this class


class Canvas(_Static):
    """The figure of one view, drawn by its module or by the map that all views share.

    One `beside` it is in the page while its value has a key: Gradio's own `visible` takes an update, for
    which it builds the component anew, for each visitor in the one thread that speaks to all of them.
    """

    def __init__(self, view: str, beside: bool = False, **options):
        path = "frontend/stage.js" if view == "stage" else modules.script_of(view)
        mount = "mountBeside" if beside else "mount"
        mounted = f"([m, {{ default: spec }}]) => m.{mount}(element, props, watch, trigger, spec('{view}'))"
        script = modules.loading("frontend/mount.js", path, then=mounted)
        super().__init__(f'<div class="vv" data-view="{view}"></div>', script, **options)


class PageComponent(_Static):
    """A part of the page beside the views, drawn by the module of its name, such as `notice`.

    `events` are those that its script triggers; Gradio knows an event by its name in quotes.
    """

    def __init__(self, name: str, events: tuple[str, ...] = (), **options):
        triggers = "; ".join(f"trigger('{event}', data)" for event in events)
        known = f"// (data) => {{ {triggers} }}\n" if events else ""
        mounted = "([{ default: part }]) => part(element, props, watch, trigger)"
        script = known + modules.loading(f"server/page/{name}.js", then=mounted)
        super().__init__(f'<div class="vv-{name}" role="status" hidden></div>', script, **options)


def event_data(event: gr.EventData) -> dict[str, Any]:
    """Return the data of an event, unvalidated."""
    return event._data if isinstance(event._data, dict) else {}


class ImageUpload(gr.Image):
    """Image input that passes on the path of the unmodified file.

    Gradio's own flattens transparency onto black, clips 16-bit pictures and fails on a bad file with an error
    that says nothing; our loader opens the file and speaks. The path is a stranger's: only
    `vitviz.server.security.uploads` may open it.
    """

    is_template = True  # of gr.Image, as which the page draws it

    def preprocess(self, payload):
        return None if payload is None else payload.path


class FileInput(gr.File):
    """Input of one or many files that passes on their paths. The paths are untrusted.

    Gradio's own makes an empty temporary file for each whenever they are used, and never removes it.
    """

    is_template = True  # of gr.File

    def __init__(self, file_count: str = "single", **options):
        super().__init__(file_count=file_count, **options)

    def preprocess(self, payload):
        many = self.file_count == "multiple" and payload is not None
        return [file.path for file in payload.root] if many else getattr(payload, "path", None)

    def get_config(self, cls=None) -> dict:
        return super().get_config(gr.File)  # the page reads File's own parameters, which ours has not
