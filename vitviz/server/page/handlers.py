"""Event handlers of the page. Each returns a list of values for `outputs`, in order."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import gradio as gr

from vitviz.errors import ImageError, VitvizError
from vitviz.server.api import lessons, links
from vitviz.server.i18n import language_of, translate
from vitviz.server.page import assumed
from vitviz.server.page.components import event_data
from vitviz.server.page.page_renderer import OWN, WHOLE, PageRenderer, download_progress, link_settings
from vitviz.server.security import uploads
from vitviz.server.services.images import PUT_AWAY
from vitviz.traces import samples
from vitviz.traces.classes import ENDINGS
from vitviz.traces.image_edits import ImageEdits
from vitviz.traces.localized_text import text_to_json
from vitviz.traces.text_classes import plain_name, with_text

FIRST_SAMPLE = "coffee"  # a class of the shipped checkpoint
AWAY = "Your image is no longer on the server, so a sample is shown instead. Upload it again."
NO_SAMPLE = "The address names no known sample image, so another image is shown, with nothing removed."


class Handlers:
    """The page's listeners; `page` renders the changes."""

    def __init__(self, page: PageRenderer):
        self.page, self.service = page, page.service
        place, left = page.outputs.index, page.left
        self._notice, self._film, self._link = place(left.notice), place(left.film), place(page.link)

    def first(self, state: dict, kept: dict, request: gr.Request, progress=gr.Progress()) -> list:
        """Open the page that the address asks for; without its checkpoint, the default page and the reason.

        `kept` is stored in the browser's history of a reloaded page: its `picture`, the `strokes` over it,
        the key of its `set`, and the keys of its `averages` over a set. Returns `outputs`, then the choices
        of both pickers, the lessons, and the tab.
        """
        kept = kept if isinstance(kept, dict) else {}
        painted = {"strokes": kept["strokes"]} if isinstance(kept.get("strokes"), str) else {}
        asked = links.parse_link({**request.query_params, **painted})
        begun = {**self.service.sessions.with_session(state), "language": language_of(request)}
        plain = {**begun, "set": str(kept.get("set") or "")}
        state = {**plain, **link_settings(asked)}
        unknown = not asked.sample and bool(request.query_params.get("sample"))
        if unknown:  # what was removed belongs to another image
            state["without"] = ""
        sample, default = asked.sample or FIRST_SAMPLE, self.service.settings.checkpoint
        own = "" if asked.sample else str(kept.get("picture") or "")
        gone = bool(own) and not self.service.pictures.has(own)

        def show(state: dict, checkpoint: str, report=None) -> list:
            if own and not gone:
                page = self.page.show({**state, "sample": None}, own, checkpoint, report)
            else:
                state = {**state, "strokes": ""} if gone else state
                page = self.page.sample(state, sample, checkpoint, report)
            return self.page.averaged(page, kept.get("averages"))

        report = download_progress(progress, asked.checkpoint, plain)
        page = self.page.attempt(state, lambda state: show(state, asked.checkpoint or default, report))
        refused = page[self._notice]
        if refused["text"]:
            page = self.page.attempt(plain, lambda state: show(state, default))
            page[self._notice] = refused
        elif gone:
            page[self._notice] = text_to_json(AWAY)
        elif unknown:
            page[self._notice] = text_to_json(NO_SAMPLE)
        choices = self.service.checkpoints.choices()
        nothing = (translate("none", state["language"]), "")
        tab = gr.Tabs(selected=asked.tab) if asked.tab else gr.skip()
        pickers = [gr.update(choices=choices), gr.update(choices=[nothing, *choices])]
        return [*page, *pickers, {"offered": self.page.offered()}, tab]

    def computed(self, state: dict) -> list:
        """Render the page after its pass, or after an error the last page; change nothing if outdated."""
        key = self.service.sessions.newest(state).get("key")

        def unless_gone_on(make: Callable[[dict], list]) -> Callable[[dict], list]:
            def make_page(now: dict) -> list:
                waits = now.get("awaited") and now["key"] == key
                return make(now) if waits else [now, *self.page.unchanged(-1)]

            return make_page

        page = self.page.attempt(state, unless_gone_on(lambda now: self.page.page({**now, **WHOLE})))
        if page[0] != gr.skip():
            return page
        said, page = page[self._notice], self.page.attempt(state, unless_gone_on(self.page.roll_back))
        if page[self._notice] != gr.skip():
            page[self._notice] = said
        return page

    def upload(self, state: dict, path: str | None) -> list:
        """Show an uploaded image. Besides `outputs`: the emptied upload."""
        if path is None:
            return self.page.unchanged(1)

        def show(state: dict) -> list:
            picture = self.service.pictures.add_upload(path)
            new = {**state, "sample": None, "strokes": ""}
            return self.page.show(new, picture, self.page.checkpoint(state))

        return [*self.page.attempt(state, show), None]

    def sample(self, state: dict, event: gr.EventData) -> list:
        """Show a sample."""
        name = _text_field(event, "name")
        if name not in [sample.name for sample in samples.samples()]:
            return self.page.unchanged()

        def show(now: dict) -> list:
            return self.page.sample({**now, "strokes": ""}, name, self.page.checkpoint(now))

        return self.page.attempt(state, show)

    def switch(self, state: dict, checkpoint: str, progress=gr.Progress()) -> list:
        """Switch to another checkpoint."""
        name = self.service.checkpoints.named(str(checkpoint).strip())
        state = self.service.sessions.newest(state)
        report = download_progress(progress, name, state)
        if not state.get("picture"):
            return self.page.attempt(state, lambda state: self.page.sample(state, FIRST_SAMPLE, name, report))
        return self.page.attempt(state, lambda state: self.page.show(state, state["picture"], name, report))

    def frame(self, state: dict, event: gr.EventData) -> list:
        """Switch to another training snapshot; the result carries the request's ticket."""
        name, ticket = _text_field(event, "name"), event_data(event).get("ticket")

        def look(state: dict) -> list:
            film = self.page.checkpoint(state).partition("@")[0]
            if not state.get("key") or name is None or name.partition("@")[0] != film:
                return [state, *self.page.unchanged(-1)]  # the history is not, or no longer, in view
            # playback never hides the page
            kept = {"soon": False, "explained": self.page.explained(state)}
            return self.page.show(state, state["picture"], name, **kept)

        page = self.page.attempt(state, look)
        if page[self._film] != gr.skip():
            page[self._film] = {**page[self._film], "ticket": ticket}
        return page

    def beside(self, state: dict, second: str | None, progress=gr.Progress()) -> list:
        """Show a second checkpoint beside the first, or none."""
        name = self.service.checkpoints.named(str(second or "").strip())
        return self.page.again(state, {"second": name}, download_progress(progress, name, state))

    def pair(self, state: dict, pair: str | None, progress=gr.Progress()) -> list:
        """Show a suggested pair of checkpoints."""
        first, _, second = str(pair or "").partition("|")
        if not second:
            return self.page.unchanged()
        report = download_progress(progress, first, self.service.sessions.newest(state))
        return self.page.again(state, {"second": second}, report, lambda name: first)

    def compare(self, state: dict, event: gr.EventData, progress=gr.Progress()) -> list:
        """Show a pair chosen by the button under the picker; an empty pair ends the comparison."""
        pair = _text_field(event, "pair")
        return self.pair(state, pair, progress) if pair else self.page.again(state, {"second": ""})

    def take_away(self, state: dict, event: gr.EventData) -> list:
        """Ablate or restore heads, MLPs or patches in every view."""
        text = _text_field(event, "text")
        known = text is not None and len(text) <= 4_000
        return self.page.again(state, {"without": text}) if known else self.page.unchanged()

    def retouch(self, state: dict, event: gr.EventData) -> list:
        """Replace the edits of the image."""
        text = _text_field(event, "strokes")
        return self.page.unchanged() if text is None else self.page.again(state, {"strokes": text})

    def assume(self, state: dict, event: gr.EventData) -> list:
        """Set values that the checkpoint's file does not state; an empty text clears them."""
        text = _text_field(event, "said")
        if text is None:
            return self.page.unchanged()
        return self.page.again(state, {}, named=lambda name: assumed.name_with(name, text))

    def save_settings(self, state: dict, event: gr.EventData) -> list:
        """Write the settings and the given class names to a config beside the checkpoint's weights."""
        save = partial(assumed.save_settings, self.service, names=_text_field(event, "labels") or "")
        return self.page.again(state, {}, named=save)

    def ask(self, state: dict, event: gr.EventData, progress=gr.Progress()) -> list:
        """Use sentences with templates as classes; none restores the checkpoint's own classes."""
        given = [event_data(event).get(name) for name in ("sentences", "templates")]
        if not all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in given):
            return self.page.unchanged()
        each = [list(dict.fromkeys(one)) for one in given]
        state = self.service.sessions.newest(state)
        report = download_progress(progress, plain_name(self.page.checkpoint(state)), state)
        return self.page.again(state, {}, report, lambda name: with_text(name, *each))

    def answers(self, state: dict):
        """Return the form of assumed values with each choice's prediction; on failure, no change."""
        state = self.service.sessions.newest(state)
        try:
            form = assumed.form_with_predictions(self.service, state)
        except (VitvizError, KeyError):
            return gr.skip()
        newest = self.service.sessions.newest(state)
        if any(newest.get(name) != state.get(name) for name in ("key", "second")):
            return gr.skip()  # the form would request predictions that have arrived meanwhile
        return form

    def resize(self, state: dict, size: str | None) -> list:
        """Change the size of the model's input."""
        return self.page.again(state, {"size": str(size or OWN)})

    def seen(self, state: dict, event: gr.EventData) -> list:
        """Restore an earlier state of this page; the result carries ticket and refusal."""
        data = event_data(event)
        seen = links.parse_link(data)

        def make(state: dict) -> list:
            picture = self.service.pictures.sample(seen.sample) if seen.sample else str(data.get("picture"))
            own = ImageEdits.parse(seen.strokes or "").own
            # traces may still be cached without their image
            if not all(map(self.service.pictures.has, filter(None, (picture, own)))):
                raise ImageError(PUT_AWAY)
            return self._moment(state, seen, picture)

        page = self.page.attempt(state, make)
        refused = page[0] == gr.skip()
        now = self.service.sessions.newest(state) if refused else page[0]
        if now.get("key"):
            page[self._link] = {**links.link_state(now), "ticket": data.get("ticket"), "refused": refused}
        return page

    def lesson(self, state: dict, path: str | None, progress=gr.Progress()) -> list:
        """Open a zip or a file of vectors. Returns `outputs`, lessons, tab, and the emptied file."""
        called, named = Path(str(path)).name, self.service.checkpoints.vectors.name_with
        if called.lower().endswith(ENDINGS):
            page = self.page.again(state, {}, named=lambda one: named(one, uploads.read_upload(path), called))
            return [*page, gr.skip(), gr.skip(), None]
        return self._restore_lesson(state, lambda: lessons.read_lesson(uploads.read_upload(path)), progress)

    def learn(self, state: dict, event: gr.EventData, progress=gr.Progress()) -> list:
        """Open a lesson of the server by its name."""
        folder, name = self.service.settings.lessons, _text_field(event, "name")
        return self._restore_lesson(state, lambda: lessons.open_lesson(folder, name), progress)

    def _restore_lesson(
        self, state: dict, open_lesson: Callable[[], lessons.Lesson], progress: gr.Progress
    ) -> list:
        """Render the page for the lesson that `open_lesson()` returns; if refused, change nothing.

        Return `outputs`, the lessons panel, the tab, and None to empty the file input.
        """
        pictures, vectors, restored = self.service.pictures, self.service.checkpoints.vectors, []

        def make(state: dict) -> list:
            lesson = open_lesson()
            seen = lesson.seen
            picture = pictures.sample(seen.sample) if seen.sample else pictures.keep_bytes(lesson.picture)
            if lesson.other:
                own = pictures.keep_bytes(lesson.other)
                seen = replace(seen, strokes=(seen.strokes or "").replace("onto.other_", f"onto.{own}_"))
            if lesson.vectors:
                vectors.name_with("", lesson.vectors, lessons.VECTORS)
            report = download_progress(progress, seen.checkpoint or "", state)
            page = self._moment(state, seen, picture, report)
            names = filter(None, (page[0]["checkpoint"], page[0].get("second")))
            outdated = map(lesson.outdated, map(self.service.checkpoints.inspector, names))
            restored[:] = [lesson, next(filter(None, outdated), None)]
            return page

        page = self.page.attempt(state, make)
        if page[0] == gr.skip():  # refused: the page is unchanged
            return [*page, gr.skip(), gr.skip(), None]
        (lesson, outdated), now = restored, page[0]
        if outdated:
            page[self._notice] = text_to_json(outdated)
        page[self._link] = {**page[self._link], "tab": lesson.seen.tab}
        shown = {name: now[name] for name in ("scene", "checkpoint")}
        taken = {"settings": lesson.settings, "number": now["version"], **shown}
        tab = gr.Tabs(selected=lesson.seen.tab) if lesson.seen.tab else gr.skip()
        return [*page, {"offered": self.page.offered(), "taken": taken}, tab, None]

    def _moment(self, state: dict, link: links.Link, picture: str, report=None) -> list:
        """Render the page for an image with the checkpoints, size and edits of a link."""
        first = link.checkpoint or self.page.checkpoint(state)
        wanted = {**link_settings(link), "sample": link.sample, "checkpoint": first}
        return self.page.show({**state, **wanted}, picture, first, report)


def _text_field(event: gr.EventData, name: str) -> str | None:
    """Return the text field `name` of an event's data; None if it is missing or no text."""
    text = event_data(event).get(name)
    return text if isinstance(text, str) else None
