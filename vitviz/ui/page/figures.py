"""What a view's figure gets from Python: a small value, from which its script fetches the rest."""

from __future__ import annotations

from typing import Any

import gradio as gr

from vitviz.sentence import travelling
from vitviz.ui.serving.spoken import told_of
from vitviz.ui.serving.studio import Studio
from vitviz.ui.words import told
from vitviz.views import Needs, Subject, View, described
from vitviz.views.described import declared

AWAITED = told("This view is drawn from the whole pass, which is being computed.")


def figures_of(view: View, studio: Studio, state: dict, soon: bool = False) -> list:
    """The figure of the first checkpoint, and of the one beside it if there is one; that follows the first
    one's settings.

    `soon` asks for what can stand there before a pass, and waits for none.
    """
    survey = state.get("surveys", {}).get(view.slug)
    key = survey if studio.survey(survey) is not None else state["key"]
    key, second = studio.both(key)
    second = second or (state.get("second_key") if key != survey else None)
    if not second:
        return [value(studio, key, view, soon), gr.update(visible=False)]
    keys = (
        [studio.pair(key, second), studio.pair(second, key)] if view.paired or view.sided else [key, second]
    )
    first, beside = (value(studio, one, view, soon) for one in keys)
    pair = [{**one, "heading": one["checkpoint"]} for one in (first, {**beside, "second": True})]
    return [pair[0], gr.update(visible=True, value=pair[1])]


def value(studio: Studio, key: str, view: View, soon: bool = False) -> dict[str, Any]:
    """A figure's value. What cannot be shown is a sentence; a view that fails takes no other away."""
    subject = studio.before(key) if soon else studio.subject(key)
    frame = _framed(studio, key, view.slug, subject)
    try:
        if subject.awaited and not view.soon:
            return {**frame, "message": travelling(AWAITED), "awaited": True}
        reason = view.refused(subject)
        if reason:
            return {**frame, "message": travelling(reason)}
        return {
            **frame,
            **_declared(view, subject),
            "printable": view.printable,
            "files": [[file.name, file.label] for file in view.files],
            "summary": studio.summary(key, view),
        }
    except Exception as error:
        return {**frame, "message": told_of(error, f"The view {view.slug}")}


def framed(studio: Studio, key: str, slug: str) -> dict[str, Any]:
    """What every figure is told of the model and the picture; it waits for no pass."""
    return _framed(studio, key, slug, studio.before(key))


def _framed(studio: Studio, key: str, slug: str, subject: Subject) -> dict[str, Any]:
    upload = "" if studio.survey(key) is not None else studio.run(key).picture
    return {"key": key, "scene": studio.scene(key), "upload": upload, **described.framed(subject, slug)}


def _declared(view: View, subject: Subject) -> dict[str, Any]:
    """Its settings and items; before a pass only the items that the weights alone make."""
    found = declared(view, subject.about)
    return {**found, "items": {}} if subject.awaited and view.needs is not Needs.WEIGHTS else found


__all__ = ["figures_of", "framed", "value"]
