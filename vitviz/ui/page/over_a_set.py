"""The fold below a view that can be averaged: a set of pictures, a start, a stop, and the way back to one
picture.
"""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr

from vitviz.errors import VitvizError
from vitviz.sentence import Sentence, travelling
from vitviz.ui.page.canvas import Part
from vitviz.ui.page.figures import figures_of
from vitviz.ui.page.widgets import Pictures
from vitviz.ui.serving import uploads
from vitviz.ui.serving.spoken import told_of
from vitviz.ui.serving.studio import Studio
from vitviz.ui.words import say, translated
from vitviz.views import View

NONE = "Choose one or more pictures first; the paper averages over 128."
MANY = (
    "From the page at most {most} pictures are looked at here, and these are {count}. Take fewer, or do it"
    " in Python, where there is no limit."
)


class OverASet:
    """What the fold does. A survey that runs ends when anything else is chosen: it would lay its beginning
    over that.
    """

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
            surveys = self._studio.surveying(state["key"], own, self._view.paired, second, chosen)
            for key, measured in surveys:
                steps, last = (steps + 1 if measured is last else 0), measured
                if steps:  # the set is through, and the training follows
                    of = len(self._studio.steps_of(self._studio.run(state["key"])))
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


def over_a_set(view: View, studio: Studio, session: gr.State, drawn: list) -> gr.events.Dependency:
    """Builds the fold; returns the event that another choice ends."""
    name = f"vitviz-{view.slug}-set"
    notice = Part("notice", elem_id=f"{name}-notice")
    with gr.Accordion(say("Average over a set of pictures"), open=False, elem_classes="vitviz-set"):
        files = Pictures(label=say("Pictures"), elem_id=f"{name}-files", height=140)
        chosen = _choice(view, name)
        with gr.Row(elem_classes="vitviz-buttons"):
            start = gr.Button(say("Average"), variant="primary", size="sm", elem_id=f"{name}-start")
            stop = gr.Button(say("Stop"), size="sm", elem_id=f"{name}-stop")
            single = gr.Button(say("Back to one picture"), size="sm", elem_id=f"{name}-single")
    do, shown = OverASet(view, studio, drawn), [session, *drawn, notice]
    running = start.click(
        do.survey, [session, files, *chosen], shown, api_visibility="private", show_progress_on=drawn[0]
    )
    gr.on([stop.click, single.click], None, cancels=running)
    single.click(do.single, session, shown, api_visibility="private", show_progress="hidden")
    return running


def _choice(view: View, name: str) -> list[gr.components.Component]:
    """How the set is to be looked at, where the view leaves a choice."""
    control = next((one for one in view.controls if one.name == view.set_control), None)
    if control is None:
        return []
    options = [(say(text), value) for value, text in control.options]
    return [gr.Radio(options, value=control.start(), label=say(control.label), elem_id=f"{name}-choice")]


__all__ = ["over_a_set"]
