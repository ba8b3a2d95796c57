"""The page: image, checkpoint and prediction on the left, the views as tabs on the right."""

import atexit
import gc
import json
import threading
from contextlib import suppress

import gradio as gr

from vitviz.engine.hub.downloads import remove_leftovers
from vitviz.errors import VitvizError
from vitviz.server import i18n
from vitviz.server.api import endpoints, modules
from vitviz.server.i18n import translatable, translate
from vitviz.server.options import Options
from vitviz.server.page.components import Canvas, Page, PageComponent
from vitviz.server.page.handlers import FIRST_SAMPLE, Handlers
from vitviz.server.page.over_a_set import ImageSetPanel
from vitviz.server.page.page_renderer import PageRenderer, SidebarComponents
from vitviz.server.page.routes import routes
from vitviz.server.page.theme import theme
from vitviz.server.security import middleware
from vitviz.server.security.uploads import Quota
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.allocator import keep_freed_memory
from vitviz.views import GROUPS, VIEWS, View, typefaces

# Pages beyond this number are evicted by Gradio; our sessions still know them, at a thousandth of the memory.
PAGES = 200
LOOKS = 0.01  # seconds between two polls of an empty queue
GROUPED = {"groups": [[group, [view.slug for view in views]] for group, views in GROUPS.items()]}
LATEX = [{"left": "$", "right": "$", "display": False}]
FORMULAS = {"latex_delimiters": LATEX, "elem_classes": "vitviz-formulas"}
NOT_OPENED = translate(
    "The page could not be opened: the server is busy or an error occurred. Reload in a moment.", "en"
)
# On a reload, pass this part of the browser's history instead of the value of the links component.
KEPT = """(session) => {
  const { picture = '', averages = {}, strokes, set } = window.history.state?.vitviz || {};
  return [session, { picture, averages, strokes, set }];
}"""
QUIET = {"api_visibility": "private", "show_progress": "hidden"}  # options of a listener
# Notify listeners in the page.
TOLD = "() => {{ document.dispatchEvent(new CustomEvent('vitviz:{name}', {{ detail: '{detail}' }})); }}"


def build_page(service: AnalysisService) -> gr.Blocks:
    """Build the page, ready to be launched."""
    keep_freed_memory()
    with Page(title="vitviz", analytics_enabled=False, delete_cache=(3600, 3600)) as demo:
        session = gr.State({})
        with gr.Row(elem_id="vitviz-header"):
            title = translatable("# vitviz\nSee what happens inside a Vision Transformer.")
            gr.Markdown(title, elem_id="vitviz-title")
            PageComponent("language", elem_id="vitviz-language")
            PageComponent("glossary")
            PageComponent("present", elem_id="vitviz-present")
            link = PageComponent("links", ("seen",), elem_id="vitviz-links")
        with gr.Row(elem_id="vitviz-page"):
            with gr.Column(scale=2, min_width=280, elem_id="vitviz-left"):
                left = SidebarComponents(service)
            with gr.Column(scale=5, min_width=360, elem_id="vitviz-right"):
                PageComponent("groups", value=GROUPED, elem_id="vitviz-groups")
                # views that need no pass come first
                soon = next(view.slug for view in VIEWS if view.scope.needs_no_pass)
                with gr.Tabs(selected=soon, overflow_behavior="wrap", elem_id="vitviz-tabs") as right:
                    figures = {view.slug: _tab(view) for view in VIEWS}
                left.set.render()
                left.film.render()  # a timeline below the views
        _connect(demo, PageRenderer(service, session, left, link, figures), session, right)
        endpoints.add_endpoints(service)
    return demo


def _tab_group_css() -> str:
    """Return CSS that hides the tabs outside the group of the selected tab."""
    rules = []
    for _, slugs in GROUPED["groups"]:
        own = [f"#vitviz-tab-{slug}-button" for slug in slugs]
        chosen = ", ".join(f"[data-tab='{slug}']" for slug in slugs)
        rules.append(f":root:not({chosen}) :is({', '.join(own)}) {{ display: none }}")
    return "\n".join(rules)


