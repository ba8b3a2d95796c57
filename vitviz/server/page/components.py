"""Page components: HTML drawn by scripts, whose whole state is `value`, and Gradio's file inputs with fixes.

The templates are static and never filled in, because Gradio evaluates template contents. All text reaches the
page through `textContent`, in modules that the component's own script loads.
"""

from copy import copy
from typing import Any

import gradio as gr

from vitviz.server.api import modules


class Page(gr.Blocks):
    """Gradio page that passes on our components' values and skipped updates directly.

    Gradio sends every value through a thread and rebuilds a component for each skipped update. That took half
    the time of the one thread that serves all visitors.
    """

    async def postprocess_data(self, block_fn, predictions, state) -> list:
        """Return a listener's outputs; our components' values and skips bypass Gradio's processing."""
        outputs = block_fn.outputs
        if len(outputs) == 1 or not isinstance(predictions, list) or len(predictions) != len(outputs):
            return await super().postprocess_data(block_fn, predictions, state)
        details = [
            given if isinstance(given, dict) and (isinstance(block, _Static) or given == gr.skip()) else None
            for block, given in zip(outputs, predictions, strict=True)
        ]
        others = [number for number, one in enumerate(details) if one is None or outputs[number].stateful]
        if others:
            fewer = copy(block_fn)
            fewer.outputs, given = [outputs[i] for i in others], [predictions[i] for i in others]
            made = await super().postprocess_data(fewer, given if len(given) > 1 else given[0], state)
            for number, one in zip(others, made, strict=True):
                details[number] = one
        return details


class _Static(gr.HTML):
    def __init__(self, html: str, js: str, value: dict | None = None, **options):
        templates = {"html_template": html, "css_template": "", "js_on_load": js, "apply_default_css": False}
        super().__init__(value=value or {}, **templates, **options)

    def api_info(self) -> dict:
        """Return the JSON schema of the component's value for Gradio's API: any object."""
        return {"type": "object"}

    def get_block_name(self) -> str:
        """Return "html", the name of the component in Gradio's frontend that draws this class."""
        return "html"  # Gradio's frontend has no component for this class


class Canvas(_Static):
    """Figure of one view, drawn by the view's module or by the shared map.

    A `beside` figure is mounted while its value has a key. Gradio's own `visible` would need an update that
    rebuilds the component, for every visitor, in the one thread that serves all of them.
    """

    def __init__(self, view: str, beside: bool = False, **options):
        path = "frontend/stage.js" if view == "stage" else modules.script_of(view)
        mount = "mountBeside" if beside else "mount"
        mounted = f"([m, {{ default: spec }}]) => m.{mount}(element, props, watch, trigger, spec('{view}'))"
        script = modules.loader_script("frontend/mount.js", path, then=mounted)
        super().__init__(f'<div class="vv" data-view="{view}"></div>', script, **options)


class PageComponent(_Static):
    """Part of the page outside the views, drawn by the module of the same name, such as `notice`.

    `events` are the events that the module triggers; Gradio finds an event by its quoted name in the script.
    """

    def __init__(self, name: str, events: tuple[str, ...] = (), **options):
        triggers = "; ".join(f"trigger('{event}', data)" for event in events)
        known = f"// (data) => {{ {triggers} }}\n" if events else ""
        mounted = "([{ default: part }]) => part(element, props, watch, trigger)"
        script = known + modules.loader_script(f"server/page/{name}.js", then=mounted)
        super().__init__(f'<div class="vv-{name}" role="status" hidden></div>', script, **options)


def event_data(event: gr.EventData) -> dict[str, Any]:
    """Return the data of an event, unvalidated."""
    return event._data if isinstance(event._data, dict) else {}


class ImageUpload(gr.Image):
    """Image input that passes on the path of the unmodified file.

    Gradio's own preprocessing flattens transparency onto black, clips 16-bit images and fails on damaged
    files without a useful message; our loader handles all three. The path is untrusted: only
    `vitviz.server.security.uploads` may open it.
    """

    is_template = True  # drawn as gr.Image by Gradio's frontend

    def preprocess(self, payload):
        """Return the untrusted path of an upload's unmodified file; None without an upload."""
        return None if payload is None else payload.path


class FileInput(gr.File):
    """Input of one or many files that passes on their paths. The paths are untrusted.

    Gradio's own input creates an empty temporary file for each upload at every use, and never removes it.
    """

    is_template = True  # drawn as gr.File

    def __init__(self, file_count: str = "single", **options):
        super().__init__(file_count=file_count, **options)

    def preprocess(self, payload):
        """Return the untrusted path of an upload, or a list of them for "multiple"; None if none."""
        many = self.file_count == "multiple" and payload is not None
        return [file.path for file in payload.root] if many else getattr(payload, "path", None)

    def get_config(self, cls=None) -> dict:
        """Return the component's configuration for Gradio's frontend, by the parameters of gr.File."""
        return super().get_config(gr.File)  # the frontend reads File's parameters, which our class lacks
