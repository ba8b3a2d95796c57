"""The page: the picture, the checkpoint and the answer on the left, the views as tabs on the right."""

from __future__ import annotations

import atexit
import gc
import json
import threading
from collections.abc import Callable

import gradio as gr
from starlette.middleware import Middleware

from vitviz import samples
from vitviz.errors import VitvizError
from vitviz.heap import keep_freed_memory
from vitviz.ui import words
from vitviz.ui.options import Options
from vitviz.ui.page import sizes, tabs
from vitviz.ui.page.canvas import Canvas, Part
from vitviz.ui.page.first_script import FirstScript
from vitviz.ui.page.handlers import FIRST_SAMPLE, PAIRS, Handlers
from vitviz.ui.page.shown import Left
from vitviz.ui.page.theme import theme
from vitviz.ui.page.widgets import Upload, Zip
from vitviz.ui.serving import door, endpoints, modules
from vitviz.ui.serving.calls import Calls
from vitviz.ui.serving.hosts import Hosts
from vitviz.ui.serving.routes import routes
from vitviz.ui.serving.studio import Studio
from vitviz.ui.serving.uploads import Quota
from vitviz.ui.words import say, translated
from vitviz.views import VIEWS

# A page that Gradio has forgotten is known by our own sessions, which take a thousandth of its memory.
PAGES = 200
NOT_OPENED = translated(
    "The page could not be opened: the server has too much to do just now, or something failed. "
    "Load it again in a moment.",
    "en",
)
# What the browser's history keeps of a page that is loaded again, in place of the value of the links.
KEPT = """(session) => {
  const { picture = '', averages = {} } = window.history.state?.vitviz || {};
  return [session, { picture, averages }];
}"""
# To whoever listens on the page.
TOLD = "() => {{ document.dispatchEvent(new CustomEvent('vitviz:{name}', {{ detail: '{detail}' }})); }}"


def build(studio: Studio) -> gr.Blocks:
    """The page, ready to be launched."""
    keep_freed_memory()
    with gr.Blocks(title="vitviz", analytics_enabled=False, delete_cache=(3600, 3600)) as demo:
        session = gr.State({})
        with gr.Row(elem_id="vitviz-header"):
            gr.Markdown(
                say("# vitviz\nSee what happens inside a Vision Transformer."), elem_id="vitviz-title"
            )
            Part("language", elem_id="vitviz-language")
            Part("present", elem_id="vitviz-present")
            link = Part("links", ("seen",), elem_id="vitviz-links")
        with gr.Row(elem_id="vitviz-page"):
            with gr.Column(scale=2, min_width=280, elem_id="vitviz-left"):
                left = _left(studio)
            with gr.Column(scale=5, min_width=360, elem_id="vitviz-right"):
                with gr.Tabs(elem_id="vitviz-tabs") as right:
                    views = [tabs.tab(view, studio, session) for view in VIEWS]
                left.edits.render()
                left.film.render()  # a timeline below the views
        # Before the listeners proper: the page takes those of an event one after the other, each when the
        # last is done.
        for change in (
            left.upload.input,
            left.gallery.select,
            left.picker.input,
            left.second.input,
            left.pairs.input,
            left.compare.compare,
            left.size.input,
            left.film.frame,
            left.zipped.upload,
            left.lessons.learn,
            left.edits.without,
            left.assumed.assume,
            left.assumed.keep,
            left.facts.computed,
            link.seen,
        ):
            change(None, None, None, cancels=[view.running for view in views if view.running])
        _connect(demo, left, session, right, link, Handlers(studio, session, left, link, views))
        endpoints.publish(studio)
    return demo


