"""The frame that every view gets: two lines (why; what to do), the figure, the definition in a drawer."""

from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr

from vitviz.ui.memory.studio import Studio
from vitviz.ui.page.components import Canvas
from vitviz.ui.page.figures import figures_of
from vitviz.ui.words import say
from vitviz.views import GROUPS, View

GROUPED = {"groups": [[group, [view.slug for view in views]] for group, views in GROUPS.items()]}
LATEX = [{"left": "$", "right": "$", "display": False}]
FORMULAS = {"latex_delimiters": LATEX, "elem_classes": "vitviz-formulas"}


@dataclass(frozen=True)
class Tab:
    """The components of a view that change with picture or checkpoint, and their values for a session."""

    drawn: list[gr.components.Component]
    draw: Callable[..., list]  # of a state, and whether only what waits for no pass is asked for


def style() -> str:
    """Of the tabs only those stand in their row that are of one group with the chosen one."""
    rules = []
    for _, slugs in GROUPED["groups"]:
        own = [f"#vitviz-tab-{slug}-button" for slug in slugs]
        chosen = ", ".join(f"[data-tab='{slug}']" for slug in slugs)
        rules.append(f":root:not({chosen}) :is({', '.join(own)}) {{ display: none }}")
    return "\n".join(rules)


def tab(view: View, studio: Studio) -> Tab:
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
    return Tab(figures, lambda state, soon=False: figures_of(view, studio, state, soon))
