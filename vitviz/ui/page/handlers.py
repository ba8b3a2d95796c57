"""What happens when something is done on the page: every answer is a list of values for `outputs`, in their
order.
"""

from __future__ import annotations

import gradio as gr

from vitviz import samples
from vitviz.errors import VitvizError
from vitviz.sentence import travelling
from vitviz.ui.page import assumed, sizes
from vitviz.ui.page.restored import Restored
from vitviz.ui.page.shown import asked_for, language_of, reported
from vitviz.ui.serving import links
from vitviz.ui.words import translated, wanted

FIRST_SAMPLE = "coffee"  # one of the classes that the shipped checkpoint knows
AWAY = "Your photograph is no longer on the server, so a sample stands in its place. Drop it in once more."


PAIRS = (  # what one can learn from two checkpoints on the same picture
    ("Before and after training (on disk)", "vitviz-tiny@0|vitviz-tiny"),
    (
        "Trained on 1,000 or on 21,000 classes",
        "vit_base_patch16_224.augreg_in1k|vit_base_patch16_224.augreg_in21k",
    ),
    ("With labels or without (DINO)", "vit_base_patch16_224.augreg_in1k|vit_base_patch16_224.dino"),
    ("Without and with registers", "vit_base_patch14_dinov2.lvd142m|vit_base_patch14_reg4_dinov2.lvd142m"),
)


class Handlers(Restored):
    """The page's own listeners over one studio."""

    def first(self, state: dict, kept: dict, request: gr.Request, progress=gr.Progress()) -> list:
        """What the address asks for; where its checkpoint cannot be had, the first one, and the reason.

        `kept` is what the browser's history has of a page that is loaded again: its `picture`, and the keys
        of its `averages` over a set. Besides `outputs`: the choices of both pickers, the lessons, the tab.
        """
        asked = links.read(request.query_params)
        plain = {**self._studio.sessions.begun(state), "language": wanted(request)}
        state = {**plain, **asked_for(asked)}
        sample, default, notice = (
            asked.sample or FIRST_SAMPLE,
            self._studio.settings.checkpoint,
            self.outputs.index(self._left.notice),
        )
        kept = kept if isinstance(kept, dict) else {}
        own = "" if asked.sample else str(kept.get("picture") or "")
        gone = bool(own) and not self._studio.has_picture(own)

        def shown(state: dict, checkpoint: str, report=None) -> list:
            if own and not gone:
                page = self._show({**state, "sample": None}, own, checkpoint, report)
            else:
                page = self._sample(state, sample, checkpoint, report)
            return self._averaged(page, kept.get("averages"))

        report = reported(progress, asked.checkpoint, plain)
        page = self._attempt(state, lambda state: shown(state, asked.checkpoint or default, report))
        refused = page[notice]
        if refused["text"]:
            page = self._attempt(plain, lambda state: shown(state, default))
            page[notice] = refused
        elif gone:
            page[notice] = travelling(AWAY)
        choices = self._studio.choices()
        nothing = (translated("none", language_of(state)), "")
        tab = gr.Tabs(selected=asked.tab) if asked.tab else gr.skip()
        pickers = [gr.update(choices=choices), gr.update(choices=[nothing, *choices])]
        return [*page, *pickers, {"offered": self.offered()}, tab]

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

    def switch(self, state: dict, checkpoint: str, progress=gr.Progress()) -> list:
        """Another checkpoint."""
        name, state = str(checkpoint).strip(), self._studio.sessions.newest(state)
        report = reported(progress, name, state)
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
            return self._show(state, state["picture"], name, soon=False)  # one that plays covers nothing

        page, film = self._attempt(state, seen), self.outputs.index(self._left.film)
        if page[film] != gr.skip():
            page[film] = {**page[film], "ticket": ticket}
        return page

    def beside(self, state: dict, second: str | None, progress=gr.Progress()) -> list:
        """A second checkpoint beside the first, or none."""
        name = str(second or "").strip()
        return self._again(state, {"second": name}, reported(progress, name, state))

    def pair(self, state: dict, pair: str | None, progress=gr.Progress()) -> list:
        """Two checkpoints that teach something side by side."""
        first, _, second = str(pair or "").partition("|")
        state = self._studio.sessions.newest(state)
        if not second or not state.get("picture"):
            return [gr.skip()] * len(self.outputs)
        return self._attempt(
            state,
            lambda state: self._show(
                {**state, "second": second}, state["picture"], first, reported(progress, first, state)
            ),
        )

    def compare(self, state: dict, event: gr.EventData, progress=gr.Progress()) -> list:
        """The same by the button under the picker; an empty pair ends the comparison."""
        pair = event._data.get("pair") if isinstance(event._data, dict) else None
        named = isinstance(pair, str) and pair
        return self.pair(state, pair, progress) if named else self._again(state, {"second": ""})

    def take_away(self, state: dict, event: gr.EventData) -> list:
        """Heads, MLPs or patches taken away, or put back: every view shows what the model then does."""
        text = event._data.get("text") if isinstance(event._data, dict) else None  # perhaps anything
        if not isinstance(text, str) or len(text) > 4_000:
            return [gr.skip()] * len(self.outputs)
        return self._again(state, {"without": text})

    def assume(self, state: dict, event: gr.EventData) -> list:
        """Something is said of the checkpoint that its file does not say; nothing, to be asked again."""
        text = event._data.get("said") if isinstance(event._data, dict) else None
        state = self._studio.sessions.newest(state)
        if not state.get("picture") or not isinstance(text, str):
            return [gr.skip()] * len(self.outputs)
        return self._attempt(
            state,
            lambda state: self._show(
                state, state["picture"], assumed.name_with(self._checkpoint(state), text)
            ),
        )

    def keep(self, state: dict, event: gr.EventData) -> list:
        """What was said is kept beside the file, with the names of the classes, one a line."""
        names = event._data.get("labels") if isinstance(event._data, dict) else None
        names = names if isinstance(names, str) else ""
        state = self._studio.sessions.newest(state)
        if not state.get("picture"):
            return [gr.skip()] * len(self.outputs)
        return self._attempt(
            state,
            lambda state: self._show(
                state, state["picture"], assumed.keep(self._studio, self._checkpoint(state), names)
            ),
        )

    def answers(self, state: dict):
        """What each choice would answer to the picture in view; where that cannot be, the form stays."""
        state = self._studio.sessions.newest(state)
        try:
            form = assumed.answered(self._studio, state)
        except (VitvizError, KeyError):
            return gr.skip()
        newest = self._studio.sessions.newest(state)
        if any(newest.get(name) != state.get(name) for name in ("key", "second")):
            return gr.skip()  # this form would ask once more what has been answered meanwhile
        return form

    def resize(self, state: dict, size: str | None) -> list:
        """Another size of the model's input."""
        return self._again(state, {"size": str(size or sizes.OWN)})
