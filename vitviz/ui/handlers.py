"""What happens when something is done on the page: every answer is a list of values for `outputs`, in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr

from vitviz import samples
from vitviz.errors import VitvizError
from vitviz.panels import PANELS
from vitviz.ui import facts, links
from vitviz.ui.canvas import Canvas, Part
from vitviz.ui.studio import Studio
from vitviz.ui.tabs import Tab
from vitviz.ui.widgets import Upload

FIRST_SAMPLE = "chelsea"


@dataclass
class Left:
    """The components beside the views."""

    stage: Canvas
    upload: Upload
    gallery: gr.Gallery
    picker: gr.Dropdown
    notice: Part
    facts: Part


class Handlers:
    """The page's own listeners over one studio. A session is a small dict: keys, names and the chart's settings."""

    def __init__(self, studio: Studio, session: gr.State, left: Left, link: Part, views: list[Tab]):
        self._studio, self._left, self._views = studio, left, views
        drawn = [component for view in views for component in view.drawn]
        self.outputs = [session, left.picker, left.notice, link, left.stage, left.facts, *drawn]

    def first(self, state: dict, request: gr.Request, progress=gr.Progress()) -> list:  # noqa: B008, how Gradio wants it
        """What the address asks for; where its checkpoint cannot be had, the first one, and the reason.

        Besides `outputs`: the picker's choices, and the tab.
        """
        asked = links.read(request.query_params)
        state = {**state, "distance": asked.of("distance")}
        sample, default, notice = asked.sample or FIRST_SAMPLE, self._studio.settings.checkpoint, self.outputs.index(self._left.notice)
        page = self._attempt(state, lambda: self._sample(state, sample, asked.checkpoint or default, _report(progress, asked.checkpoint)))
        refused = page[notice]
        if asked.checkpoint and refused["text"]:
            page = self._attempt(state, lambda: self._sample(state, sample, default))
            page[notice] = refused
        return [*page, gr.update(choices=self._studio.names()), gr.Tabs(selected=asked.tab) if asked.tab else gr.skip()]

    def upload(self, state: dict, path: str | None) -> list:
        """One's own picture. Besides `outputs`: the upload, emptied for the next."""
        if path is None:
            return [gr.skip()] * (len(self.outputs) + 1)
        own = {**state, "sample": None}
        return [*self._attempt(state, lambda: self._show(own, self._studio.keep_picture(path), self._checkpoint(state))), None]

    def sample(self, state: dict, event: gr.SelectData) -> list:
        """A sample out of the gallery."""
        name = samples.samples()[int(event.index)].name
        return self._attempt(state, lambda: self._sample(state, name, self._checkpoint(state)))

    def switch(self, state: dict, checkpoint: str, progress=gr.Progress()) -> list:  # noqa: B008, how Gradio wants it
        """Another checkpoint."""
        name = str(checkpoint).strip()
        report = _report(progress, name)
        if not state.get("picture"):
            return self._attempt(state, lambda: self._sample(state, FIRST_SAMPLE, name, report))
        return self._attempt(state, lambda: self._show(state, state["picture"], name, report))

    def _checkpoint(self, state: dict) -> str:
        return state.get("checkpoint", self._studio.settings.checkpoint)

    def _show(self, state: dict, picture: str, checkpoint: str, progress=None) -> list:
        """Everything on the page for one picture and checkpoint."""
        studio = self._studio
        key = studio.look(picture, checkpoint, progress=progress)
        trace = studio.subject(key).trace
        state = {**state, "picture": picture, "checkpoint": checkpoint, "key": key, "survey": None}
        stage = {**studio.value(key, PANELS[0]), "panel": "picture", "controls": [], "message": "", "summary": facts.stage(trace)}
        answers = [value for view in self._views for value in view.draw(state)]
        return [state, checkpoint, {"text": ""}, links.shown(state), stage, facts.answer(studio.subject(key)), *answers]

    def _sample(self, state: dict, name: str, checkpoint: str, progress=None) -> list:
        return self._show({**state, "sample": name}, self._studio.keep_sample(name), checkpoint, progress)

    def _attempt(self, state: dict, make: Callable[[], list]) -> list:
        """What `make` gives; when it cannot, a sentence where the action was, and everything else as it was."""
        try:
            return make()
        except VitvizError as error:
            return [gr.skip(), self._checkpoint(state), {"text": str(error)}, *[gr.skip()] * (len(self.outputs) - 3)]


def _report(progress: gr.Progress, checkpoint: str | None) -> Callable[[int, int], None]:
    """Tells the page how much of a checkpoint has been downloaded."""
    return lambda done, total: progress((done, total), desc=f"Downloading {checkpoint}", unit="bytes")
