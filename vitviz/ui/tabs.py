"""The frame that every view gets: two sentences, the figure, its settings, and the details folded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr

from vitviz.panels import Panel
from vitviz.ui.canvas import Canvas
from vitviz.ui.distance import distance_tab
from vitviz.ui.language import say
from vitviz.ui.studio import Studio

LATEX = [{"left": "$", "right": "$", "display": False}]


@dataclass(frozen=True)
class Tab:
    """The components of a view that change with picture or checkpoint, and their values for a session's state."""

    drawn: list[gr.components.Component]
    draw: Callable[[dict], list]
    running: gr.events.Dependency | None = None  # what goes on for a while, and ends when something else is looked at


def tab(panel: Panel, studio: Studio, session: gr.State) -> Tab:
    """One view's tab."""
    explanation = panel.explanation
    with gr.Tab(say(panel.title), id=panel.slug, elem_id=f"vitviz-tab-{panel.slug}"):
        gr.Markdown(say("{what} {how}", what=explanation.what, how=explanation.how), elem_classes="vitviz-lead")
        if panel.drawn_by == "chart":
            made = Tab(*distance_tab(panel, studio, session))
        else:
            with gr.Row(equal_height=False):
                figures = [
                    Canvas(panel.slug, elem_id=f"vitviz-{panel.slug}", min_width=320),
                    Canvas(panel.slug, elem_id=f"vitviz-second-{panel.slug}", min_width=320, visible=False),
                ]
            made = Tab(figures, lambda state: figures_of(panel, studio, state))
        with gr.Accordion(say("Definition, source and limits"), open=False):
            gr.Markdown(say(explanation.definition), latex_delimiters=LATEX, elem_classes="vitviz-formulas")
            gr.Markdown(say("**Source.** {source}.", source=explanation.source))
            gr.Markdown(say("**What it does not show.** {caveat}", caveat=explanation.caveat), latex_delimiters=LATEX, elem_classes="vitviz-formulas")
    return made


def figures_of(panel: Panel, studio: Studio, state: dict) -> list:
    """The figure of the first checkpoint, and of the one beside it if there is one; that follows the first one's settings."""
    first, second = studio.value(state["key"], panel), state.get("second_key")
    if not second:
        return [first, gr.update(visible=False)]
    beside = studio.value(second, panel)
    pair = [{**value, "heading": value["checkpoint"]} for value in (first, {**beside, "second": True})]
    return [pair[0], gr.update(visible=True, value=pair[1])]
