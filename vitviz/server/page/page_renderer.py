"""Render the page for one image and checkpoint, as values of `outputs` in order."""

import re
from collections.abc import Callable
from functools import cached_property

import gradio as gr

from vitviz.engine.images.preprocess import fitted_size
from vitviz.errors import VitvizError
from vitviz.server.api import lessons, links
from vitviz.server.api.serialization import error_json
from vitviz.server.i18n import mark, translatable, translate
from vitviz.server.page import assumed, facts, over_a_set
from vitviz.server.page.components import Canvas, FileInput, ImageUpload, PageComponent
from vitviz.server.page.figures import figure_frame, figures_of
from vitviz.server.security.request_context import require_visitor
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.image_edits import ImageEdits
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.runs import Ablation
from vitviz.traces.text_classes import plain_name
from vitviz.views import VIEWS

PAIRS = (  # instructive pairs of checkpoints for one image
    ("Before and after training (on disk)", "vitviz-tiny@0|vitviz-tiny"),
    ("Trained on 1,000 or on 21,000 classes",
     "vit_base_patch16_224.augreg_in1k|vit_base_patch16_224.augreg_in21k"),
    ("With labels or without (DINO)", "vit_base_patch16_224.augreg_in1k|vit_base_patch16_224.dino"),
    ("Without and with registers", "vit_base_patch14_dinov2.lvd142m|vit_base_patch14_reg4_dinov2.lvd142m"),
)  # fmt: skip
# Twins trained alike except for their position embeddings (table 8 of the paper): the embeddings of both, and
# the value that `pair` takes.
TWINS = (
    (mark("none and 1-D"), "vitviz-positions-none-0|vitviz-positions-1d-0"),
    (mark("none and 2-D"), "vitviz-positions-none-0|vitviz-positions-2d-0"),
    (mark("1-D and 2-D"), "vitviz-positions-1d-0|vitviz-positions-2d-0"),
)
NO_SIZE = (
    "{size} is not an input size. Give a number of pixels such as 224, or height x width such as 224 x 320."
)
OWN, SHAPE = "own", "shape"
_PIXELS = re.compile(r"\s*(\d{1,5})(?:\s*[x×*,]\s*(\d{1,5}))?\s*(?:px)?\s*", re.IGNORECASE)
# State of a page that waits for no pass; otherwise `last` is the state shown before.
WHOLE = {"awaited": False, "last": None}


class SidebarComponents:
    """Components of the sidebar, top to bottom."""

    def __init__(self, service: AnalysisService):
        self.stage = Canvas("stage", elem_id="vitviz-stage")
        self.facts = PageComponent("facts", ("computed",), elem_id="vitviz-facts")
        self.second_facts = PageComponent("facts", elem_id="vitviz-second-facts")
        self.edits = PageComponent("edits", ("without", "retouch"), elem_id="vitviz-edits")
        limits = service.settings.limits
        most = translatable("Image, or video ≤ {seconds} s", seconds=f"{limits.video_seconds:g}")
        name = {"label": translatable("Your image"), "elem_id": "vitviz-upload"}
        self.upload = ImageUpload(placeholder=most, height=150, sources=["upload", "clipboard"], **name)
        row = facts.sample_row(None, service.settings.checkpoint)
        self.samples = PageComponent("samples", ("choose",), value=row, elem_id="vitviz-samples")
        self.lessons = PageComponent("lessons", ("learn",), elem_id="vitviz-lessons")
        # hidden, like that of a set: scripts pass dropped files to it
        self.zipped = FileInput(elem_id="vitviz-lesson", show_label=False)
        first = service.settings.checkpoint
        self.picker = _editable_dropdown(translatable("Checkpoint"), "vitviz-picker", [first], first)
        self.sentences = PageComponent("sentences", ("ask",), elem_id="vitviz-sentences")
        self.notice = PageComponent("notice", elem_id="vitviz-notice")
        self.compare = PageComponent("compare", ("compare",), elem_id="vitviz-compare")
        with gr.Column(elem_id="vitviz-more"):  # unfolded by the button of `compare`
            beside = translatable("A second checkpoint, run on the same image")
            self.second = _editable_dropdown(translatable("Compare with"), "vitviz-second", [], info=beside)
            named = {"label": translatable("Suggested pairs"), "elem_id": "vitviz-pairs"}
            hint = translatable("Loads two checkpoints, mostly downloaded from the hub")
            pairs = [(translatable(text), value) for text, value in PAIRS]
            self.pairs = gr.Dropdown(pairs, value=None, info=hint, **named)
            pixels = translatable(
                "In pixels: one number, or height × width. Must be divisible into patches; at most {count}"
                " tokens.", count=str(limits.tokens))  # fmt: skip
            own = [(translatable("As trained"), OWN)]
            self.size = _editable_dropdown(translatable("Input size"), "vitviz-size", own, OWN, info=pixels)
        self.assumed = PageComponent("assumed", ("assume", "answers", "keep"), elem_id="vitviz-assumed")
        self.files = FileInput("multiple", elem_id="vitviz-set-files", show_label=False)
        events = ("samples", "survey", "stop", "single", "answer")
        self.set = PageComponent("set", events, elem_id="vitviz-set", render=False)
        self.film = PageComponent("film", ("frame",), elem_id="vitviz-film", render=False)


