"""The frame that every view gets: two sentences, the figure with its settings, and the details folded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr

from vitviz.ui.page.canvas import Canvas
from vitviz.ui.page.figures import figures_of
from vitviz.ui.page.over_a_set import over_a_set
from vitviz.ui.serving.studio import Studio
from vitviz.ui.words import say
from vitviz.views import View

LATEX = [{"left": "$", "right": "$", "display": False}]
FORMULAS = {"latex_delimiters": LATEX, "elem_classes": "vitviz-formulas"}


@dataclass(frozen=True)
class Tab:
    """The components of a view that change with picture or checkpoint, and their values for a session's
    state.
    """

    drawn: list[gr.components.Component]
    draw: Callable[..., list]  # of a state, and whether only what waits for no pass is asked for
    running: gr.events.Dependency | None = (
        None  # what goes on for a while, and ends when something else is looked at
    )


def tab(view: View, studio: Studio, session: gr.State) -> Tab:
    """One view's tab."""
    words = view.words
    lead = say("{what} {how}", what=words.what, how=words.how)
    with gr.Tab(say(view.title), id=view.slug, elem_id=f"vitviz-tab-{view.slug}"):
        with gr.Row(elem_classes="vitviz-about"):
            gr.Markdown(lead, elem_classes="vitviz-lead")
            with gr.Accordion(say("Definition, source and limits"), open=False, elem_classes="vitviz-fold"):
                gr.Markdown(lead, elem_classes="vitviz-lead-again")
                gr.Markdown(say(words.definition), **FORMULAS)
                gr.Markdown(say("**Source.** {source}.", source=words.source))
                gr.Markdown(say("**What it does not show.** {caveat}", caveat=words.caveat), **FORMULAS)
        with gr.Row(equal_height=False, elem_classes="vitviz-figures"):
            figures = [
                Canvas(view.slug, elem_id=f"vitviz-{view.slug}", elem_classes="vitviz-first"),
                Canvas(
                    view.slug,
                    elem_id=f"vitviz-second-{view.slug}",
                    elem_classes="vitviz-second",
                    visible=False,
                ),
            ]
        running = over_a_set(view, studio, session, figures) if view.averages else None
    return Tab(figures, lambda state, soon=False: figures_of(view, studio, state, soon), running)


__all__ = ["Tab", "tab"]