def launch(demo: gr.Blocks, studio: Studio, options: Options) -> None:
    """Serves the page until it is stopped."""
    threading.Thread(target=_warm_up, args=[studio], daemon=True).start()
    demo.queue(max_size=256, default_concurrency_limit=8)
    kept = [path for block in demo.blocks.values() for path in getattr(block, "keep_in_cache", ())]
    hosts = Hosts(options.host, options.allowed_hosts, options.share)
    quota = Quota(options.upload_quota, kept)
    demo._queue.pending_messages_per_session.max_size = PAGES  # answers that nobody has fetched; else 2000
    demo.launch(
        server_name=options.host,
        server_port=options.port,
        share=options.share,
        theme=theme(),
        head=f"<style>{modules.style()}</style>",  # Gradio's `css=` drops the container queries
        i18n=words.i18n(),
        max_file_size="20mb",
        run_history=False,
        enable_monitoring=False,
        state_session_capacity=PAGES,
        app_kwargs={
            "routes": routes(studio),
            "middleware": [Middleware(FirstScript, script=words.first())],
            "lifespan": door.lifespan(hosts, Calls(demo), quota),
        },
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
    lessons = Part("lessons", ("learn",), elem_id="vitviz-lessons")
    zipped = Zip(elem_id="vitviz-lesson", show_label=False)  # out of sight: scripts hand it what was dropped
    picker = gr.Dropdown(
        [studio.settings.checkpoint],
        value=studio.settings.checkpoint,
        label=say("Checkpoint"),
        allow_custom_value=True,
        elem_id="vitviz-picker",
    )
    compare = Part("compare", ("compare",), elem_id="vitviz-compare")
    notice = Part("notice", elem_id="vitviz-notice")
    assumed = Part("assumed", ("assume", "answers", "keep"), elem_id="vitviz-assumed")
    film = Part("film", ("frame",), elem_id="vitviz-film", render=False)
    edits = Part("edits", ("without",), elem_id="vitviz-edits", render=False)  # above the film
    with gr.Accordion(say("Compare, and input size"), open=False, elem_id="vitviz-more"):
        second = gr.Dropdown(
            [],
            value=None,
            label=say("Beside it"),
            info=say("A second checkpoint on the same picture"),
            allow_custom_value=True,
            elem_id="vitviz-second",
        )
        pairs = gr.Dropdown(
            [(say(text), value) for text, value in PAIRS],
            value=None,
            label=say("Pairs that teach"),
            info=say("Two checkpoints at once; most come from the hub"),
            elem_id="vitviz-pairs",
        )
        size = gr.Dropdown(
            [(say("As trained"), sizes.OWN)],
            value=sizes.OWN,
            label=say("Input size"),
            info=say(
                "Pixels of the model's input: one number, or height × width; whole patches, at most {count}"
                " tokens",
                count=str(studio.settings.limits.tokens),
            ),
            allow_custom_value=True,
            elem_id="vitviz-size",
        )
    answers = [
        Part("facts", ("computed",), elem_id="vitviz-facts"),
        Part("facts", elem_id="vitviz-second-facts"),
    ]
    return Left(
        stage, upload, gallery, picker, second, pairs, size, notice, film, *answers, edits, assumed, lessons,
        zipped, compare,
    )  # fmt: skip


def _connect(
    demo: gr.Blocks, left: Left, session: gr.State, right: gr.Tabs, link: Part, do: Handlers
) -> None:
    hidden = {"api_visibility": "private", "show_progress_on": left.stage}
    left.upload.input(do.upload, [session, left.upload], [*do.outputs, left.upload], **hidden)
    left.gallery.select(do.sample, [session], do.outputs, **hidden)
    left.picker.input(do.switch, [session, left.picker], do.outputs, **hidden)
    left.second.input(do.beside, [session, left.second], do.outputs, **hidden)
    left.pairs.input(do.pair, [session, left.pairs], do.outputs, **hidden)
    _one_by_one(left.compare, "compare", do.compare, session, do.outputs, **hidden)
    left.size.input(do.resize, [session, left.size], do.outputs, **hidden)
    _one_by_one(left.edits, "without", do.take_away, session, do.outputs, **hidden)
    link.seen(do.seen, [session], do.outputs, trigger_mode="multiple", **hidden)
    taught = [*do.outputs, left.lessons, right, left.zipped]
    left.zipped.upload(do.lesson, [session, left.zipped], taught, **hidden)
    _one_by_one(left.lessons, "learn", do.learn, session, taught, **hidden)
    _one_by_one(left.assumed, "assume", do.assume, session, do.outputs, **hidden)
    left.assumed.keep(do.keep, [session], do.outputs, **hidden)
    quiet = {"api_visibility": "private", "show_progress": "hidden", "trigger_mode": "always_last"}
    left.assumed.answers(do.answers, [session], left.assumed, **quiet)
    left.film.frame(
        do.frame,
        [session],
        do.outputs,
        trigger_mode="multiple",
        api_visibility="private",
        show_progress="hidden",
    )
    awaited = left.facts.computed(
        do.computed,
        [session],
        do.outputs,
        trigger_mode="multiple",
        api_visibility="private",
        show_progress="hidden",
    )
    awaited.failure(None, None, None, js=TOLD.format(name="unanswered", detail="computed"))
    first = [*do.outputs, left.picker, left.second, left.lessons, right]
    opened = demo.load(do.first, [session, link], first, js=KEPT, **hidden)
    # A page that comes when the queue is full has nothing to show; Gradio's own sentence is gone after ten
    # seconds.
    opened.failure(None, None, left.notice, js=f"() => ({{ text: {json.dumps(NOT_OPENED)} }})")


def _one_by_one(part: Part, event: str, do: Callable, session: gr.State, outputs: list, **options) -> None:
    """Listens to a part that asks one question after the other, and tells it when each has been answered."""
    asked = getattr(part, event)(do, [session], outputs, trigger_mode="multiple", **options)
    told = TOLD.format(name="answered", detail=event)
    for answered in (asked.then, asked.failure):
        answered(None, None, None, js=told)


def _warm_up(studio: Studio) -> None:
    """Imports the engine and looks at the first picture while the page is being opened."""
    import vitviz.engine.inspector  # noqa: F401 - for what it brings along: torch and timm

    gc.freeze(), gc.enable()  # app.py disabled it; what has been imported need not be looked through again
    atexit.register(gc.unfreeze)  # but at the end, or libraries report it at length as leaked
    try:
        studio.look(studio.keep_sample(FIRST_SAMPLE), studio.settings.checkpoint)
    except VitvizError:
        pass  # the first visitor is told