def _tab(view: View) -> list[Canvas]:
    """Build a view's tab; return its two canvases, for the first and the second checkpoint."""
    details = view.words
    lead = translatable("## {title}\n\n{what}\n\n{how}", title=view.title, what=details.what, how=details.how)
    with gr.Tab(translatable(view.title), id=view.slug, elem_id=f"vitviz-tab-{view.slug}"):
        with gr.Row(elem_classes="vitviz-about"):
            gr.Markdown(lead, elem_classes="vitviz-lead")
            fold = translatable("Definition, source and limits")
            with gr.Accordion(fold, open=False, elem_classes="vitviz-fold"):
                gr.Markdown(translatable(details.definition), **FORMULAS)
                gr.Markdown(translatable("**Source.** {source}.", source=details.source))
                caveat = translatable("**What it does not show.** {caveat}", caveat=details.caveat)
                gr.Markdown(caveat, **FORMULAS)
        with gr.Row(equal_height=False, elem_classes="vitviz-figures"):
            first = Canvas(view.slug, elem_id=f"vitviz-{view.slug}", elem_classes="vitviz-first")
            name = f"vitviz-second-{view.slug}"
            return [first, Canvas(view.slug, True, elem_id=name, elem_classes="vitviz-beside")]


def launch(demo: gr.Blocks, service: AnalysisService, options: Options) -> None:
    """Serve the page until it is stopped."""
    threading.Thread(target=_warm_up, args=[service], daemon=True).start()
    demo.queue(max_size=256, default_concurrency_limit=None)  # waiting is left to our scheduler
    kept = [path for block in demo.blocks.values() for path in getattr(block, "keep_in_cache", ())]
    hosts = middleware.Hosts(options.host, options.allowed_hosts, options.share, options.frame_ancestors)
    quota = Quota(options.upload_quota, kept)
    opened = middleware.lifespan(hosts, middleware.PageCalls(demo), quota, service.work.turns)
    demo._queue.pending_messages_per_session = middleware.PageMessages(PAGES)
    demo._queue.sleep_when_free = LOOKS  # Gradio's own 0.001 takes a tenth of a core from computations
    serve_with_retries(
        demo,
        server_name=options.host, server_port=options.port, root_path=options.root_path, share=options.share,
        max_threads=middleware.THREADS,
        theme=theme(),
        # Gradio's `css=` drops container queries
        head=f"<style>{typefaces.font_faces()}{modules.style_sheets()}{_tab_group_css()}</style>",
        i18n=i18n.gradio_translations(),
        max_file_size=quota.request,  # of a video; images are limited where they are read
        run_history=False, enable_monitoring=False, state_session_capacity=PAGES,
        app_kwargs={"routes": routes(service), "lifespan": opened},
    )  # fmt: skip


def serve_with_retries(demo: gr.Blocks, **given) -> None:
    """Launch, with retries if Gradio's check of its own address times out on a busy machine."""
    for last in (False, False, True):
        try:
            return demo.launch(**given)
        except ValueError as error:
            if last or "localhost" not in str(error):
                raise


