"""What happens when something is done on the page: every answer is a list of values for `outputs`, in their
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr

from vitviz import samples
from vitviz.runs import Without
from vitviz.ui.page import edits, facts, sizes
from vitviz.ui.page.canvas import Canvas, Part
from vitviz.ui.page.figures import framed
from vitviz.ui.page.tabs import Tab
from vitviz.ui.page.widgets import Upload
from vitviz.ui.serving import links
from vitviz.ui.serving.spoken import told_of
from vitviz.ui.serving.studio import Studio
from vitviz.ui.serving.visitor import require_visitor
from vitviz.ui.words import translated, wanted

FIRST_SAMPLE = "coffee"  # one of the classes that the shipped checkpoint knows


PAIRS = (  # what one can learn from two checkpoints on the same picture
    ("Before and after training (on disk)", "vitviz-tiny@0|vitviz-tiny"),
    (
        "Trained on 1,000 or on 21,000 classes",
        "vit_base_patch16_224.augreg_in1k|vit_base_patch16_224.augreg_in21k",
    ),
    ("With labels or without (DINO)", "vit_base_patch16_224.augreg_in1k|vit_base_patch16_224.dino"),
    ("Without and with registers", "vit_base_patch14_dinov2.lvd142m|vit_base_patch14_reg4_dinov2.lvd142m"),
)


@dataclass
class Left:
    """The components beside the views."""

    stage: Canvas
    upload: Upload
    gallery: gr.Gallery
    picker: gr.Dropdown
    second: gr.Dropdown
    pairs: gr.Dropdown
    size: gr.Dropdown
    notice: Part
    film: Part
    facts: Part
    second_facts: Part
    edits: Part


class Handlers:
    """The page's own listeners over one studio. A session is a small dict: keys, names and the chart's
    settings.
    """

    def __init__(self, studio: Studio, session: gr.State, left: Left, link: Part, views: list[Tab]):
        self._studio, self._left, self._views = studio, left, views
        drawn = [component for view in views for component in view.drawn]
        picked = [left.picker, left.second, left.size]
        self.outputs = [
            session,
            *picked,
            left.notice,
            left.film,
            link,
            left.stage,
            left.facts,
            left.second_facts,
            left.edits,
            *drawn,
        ]

    def first(self, state: dict, request: gr.Request, progress=gr.Progress()) -> list:  # noqa: B008, how Gradio wants it
        """What the address asks for; where its checkpoint cannot be had, the first one, and the reason.

        Besides `outputs`: the choices of both pickers, and the tab.
        """
        asked = links.read(request.query_params)
        plain = {**self._studio.sessions.begun(state), "language": wanted(request)}
        state = {
            **plain,
            "second": asked.second or "",
            "size": asked.size or sizes.OWN,
            "without": asked.without or "",
        }
        sample, default, notice = (
            asked.sample or FIRST_SAMPLE,
            self._studio.settings.checkpoint,
            self.outputs.index(self._left.notice),
        )
        page = self._attempt(
            state,
            lambda state: self._sample(
                state, sample, asked.checkpoint or default, _report(progress, asked.checkpoint, plain)
            ),
        )
        refused = page[notice]
        if refused["text"]:
            page = self._attempt(plain, lambda state: self._sample(state, sample, default))
            page[notice] = refused
        choices = self._studio.choices()
        nothing = (translated("none", _language(state)), "")
        tab = gr.Tabs(selected=asked.tab) if asked.tab else gr.skip()
        return [*page, gr.update(choices=choices), gr.update(choices=[nothing, *choices]), tab]

    def upload(self, state: dict, path: str | None) -> list:
        """One's own picture. Besides `outputs`: the upload, emptied for the next."""
        if path is None:
            return [gr.skip()] * (len(self.outputs) + 1)
        return [
            *self._attempt(
                state,
                lambda state: self._show(
                    {**state, "sample": None}, self._studio.keep_picture(path), self._checkpoint(state)
                ),
            ),
            None,
        ]

    def sample(self, state: dict, event: gr.SelectData) -> list:
        """A sample out of the gallery."""
        known, index = samples.samples(), event.index  # out of the page, so perhaps anything
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(known):
            return [gr.skip()] * len(self.outputs)
        name = known[index].name
        return self._attempt(state, lambda state: self._sample(state, name, self._checkpoint(state)))

    def switch(self, state: dict, checkpoint: str, progress=gr.Progress()) -> list:  # noqa: B008, how Gradio wants it
        """Another checkpoint."""
        name, state = str(checkpoint).strip(), self._studio.sessions.newest(state)
        report = _report(progress, name, state)
        if not state.get("picture"):
            return self._attempt(state, lambda state: self._sample(state, FIRST_SAMPLE, name, report))
        return self._attempt(state, lambda state: self._show(state, state["picture"], name, report))

    def frame(self, state: dict, event: gr.EventData) -> list:
        """Another moment of the training that the checkpoint comes from; the answer carries the question's
        ticket.
        """
        data = event._data if isinstance(event._data, dict) else {}  # out of the page, so perhaps anything
        name, ticket = (data.get(key) for key in ("name", "ticket"))

        def seen(state: dict) -> list:
            if (
                not state.get("key")
                or not isinstance(name, str)
                or name.partition("@")[0] != self._checkpoint(state).partition("@")[0]
            ):
                return [
                    state,
                    *[gr.skip()] * (len(self.outputs) - 1),
                ]  # of a film that is not, or no longer, in view
            return self._show(state, state["picture"], name)

        page, film = self._attempt(state, seen), self.outputs.index(self._left.film)
        if page[film] != gr.skip():
            page[film] = {**page[film], "ticket": ticket}
        return page

    def beside(self, state: dict, second: str | None, progress=gr.Progress()) -> list:  # noqa: B008, how Gradio wants it
        """A second checkpoint beside the first, or none."""
        name = str(second or "").strip()
        return self._again(state, {"second": name}, _report(progress, name, state))

    def pair(self, state: dict, pair: str | None, progress=gr.Progress()) -> list:  # noqa: B008, how Gradio wants it
        """Two checkpoints that teach something side by side."""
        first, _, second = str(pair or "").partition("|")
        state = self._studio.sessions.newest(state)
        if not second or not state.get("picture"):
            return [gr.skip()] * len(self.outputs)
        return self._attempt(
            state,
            lambda state: self._show(
                {**state, "second": second}, state["picture"], first, _report(progress, first, state)
            ),
        )

    def take_away(self, state: dict, event: gr.EventData) -> list:
        """Heads, MLPs or patches taken away, or put back: every view shows what the model then does."""
        text = event._data.get("text")  # out of the page, so perhaps anything
        return self._again(state, {"without": text if isinstance(text, str) and len(text) <= 4_000 else ""})

    def resize(self, state: dict, size: str | None) -> list:
        """Another size of the model's input."""
        return self._again(state, {"size": str(size or sizes.OWN)})

    def _again(self, state: dict, change: dict, report=None) -> list:
        """The same picture and checkpoint with something else changed."""
        state = self._studio.sessions.newest(state)
        if not state.get("picture"):
            return [gr.skip()] * len(self.outputs)
        return self._attempt(
            state,
            lambda state: self._show({**state, **change}, state["picture"], self._checkpoint(state), report),
        )

    def _checkpoint(self, state: dict) -> str:
        return state.get("checkpoint", self._studio.settings.checkpoint)

    def _show(self, state: dict, picture: str, checkpoint: str, progress=None) -> list:
        """Everything on the page for one picture and checkpoint, and the one beside it if there is one."""
        studio, second = self._studio, state.get("second", "")
        if checkpoint != state.get("checkpoint", checkpoint):  # another model has other heads
            state = {**state, "without": ""}
        without = Without.parse(state.get("without", ""))
        untouched = self._look(state, picture, checkpoint, progress)
        key = self._look(state, picture, checkpoint, progress, without=without) if without else untouched
        second_key = self._look(state, picture, second, progress) if second else ""
        subject = studio.subject(key)
        state = {**state, "picture": picture, "checkpoint": checkpoint, "key": key, "second_key": second_key}
        state["surveys"] = {}
        stage = framed(studio, key, "picture")
        offered = sizes.choices(subject.inspector, _language(state), studio.settings.limits.tokens)
        size = gr.update(choices=offered, value=state.get("size", sizes.OWN))
        beside = facts.answer(studio.subject(second_key)) if second else {}
        answer = facts.answer(subject)
        if without:
            answer["before"] = facts.answer(studio.subject(untouched))["top"]
        answers = [value for view in self._views for value in view.draw(state)]
        return [
            state,
            checkpoint,
            second or None,
            size,
            {"text": ""},
            studio.film(checkpoint),
            links.shown(state),
            stage,
            answer,
            beside,
            edits.shown(without, subject),
            *answers,
        ]

    def _look(self, state: dict, picture: str, checkpoint: str, progress=None, **changes) -> str:
        """The key of a picture seen by a checkpoint at the size that the session asks for."""
        asked = state.get("size", sizes.OWN)
        inspector = self._studio.inspector(checkpoint, progress)
        upload = self._studio.picture(picture).size if asked == sizes.SHAPE else (0, 0)
        return self._studio.look(picture, checkpoint, sizes.pixels(asked, inspector, upload), **changes)

    def _sample(self, state: dict, name: str, checkpoint: str, progress=None) -> list:
        return self._show({**state, "sample": name}, self._studio.keep_sample(name), checkpoint, progress)

    def _attempt(self, state: dict, make: Callable[[dict], list]) -> list:
        """What `make` gives of the newest state; when it cannot, a sentence where the action was, and
        everything else as it was.
        """
        try:
            return self._studio.sessions.settled(state, make)
        except Exception as error:
            state = self._studio.sessions.newest(state)
            kept = [self._checkpoint(state), state.get("second") or None, state.get("size", sizes.OWN)]
            return [
                gr.skip(),
                *kept,
                told_of(error),
                self._film(state),
                *[gr.skip()] * (len(self.outputs) - 6),
            ]

    def _film(self, state: dict) -> dict:
        """The slider where it was, for a frame that could not be had."""
        try:
            return self._studio.film(self._checkpoint(state)) if state.get("key") else {}
        except Exception:  # whatever it was, it has been told
            return {}


def _report(progress: gr.Progress, checkpoint: str | None, state: dict) -> Callable[[int, int], None]:
    """Tells the page how much of a checkpoint has been downloaded; ends the download, by raising, when nobody
    waits for it.
    """
    told = translated("Downloading {checkpoint}", _language(state), checkpoint=checkpoint or "")

    def report(done: int, total: int) -> None:
        require_visitor()
        progress((done, total), desc=told, unit="bytes")

    return report


def _language(state: dict) -> str:
    return state.get("language", "en")
