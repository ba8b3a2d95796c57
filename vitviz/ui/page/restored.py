"""What was seen before is seen again: a lesson that is opened, a moment that the browser's Back leads to."""

from __future__ import annotations

from collections.abc import Callable

import gradio as gr

from vitviz.errors import ImageError
from vitviz.ui.page.shown import Shown, asked_for, reported
from vitviz.ui.serving import lessons, links, uploads
from vitviz.ui.serving.pictures import PUT_AWAY


class Restored(Shown):
    """The listeners that bring back picture, checkpoints, size and edits at once."""

    def seen(self, state: dict, event: gr.EventData) -> list:
        """An earlier moment of this page; the answer carries the question's ticket, and whether it was
        refused.
        """
        data = event._data if isinstance(event._data, dict) else {}  # out of the page, so perhaps anything
        seen = links.read({name: text for name, text in data.items() if isinstance(text, str)})

        def make(state: dict) -> list:
            picture = self._studio.keep_sample(seen.sample) if seen.sample else str(data.get("picture"))
            if not self._studio.has_picture(picture):  # though some of what was made of it may be there
                raise ImageError(PUT_AWAY)
            return self._moment(state, seen, picture)

        page = self._attempt(state, make)
        refused = page[0] == gr.skip()
        now = self._studio.sessions.newest(state) if refused else page[0]
        if now.get("key"):
            told = {**links.shown(now), "ticket": data.get("ticket"), "refused": refused}
            page[self.outputs.index(self._link)] = told
        return page

    def lesson(self, state: dict, path: str | None, progress=gr.Progress()) -> list:
        """A zip that was dropped onto the page. Besides `outputs`: the part of the lessons, the tab, and the
        zip, emptied for the next; so with `learn`.
        """
        return self._taught(state, lambda: lessons.read(uploads.read(path)), progress)

    def learn(self, state: dict, event: gr.EventData, progress=gr.Progress()) -> list:
        """One that lies beside the app, by the name under which it is offered."""
        data = event._data if isinstance(event._data, dict) else {}  # out of the page, so perhaps anything
        folder = self._studio.settings.lessons
        return self._taught(state, lambda: lessons.opened(folder, data.get("name")), progress)

    def offered(self) -> list[str]:
        """The names of the lessons that this site has."""
        return list(lessons.offered(self._studio.settings.lessons))

    def _taught(self, state: dict, found: Callable[[], lessons.Lesson], progress: gr.Progress) -> list:
        studio, restored = self._studio, []

        def make(state: dict) -> list:
            lesson = found()
            seen = lesson.seen
            picture = studio.keep_sample(seen.sample) if seen.sample else studio.keep_bytes(lesson.picture)
            page = self._moment(state, seen, picture, reported(progress, seen.checkpoint or "", state))
            restored[:] = [lesson]
            return page

        page = self._attempt(state, make)
        if page[0] == gr.skip():  # refused: all stays as it was
            return [*page, gr.skip(), gr.skip(), None]
        (lesson,), now = restored, page[0]
        at = self.outputs.index(self._link)
        page[at] = {**page[at], "tab": lesson.seen.tab}
        shown = {name: now[name] for name in ("scene", "checkpoint")}
        taken = {"settings": lesson.settings, "number": now["version"], **shown}
        tab = gr.Tabs(selected=lesson.seen.tab) if lesson.seen.tab else gr.skip()
        return [*page, {"offered": self.offered(), "taken": taken}, tab, None]

    def _moment(self, state: dict, seen: links.Link, picture: str, report=None) -> list:
        """A picture with the checkpoints, the size and the edits that a link names."""
        first = seen.checkpoint or self._checkpoint(state)
        wanted = {**asked_for(seen), "sample": seen.sample, "checkpoint": first}
        return self._show({**state, **wanted}, picture, first, report)


__all__ = ["Restored"]
