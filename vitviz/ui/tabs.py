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


def tab(panel: Panel, studio: Studio, session: gr.State) -> Tab:
    """One view's tab."""
    explanation = panel.explanation
    with gr.Tab(say(panel.title), id=panel.slug, elem_id=f"vitviz-tab-{panel.slug}"):
        gr.Markdown(say(f"{explanation.what} {explanation.how}"), elem_classes="vitviz-lead")
        if panel.drawn_by == "chart":
            made = Tab(*distance_tab(panel, studio, session))
        else:
            figure = Canvas(panel.slug, elem_id=f"vitviz-{panel.slug}")
            made = Tab([figure], lambda state: [studio.value(state["key"], panel)])
        with gr.Accordion(say("Definition, source and limits"), open=False):
            gr.Markdown(say(explanation.definition), latex_delimiters=LATEX)
            gr.Markdown(say(f"**Source.** {explanation.source}."))
            gr.Markdown(say(f"**What it does not show.** {explanation.caveat}"), latex_delimiters=LATEX)
    return made