class PageRenderer:
    """Renders the page over one AnalysisService. A session is a small dict: keys, names, settings."""

    def __init__(
        self, service: AnalysisService, session: gr.State, left: SidebarComponents, link: PageComponent,
        figures: dict[str, list[Canvas]]
    ):  # fmt: skip
        self.service, self.left, self.link = service, left, link
        self.over_sets = [one for view in over_a_set.AVERAGED for one in figures[view.slug]]
        self.outputs = [
            session, left.picker, left.second, left.size, left.notice, left.film, link, left.stage,
            left.facts, left.second_facts, left.samples, left.edits, left.assumed, left.sentences,
            left.compare, left.set,
            *(one for two in figures.values() for one in two),
        ]  # fmt: skip

    @cached_property
    def _twins(self) -> list[dict[str, str]]:
        """Return the suggested pairs of checkpoints, each with its text, if both are available."""
        names = {one.name for one in self.service.checkpoints.selectable()}
        return [{"text": text, "pair": pair} for text, pair in TWINS if set(pair.split("|")) <= names]

    def again(self, state: dict, change: dict, report=None, named: Callable[[str], str] = str) -> list:
        """Render the current image with `change` in the state; `named` maps the checkpoint to a new name."""
        state = self.service.sessions.newest(state)
        if not state.get("picture"):
            return self.unchanged()

        def show(now: dict) -> list:
            return self.show({**now, **change}, now["picture"], named(self.checkpoint(now)), report)

        return self.attempt(state, show)

    def checkpoint(self, state: dict) -> str:
        """Return the name of the session's checkpoint; the service's default if it has none."""
        return state.get("checkpoint", self.service.settings.checkpoint)

    def show(
        self, state: dict, picture: str, checkpoint: str, progress=None, soon: bool = True,
        explained: int | None = None,
    ) -> list:  # fmt: skip
        """Render the page for an image and checkpoints; with `soon`, first what needs no long pass.

        `explained` is the class that views explain if the visitor chose none; None means the most likely
        class.
        """
        service, second = self.service, state.get("second", "")
        # another model has other heads; snapshots of one training have the same
        shown = state.get("checkpoint", checkpoint)
        model, model_shown = (plain_name(one).partition("@")[0] for one in (checkpoint, shown))
        if model != model_shown:
            state = {**state, "without": ""}
        without = Ablation.parse(state.get("without", ""))
        strokes = ImageEdits.parse(state.get("strokes", ""))
        state = {**state, "without": without.text(), "strokes": strokes.text()}
        ground = service.pictures.ground(picture, strokes)
        untouched = self._run_key({**state, "strokes": ""}, ground, checkpoint, progress)
        whole = self._run_key(state, picture, checkpoint, progress)
        key = self._run_key(state, picture, checkpoint, progress, without=without) if without else whole
        second_key = self._run_key(state, picture, second, progress) if second else ""
        earlier = state.get("earlier" if state.get("picture", picture) == picture else "picture", "")
        keys = {"key": key, "second_key": second_key, "untouched": untouched, "whole": whole}
        state |= {"earlier": earlier, "picture": picture, "checkpoint": checkpoint, **keys}
        state["explained"] = explained
        soon = soon and any(service.has_long_pass(one) for one in (untouched, second_key) if one)
        return self.page({**state, "surveys": {}, "scene": service.scene(key), **WHOLE, "awaited": soon})

    def page(self, state: dict) -> list:
        """Render a state whose keys are known; while a pass is awaited, only what needs no pass."""
        service, second, checkpoint = self.service, state.get("second", ""), state["checkpoint"]
        soon, without = state["awaited"], Ablation.parse(state.get("without", ""))
        # ablations show only after the pass
        drawn = {**state, "key": state["whole"]} if soon else state
        keys = drawn["key"], state["second_key"]
        subjects = [(service.before if soon else service.subject)(key) if key else None for key in keys]
        subject, film = subjects[0], service.checkpoints.film(checkpoint)
        inspector = service.checkpoints.inspector(checkpoint)
        offered = _sizes(inspector, state.get("language", "en"), service.settings.limits.tokens)
        ground = service.pictures.ground(state["picture"], ImageEdits.parse(state["strokes"]))
        sample = service.pictures.sample_of(ground)
        each = zip(subjects, keys, strict=True)
        answer, beside = (facts.prediction_facts(one, key, sample) if key else {} for one, key in each)
        if state["key"] != state["untouched"] and not soon:
            answer["before"] = facts.prediction_facts(service.subject(state["untouched"]))["top"]
        beside_it = service.checkpoints.inspector(second) if second else None
        names = [frame["name"] for frame in film.get("frames", ())]
        before = f"{names[0]}|{names[-1]}" if len(names) > 1 else ""  # first and last snapshot, for `pair`
        right = next((one["top1"] for one in film.get("frames", ()) if one["name"] == checkpoint), None)
        chips = facts.ablation_chips(without, subject)
        shown = {"asks": soon, "scene": state["scene"], "moved": state["explained"] is not None}
        return [
            state,
            checkpoint,
            second or None,
            gr.update(choices=offered, value=state.get("size", OWN)),
            {"text": ""},
            film,
            links.link_state(state),
            figure_frame(service, drawn["key"], "picture"),
            {**answer, **shown, "key": keys[0], "right": right},
            beside,
            facts.sample_row(sample, checkpoint),
            chips | facts.editor_value(state, keys[0], subject, answer, service.pictures),
            assumed.form_value(inspector, beside_it, service.settings.keeps),
            facts.sentence_field(inspector),
            {"shown": True, "second": second, "before": before, "twins": self._twins},
            over_a_set.panel_value(service, drawn),
            *[one for view in VIEWS for one in figures_of(view, service, drawn, soon)],
        ]

    def explained(self, state: dict) -> int | None:
        """Return the class explained throughout a training history: the most likely when first shown."""
        if state.get("explained") is None:
            logits = self.service.subject(state["key"]).trace.logits
            return None if logits is None else int(logits.argmax())
        return state["explained"]

    def averaged(self, page: list, averages: object) -> list:
        """Render the page with the averages shown before a reload: `averages` has survey keys by view."""
        had = averages if isinstance(averages, dict) else {}  # comes from the page, so any value is possible
        asked = {view.slug: had.get(view.slug) for view in over_a_set.AVERAGED}
        keys = {slug: key for slug, key in asked.items() if isinstance(key, str)}
        known = {slug: key for slug, key in keys.items() if self.service.sets.survey(key)}
        state = {**page[0], "surveys": known}
        return self.page(state) if known and not state["awaited"] else [state, *page[1:]]

    def offered(self) -> list[str]:
        """Return the names of this server's lessons."""
        return list(lessons.lessons_in_folder(self.service.settings.lessons))

    def unchanged(self, more: int = 0) -> list:
        """Return updates that change nothing, with `more` values besides `outputs`."""
        return [gr.skip()] * (len(self.outputs) + more)

    def roll_back(self, state: dict) -> list:
        """Render the page as it was before a pass that failed; if there was none before, only the image."""
        if state["last"].get("key"):
            return self.page(state["last"])
        plain = {**state["last"], "sample": state.get("sample")}
        return self.show(plain, state["picture"], self.service.settings.checkpoint, soon=False)

    def _run_key(self, state: dict, picture: str, checkpoint: str, progress=None, **changes) -> str:
        """Return the key of an image's run under a checkpoint at the session's input size; run nothing."""
        inspector = self.service.checkpoints.inspector(checkpoint, progress)
        pictures, strokes = self.service.pictures, ImageEdits.parse(state.get("strokes", ""))
        ground = pictures.ground(picture, strokes)
        size = _pixels(state.get("size", OWN), inspector, lambda: pictures.opened(ground).size)
        return self.service.runs.known(picture, checkpoint, size, strokes=strokes, **changes)

    def sample(self, state: dict, name: str, checkpoint: str, progress=None) -> list:
        """Render the page for a sample image, given by its name, under a checkpoint."""
        return self.show({**state, "sample": name}, self.service.pictures.sample(name), checkpoint, progress)

    def attempt(self, state: dict, make: Callable[[dict], list]) -> list:
        """Return the page that `make` renders from the newest state; on an error, only show the error."""

        def try_make(state: dict) -> list:
            with self.service.work.request_turn():
                page = make(state)
            if page[0].get("awaited"):  # the pass may still fail
                page[0] = {**page[0], "last": state["last"] if state.get("awaited") else state}
            return page

        try:
            return self.service.sessions.settled(state, try_make)
        except Exception as error:
            state = self.service.sessions.newest(state)
            kept = [self.checkpoint(state), state.get("second") or None, state.get("size", OWN)]
            return [gr.skip(), *kept, error_json(error), self._training_slider(state), *self.unchanged(-6)]

    def _training_slider(self, state: dict) -> dict:
        """Return the training steps that the slider offers for the current checkpoint; {} after an error."""
        try:
            return self.service.checkpoints.film(self.checkpoint(state)) if state.get("key") else {}
        except Exception:  # the error has already been shown
            return {}


