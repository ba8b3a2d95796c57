"""The frame that every view gets: two lines (why; what to do), the figure, the definition in a drawer; and
the fold below a view that can be averaged: a set of pictures, a start, a stop, the way back to one picture.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import gradio as gr

from vitviz.errors import VitvizError
from vitviz.record.sentence import Sentence, travelling
from vitviz.ui.answers.plain import told_of
from vitviz.ui.door import uploads
from vitviz.ui.memory.studio import Studio
from vitviz.ui.page.components import Canvas, Files, Part
from vitviz.ui.page.figures import figures_of
from vitviz.ui.words import say, translated
from vitviz.views import GROUPS, View

GROUPED = {"groups": [[group, [view.slug for view in views]] for group, views in GROUPS.items()]}
LATEX = [{"left": "$", "right": "$", "display": False}]
FORMULAS = {"latex_delimiters": LATEX, "elem_classes": "vitviz-formulas"}
NONE = "Choose one or more pictures first; the paper averages over 128."
MANY = (
    "From the page at most {most} pictures are looked at here, and these are {count}. Take fewer, or do it"
    " in Python, where there is no limit."
)


@dataclass(frozen=True)
class Tab:
    """The components of a view that change with picture or checkpoint, and their values for a session."""

    drawn: list[gr.components.Component]
    draw: Callable[..., list]  # of a state, and whether only what waits for no pass is asked for
    running: gr.events.Dependency | None = (
        None  # what goes on for a while, and ends when something else is looked at
    )


def style() -> str:
    """Of the tabs only those stand in their row that are of one group with the chosen one."""
    rules = []
    for _, slugs in GROUPED["groups"]:
        own = [f"#vitviz-tab-{slug}-button" for slug in slugs]
        chosen = ", ".join(f"{one}[aria-selected='true']" for one in own)
        rules.append(f".tab-wrapper:not(:has({chosen})) :is({', '.join(own)}) {{ display: none }}")
    return "\n".join(rules)


def tab(view: View, studio: Studio, session: gr.State) -> Tab:
    """One view's tab."""
    words = view.words
    lead = say("{what}\n\n{how}", what=words.what, how=words.how)
    with gr.Tab(say(view.title), id=view.slug, elem_id=f"vitviz-tab-{view.slug}"):
        with gr.Row(elem_classes="vitviz-about"):
            gr.Markdown(lead, elem_classes="vitviz-lead")
            with gr.Accordion(say("Definition, source and limits"), open=False, elem_classes="vitviz-fold"):
                gr.Markdown(say(words.definition), **FORMULAS)
                gr.Markdown(say("**Source.** {source}.", source=words.source))
                gr.Markdown(say("**What it does not show.** {caveat}", caveat=words.caveat), **FORMULAS)
        with gr.Row(equal_height=False, elem_classes="vitviz-figures"):
            figures = [
                Canvas(view.slug, elem_id=f"vitviz-{view.slug}", elem_classes="vitviz-first"),
                Canvas(view.slug, True, elem_id=f"vitviz-second-{view.slug}", elem_classes="vitviz-beside"),
            ]
        running = _over_a_set(view, studio, session, figures) if view.averages else None
    return Tab(figures, lambda state, soon=False: figures_of(view, studio, state, soon), running)


