"""What happens when a lesson is opened: a zip that was dropped in, or one that this site offers."""

from __future__ import annotations

from collections.abc import Callable

import gradio as gr

from vitviz.ui.page import sizes
from vitviz.ui.page.shown import Shown, reported
from vitviz.ui.serving import lessons, uploads


class Taught(Shown):
    """The listeners of lessons. Besides `outputs`: the part of the lessons, the tab, and the zip, emptied for
    the next.
    """

    def lesson(self, state: dict, path: str | None, progress=gr.Progress()) -> list:
        """A zip that was dropped onto the page."""
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
            wanted = {
                "checkpoint": seen.checkpoint,
                "second": seen.second or "",
                "size": seen.size or sizes.OWN,
                "without": seen.without or "",
                "sample": seen.sample,
            }
            report = reported(progress, seen.checkpoint, state)
            page = self._show({**state, **wanted}, picture, seen.checkpoint, report)
            restored[:] = [lesson]
            return page

        page = self._attempt(state, make)
        if page[0] == gr.skip():  # refused: all stays as it was
            return [*page, gr.skip(), gr.skip(), None]
        (lesson,), now = restored, page[0]
        taken = {"settings": lesson.settings, "number": now["version"], "checkpoint": now["checkpoint"]}
        taken["scene"] = studio.scene(now["key"])
        tab = gr.Tabs(selected=lesson.seen.tab) if lesson.seen.tab else gr.skip()
        return [*page, {"offered": self.offered(), "taken": taken}, tab, None]


__all__ = ["Taught"]