def _editable_dropdown(label, name: str, choices: list, value: str | None = None, **more) -> gr.Dropdown:
    """Return a dropdown that also accepts typed text."""
    return gr.Dropdown(choices, value=value, label=label, allow_custom_value=True, elem_id=name, **more)


def download_progress(
    progress: gr.Progress, checkpoint: str | None, state: dict
) -> Callable[[int, int], None]:
    """Return a progress callback for downloads, which cancels them if the visitor has left."""
    language = state.get("language", "en")
    said = translate("Downloading {checkpoint}", language, checkpoint=checkpoint or "")

    def report(done: int, total: int) -> None:
        require_visitor()
        progress((done, total), desc=said, unit="bytes")

    return report


def link_settings(link: links.Link) -> dict[str, str]:
    """Return the parts of a link that a session keeps, besides image and checkpoint."""
    edits = {"without": link.without or "", "strokes": link.strokes or ""}
    return {"second": link.second or "", "size": link.size or OWN, **edits}


def _sizes(inspector, language: str, tokens: int) -> list[tuple[str, str]]:
    """Return (text, size) pairs: a checkpoint's suggested input sizes, of at most `tokens` tokens."""
    (height, width), patch = inspector.preprocessing.size, inspector.grid().patch
    scaled = []
    for factor in (0.5, 1.5, 2):
        sides = zip((height, width), patch, strict=True)
        size = tuple(max(p, round(side * factor / p) * p) for side, p in sides)
        scaled += [size] if inspector.demand(size).tokens <= tokens else []
    own, shape = translate("As trained", language), translate("The image's aspect ratio", language)
    return [(own, OWN), (shape, SHAPE), *((f"{h} × {w} px", f"{h}x{w}") for h, w in scaled)]


def _pixels(text: str, inspector, upload: Callable[[], tuple[int, int]]) -> tuple[int, int] | None:
    """Return the input size in pixels, (height, width), that a text stands for.

    `upload` returns the image's width and height. Raises VitvizError for an invalid size; the inspector
    checks whether the size is divisible into patches.

    Returns:
        (height, width), or None for the checkpoint's own size.
    """
    if text in ("", OWN):
        return None
    if text == SHAPE:
        grid = inspector.grid()
        return fitted_size(upload(), grid.patches, grid.patch)
    result = _PIXELS.fullmatch(text)
    if not result:
        raise VitvizError(LocalizedText(NO_SIZE, size=repr(text[:60])))
    return int(result[1]), int(result[2] or result[1])