class OverASet:
    """What the fold does. A survey ends when anything else is chosen: its beginning would lie over that."""

    def __init__(self, view: View, studio: Studio, drawn: list[gr.components.Component]):
        self._view, self._studio, self._drawn = view, studio, drawn

    def draw(self, state: dict) -> list:
        """The view's figures."""
        return figures_of(self._view, self._studio, state)

    def survey(
        self, state: dict, paths: list[str] | None, chosen: str = "", progress=gr.Progress()
    ) -> Iterator[list]:
        """State, figures and notice as the average grows; `chosen` is how the view's set is looked at."""
        state = self._studio.sessions.newest(state)
        language = state.get("language", "en")
        if not paths or not state.get("key"):
            yield self._as_it_was(travelling(NONE))
            return
        if len(paths) > self._view.most_pictures:
            said = Sentence(MANY, most=self._view.most_pictures, count=len(paths))
            yield self._as_it_was(travelling(said))
            return
        try:
            chosen = self._view.set_choice(chosen)
            own = [uploads.uploaded(path) for path in paths]
            second = state.get("second_key") if self._view.paired else None
            steps, last = -1, None
            surveys = self._studio.sets.surveying(state["key"], own, self._view.paired, second, chosen)
            for key, measured in surveys:
                steps, last = (steps + 1 if measured is last else 0), measured
                if steps:  # the set is through, and the training follows
                    of = len(self._studio.sets.steps_of(self._studio.runs.run(state["key"])))
                    progress((steps, of), unit=translated("steps of the training", language))
                else:
                    progress((measured.images, len(paths)), unit=translated("pictures", language))
                # Not settled: every other choice ends the survey, and what it had yet to say must count for
                # nothing.
                now = {**state, "surveys": {**state.get("surveys", {}), self._view.slug: key}}
                yield [now, *self.draw(now), travelling(" ".join(map(str, measured.skipped)))]
        except VitvizError as error:
            yield self._as_it_was(told_of(error))

    def single(self, state: dict) -> list:
        """The same of the one picture again."""
        state = self._studio.sessions.newest(state)
        if not state.get("key"):
            return self._as_it_was({"text": ""})

        def without(new: dict) -> list:
            others = {slug: key for slug, key in new.get("surveys", {}).items() if slug != self._view.slug}
            now = {**new, "surveys": others}
            return [now, *self.draw(now), {"text": ""}]

        try:
            return self._studio.sessions.settled(state, without)
        except VitvizError as error:
            return self._as_it_was(told_of(error))

    def _as_it_was(self, sentence: dict) -> list:
        return [gr.skip(), *[gr.skip()] * len(self._drawn), sentence]


def _over_a_set(view: View, studio: Studio, session: gr.State, drawn: list) -> gr.events.Dependency:
    """Builds the fold; returns the event that another choice ends."""
    name = f"vitviz-{view.slug}-set"
    notice = Part("notice", elem_id=f"{name}-notice")
    with gr.Accordion(say("Average over a set of pictures"), open=False, elem_classes="vitviz-set"):
        files = Files("multiple", label=say("Pictures"), elem_id=f"{name}-files", height=140)
        chosen = _choice(view, name)
        with gr.Row(elem_classes="vitviz-buttons"):
            start = gr.Button(say("Average"), variant="primary", size="sm", elem_id=f"{name}-start")
            stop = gr.Button(say("Stop"), size="sm", elem_id=f"{name}-stop", interactive=False)
            single = gr.Button(say("Back to one picture"), size="sm", elem_id=f"{name}-single")
    do, shown = OverASet(view, studio, drawn), [session, *drawn, notice]
    quiet = {"api_visibility": "private", "show_progress": "hidden"}
    start.click(lambda: gr.Button(interactive=True), None, stop, **quiet)
    running = start.click(
        do.survey, [session, files, *chosen], shown, api_visibility="private", show_progress_on=drawn[0]
    )
    gr.on([stop.click, single.click], None, cancels=running)
    for over in (running.then, stop.click, single.click):
        over(lambda: gr.Button(interactive=False), None, stop, **quiet)
    single.click(do.single, session, shown, **quiet)
    return running


def _choice(view: View, name: str) -> list[gr.components.Component]:
    """How the set is to be looked at, where the view leaves a choice."""
    control = next((one for one in view.controls if one.name == view.set_control), None)
    if control is None:
        return []
    options = [(say(text), value) for value, text in control.options]
    return [gr.Radio(options, value=control.start(), label=say(control.label), elem_id=f"{name}-choice")]