def _connect(demo: gr.Blocks, page: PageRenderer, session: gr.State, right: gr.Tabs) -> None:
    """Connect all listeners. A change of the page ends a running survey of any view."""
    do, outputs, left, link = Handlers(page), page.outputs, page.left, page.link
    shown = {"api_visibility": "private", "show_progress_on": left.stage}
    each = {"trigger_mode": "multiple"}
    taught = [*outputs, left.lessons, right, left.zipped]
    changes = (  # event, handler, inputs, outputs, options, name of the page's notification
        (left.upload.input, do.upload, [left.upload], [*outputs, left.upload], shown, ""),
        (left.samples.choose, do.sample, [], outputs, shown, ""),
        (left.picker.input, do.switch, [left.picker], outputs, shown, ""),
        (left.second.input, do.beside, [left.second], outputs, shown, ""),
        (left.pairs.input, do.pair, [left.pairs], outputs, shown, ""),
        (left.compare.compare, do.compare, [], outputs, shown | each, "compare"),
        (left.size.input, do.resize, [left.size], outputs, shown, ""),
        (left.edits.without, do.take_away, [], outputs, shown | each, "without"),
        (left.edits.retouch, do.retouch, [], outputs, shown | each, "retouch"),
        (link.seen, do.seen, [], outputs, shown | each, ""),
        (left.zipped.upload, do.lesson, [left.zipped], taught, shown, ""),
        (left.lessons.learn, do.learn, [], taught, shown | each, "learn"),
        (left.assumed.assume, do.assume, [], outputs, shown | each, "assume"),
        (left.sentences.ask, do.ask, [], outputs, shown | each, "ask"),
        (left.assumed.keep, do.save_settings, [], outputs, shown, ""),
        (left.film.frame, do.frame, [], outputs, QUIET | each, ""),
        (left.facts.computed, do.computed, [], outputs, QUIET | each, "computed"),
    )
    ends = _over_a_set(page, session)
    # Register these before the listeners proper: the page runs the listeners of an event in sequence, each
    # after the previous one is done.
    for event, *_ in changes:
        event(None, None, None, cancels=ends)
    for event, make, given, into, how, name in changes:
        asked = event(make, [session, *given], into, **how)
        if name == "computed":
            asked.failure(None, None, None, js=TOLD.format(name="unanswered", detail=name))
        elif name:  # a component that sends requests in sequence is notified after each response
            for answered in (asked.then, asked.failure):
                answered(None, None, None, js=TOLD.format(name="answered", detail=name))
    left.assumed.answers(do.answers, [session], left.assumed, trigger_mode="always_last", **QUIET)
    first = [*outputs, left.picker, left.second, left.lessons, right]
    opened = demo.load(do.first, [session, link], first, js=KEPT, **shown)
    # A page loaded while the queue is full has nothing to show, and Gradio's own message disappears after ten
    # seconds.
    opened.failure(None, None, left.notice, js=f"() => ({{ text: {json.dumps(NOT_OPENED)} }})")


def _over_a_set(page: PageRenderer, session: gr.State) -> list[gr.events.Dependency]:
    """Connect the image-set panel's listeners; return those that any other choice cancels."""
    over, panel, files = ImageSetPanel(page.service), page.left.set, page.left.files
    figures = [session, *page.over_sets, panel]
    answering = panel.answer(over.answer, session, panel, **QUIET)
    panel.survey(None, None, None, cancels=answering)
    surveying = panel.survey(over.survey, session, figures, **QUIET)
    ends = [answering, surveying]
    for event in (files.upload, panel.samples, panel.stop, panel.single):
        event(None, None, None, cancels=ends)
    given = [session, panel, files]
    files.upload(over.give, [session, files], given, **QUIET)
    panel.samples(over.give, session, given, **QUIET)
    panel.single(over.single, session, figures, **QUIET)
    for name, asked in (("answer", answering), ("survey", surveying)):
        for answered in (asked.then, asked.failure):
            answered(None, None, None, js=TOLD.format(name="answered", detail=f"set.{name}"))
    return ends


def _warm_up(service: AnalysisService) -> None:
    """Run the first image while the page loads."""
    gc.freeze(), gc.enable()  # app.py disabled collection; imported objects need no scan
    atexit.register(gc.unfreeze)  # at exit, or libraries report frozen objects as leaks
    with suppress(VitvizError):  # the first visitor gets the error
        service.look(service.pictures.sample(FIRST_SAMPLE), service.settings.checkpoint)
    remove_leftovers()
