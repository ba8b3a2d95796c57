"""The page: the picture, the checkpoint and the answer on the left, the views as tabs on the right."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import gradio as gr

from vitviz import samples
from vitviz.errors import VitvizError
from vitviz.figures import canvas
from vitviz.panels import PANELS
from vitviz.ui import endpoints, facts, links, tabs
from vitviz.ui.canvas import Canvas, Part
from vitviz.ui.language import say
from vitviz.ui.options import Options
from vitviz.ui.routes import routes
from vitviz.ui.studio import Studio
from vitviz.ui.theme import STYLE, theme
from vitviz.ui.widgets import Upload

FIRST_SAMPLE = "chelsea"


@dataclass
class Left:
    """The components beside the views."""

    stage: Canvas
    upload: Upload
    gallery: gr.Gallery
    picker: gr.Dropdown
    notice: Part
    facts: Part


def build(studio: Studio) -> gr.Blocks:
    """The page, ready to be launched."""
    threading.Thread(target=_warm_up, args=[studio], daemon=True).start()
    with gr.Blocks(title="vitviz", analytics_enabled=False, delete_cache=(3600, 3600)) as demo:
        session = gr.State({})
        with gr.Row(elem_id="vitviz-header"):
            gr.Markdown(say("# vitviz\nSee what happens inside a Vision Transformer."), elem_id="vitviz-title")
            link = Part("links", elem_id="vitviz-links")
        with gr.Row(elem_id="vitviz-page"):
            with gr.Column(scale=2, min_width=320, elem_id="vitviz-left"):
                left = _left(studio)
            with gr.Column(scale=5, min_width=360, elem_id="vitviz-right"):
                with gr.Tabs(elem_id="vitviz-tabs") as right:
                    views = [tabs.tab(panel, studio, session) for panel in PANELS]
        _connect(demo, studio, session, left, views, link, right)
        endpoints.publish(studio)
    return demo


def launch(demo: gr.Blocks, studio: Studio, options: Options) -> None:
    """Serves the page until it is stopped."""
    demo.queue(max_size=256, default_concurrency_limit=8)
    demo.launch(
        server_name=options.host,
        server_port=options.port,
        share=options.share,
        theme=theme(),
        css=STYLE,
        head=canvas.head() + links.head(),
        max_file_size="20mb",
        run_history=False,
        enable_monitoring=False,
        app_kwargs={"routes": routes(studio)},
    )


def _left(studio: Studio) -> Left:
    stage = Canvas("stage", elem_id="vitviz-stage")
    upload = Upload(label=say("Your photograph"), elem_id="vitviz-upload", height=150)
    gallery = gr.Gallery(
        [(samples.sample_image(sample.name), sample.title) for sample in samples.samples()],
        label=say("Samples"),
        show_label=False,
        columns=4,
        object_fit="cover",
        allow_preview=False,
        buttons=[],
        elem_id="vitviz-samples",
    )
    picker = gr.Dropdown(
        [studio.settings.checkpoint], value=studio.settings.checkpoint, label=say("Checkpoint"), allow_custom_value=True, elem_id="vitviz-picker"
    )
    notice = Part("notice", elem_id="vitviz-notice")
    return Left(stage, upload, gallery, picker, notice, Part("facts", elem_id="vitviz-facts"))


def _connect(demo: gr.Blocks, studio: Studio, session: gr.State, left: Left, views: list[tabs.Tab], link: Part, right: gr.Tabs) -> None:
    drawn = [component for view in views for component in view.drawn]
    outputs = [session, left.picker, left.notice, link, left.stage, left.facts, *drawn]

    def show(state: dict, picture: str, checkpoint: str, progress=None) -> list:
        """Everything on the page for one picture and checkpoint."""
        key = studio.look(picture, checkpoint, progress=progress)
        trace = studio.subject(key).trace
        state = {**state, "picture": picture, "checkpoint": checkpoint, "key": key, "survey": None}
        stage = {**studio.value(key, PANELS[0]), "panel": "picture", "controls": [], "message": "", "summary": facts.stage(trace)}
        answers = [value for view in views for value in view.draw(state)]
        return [state, checkpoint, {"text": ""}, links.shown(state), stage, facts.answer(studio.subject(key)), *answers]

    def attempt(state: dict, make) -> list:
        """What `make` gives; when it cannot, a sentence where the action was, and everything else as it was."""
        try:
            return make()
        except VitvizError as error:
            return [gr.skip(), state.get("checkpoint", studio.settings.checkpoint), {"text": str(error)}, *[gr.skip()] * (len(outputs) - 3)]

    def show_sample(state: dict, name: str, checkpoint: str, progress=None) -> list:
        return show({**state, "sample": name}, studio.keep_sample(name), checkpoint, progress)

    def upload(state: dict, path: str | None) -> list:
        if path is None:
            return [gr.skip()] * (len(outputs) + 1)
        own = {**state, "sample": None}
        return [*attempt(state, lambda: show(own, studio.keep_picture(path), state.get("checkpoint", studio.settings.checkpoint))), None]

    def sample(state: dict, event: gr.SelectData) -> list:
        name = samples.samples()[int(event.index)].name
        return attempt(state, lambda: show_sample(state, name, state.get("checkpoint", studio.settings.checkpoint)))

    def switch(state: dict, checkpoint: str, progress=gr.Progress()) -> list:
        def report(done: int, total: int) -> None:
            progress((done, total), desc=f"Downloading {checkpoint}", unit="bytes")

        name = str(checkpoint).strip()
        if not state.get("picture"):
            return attempt(state, lambda: show_sample(state, FIRST_SAMPLE, name, report))
        return attempt(state, lambda: show(state, state["picture"], name, report))

    def first(state: dict, request: gr.Request) -> list:
        """What the address asks for; where its checkpoint cannot be had, the first one, and the reason."""
        asked = links.read(request.query_params)
        state = {**state, "distance": asked.of("distance")}
        picture, tab = asked.sample or FIRST_SAMPLE, gr.Tabs(selected=asked.tab) if asked.tab else gr.skip()
        page = attempt(state, lambda: show_sample(state, picture, asked.checkpoint or studio.settings.checkpoint))
        refused = page[outputs.index(left.notice)]
        if asked.checkpoint and refused["text"]:
            page = attempt(state, lambda: show_sample(state, picture, studio.settings.checkpoint))
            page[outputs.index(left.notice)] = refused
        return [*page, gr.update(choices=studio.names()), tab]

    hidden = {"api_visibility": "private", "show_progress_on": left.stage}
    left.upload.input(upload, [session, left.upload], [*outputs, left.upload], **hidden)
    left.gallery.select(sample, [session], outputs, **hidden)
    left.picker.input(switch, [session, left.picker], outputs, **hidden)
    demo.load(first, [session], [*outputs, left.picker, right], **hidden)


def _warm_up(studio: Studio) -> None:
    """Imports the engine and looks at the first picture while the page is being built and opened."""
    try:
        studio.look(studio.keep_sample(FIRST_SAMPLE), studio.settings.checkpoint)
    except VitvizError:
        pass  # the first visitor is told
