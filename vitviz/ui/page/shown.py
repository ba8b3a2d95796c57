"""Everything on the page for one picture and checkpoint, as the values of `outputs` in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import gradio as gr

from vitviz.runs import Without
from vitviz.ui.page import assumed, edits, facts, sizes, twins
from vitviz.ui.page.canvas import Canvas, Part
from vitviz.ui.page.figures import framed
from vitviz.ui.page.tabs import Tab
from vitviz.ui.page.widgets import Upload, Zip
from vitviz.ui.serving import links
from vitviz.ui.serving.spoken import told_of
from vitviz.ui.serving.studio import Studio
from vitviz.ui.serving.visitor import require_visitor
from vitviz.ui.words import translated
from vitviz.views import VIEWS

# Of a state whose page waits for no pass; else `last` is the state of what was in view before.
WHOLE = {"awaited": False, "last": None}


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
    assumed: Part
    lessons: Part
    zipped: Zip
    compare: Part


class Shown:
    """What the page shows over one studio. A session is a small dict: keys, names, the chart's settings."""

    def __init__(self, studio: Studio, session: gr.State, left: Left, link: Part, views: list[Tab]):
        self._studio, self._left, self._link, self._views = studio, left, link, views
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
            left.assumed,
            left.compare,
            *drawn,
        ]

    @cached_property
    def _twins(self) -> list[dict[str, str]]:
        return twins.offered(self._studio.names())

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

    def _show(self, state: dict, picture: str, checkpoint: str, progress=None, soon: bool = True) -> list:
        """Everything on the page for one picture and checkpoint, and the one beside it if there is one; or
        `soon`, before a long pass, what needs none.
        """
        studio, second = self._studio, state.get("second", "")
        if checkpoint != state.get("checkpoint", checkpoint):  # another model has other heads
            state = {**state, "without": ""}
        without = Without.parse(state.get("without", ""))
        untouched = self._look(state, picture, checkpoint, progress)
        key = self._look(state, picture, checkpoint, progress, without=without) if without else untouched
        second_key = self._look(state, picture, second, progress) if second else ""
        state = {**state, "picture": picture, "checkpoint": checkpoint, "key": key, "second_key": second_key}
        state |= {"untouched": untouched, "surveys": {}, "scene": studio.scene(key)}
        soon = soon and any(studio.long(one) for one in (untouched, second_key) if one)
        return self._page({**state, **WHOLE, "awaited": soon})

    def _page(self, state: dict) -> list:
        """The page of a state whose keys are known; of one that is awaited, what no pass is needed for."""
        studio, second, checkpoint = self._studio, state.get("second", ""), state["checkpoint"]
        soon, without = state["awaited"], Without.parse(state.get("without", ""))
        # what is taken away is seen when it is computed
        drawn = {**state, "key": state["untouched"]} if soon else state
        keys = drawn["key"], state["second_key"]
        subjects = [(studio.before if soon else studio.subject)(key) if key else None for key in keys]
        subject, film, inspector = subjects[0], studio.film(checkpoint), studio.inspector(checkpoint)
        offered = sizes.choices(inspector, language_of(state), studio.settings.limits.tokens)
        answer, beside = (facts.answer(subjects[i], keys[i]) if keys[i] else {} for i in (0, 1))
        if without and not soon:
            answer["before"] = facts.answer(studio.subject(state["untouched"]))["top"]
        beside_it = studio.inspector(second) if second else None
        return [
            state,
            checkpoint,
            second or None,
            gr.update(choices=offered, value=state.get("size", sizes.OWN)),
            {"text": ""},
            film,
            links.shown(state),
            framed(studio, drawn["key"], "picture"),
            {**answer, "asks": soon},
            beside,
            edits.shown(without, subject),
            assumed.shown(inspector, beside_it, studio.settings.keeps),
            {"shown": True, "second": second, "before": _before(film), "twins": self._twins},
            *[value for view in self._views for value in view.draw(drawn, soon)],
        ]

    def _averaged(self, page: list, averages: object) -> list:
        """The page with the averages over a set that it had before it was loaded again, by their views."""
        had = averages if isinstance(averages, dict) else {}  # out of the page, so perhaps anything
        told = {view.slug: had.get(view.slug) for view in VIEWS if view.averages}
        known = {slug: key for slug, key in told.items() if isinstance(key, str) and self._studio.survey(key)}
        state = {**page[0], "surveys": known}
        return self._page(state) if known and not state["awaited"] else [state, *page[1:]]

    def computed(self, state: dict) -> list:
        """The whole of a page that stands there without its pass; where that fails, the page before it, and
        why; nothing where something else has been chosen meanwhile.
        """
        notice, key = self.outputs.index(self._left.notice), self._studio.sessions.newest(state).get("key")

        def unless_gone_on(make: Callable[[dict], list]) -> Callable[[dict], list]:
            def made(now: dict) -> list:
                waits = now.get("awaited") and now["key"] == key
                return make(now) if waits else [now, *[gr.skip()] * (len(self.outputs) - 1)]

            return made

        page = self._attempt(state, unless_gone_on(lambda now: self._page({**now, **WHOLE})))
        if page[0] != gr.skip():
            return page
        said, page = page[notice], self._attempt(state, unless_gone_on(self._last))
        if page[notice] != gr.skip():
            page[notice] = said
        return page

    def _last(self, state: dict) -> list:
        """What was in view before what is awaited; at first there is only the picture."""
        if state["last"].get("key"):
            return self._page(state["last"])
        plain = {**state["last"], "sample": state.get("sample")}
        return self._show(plain, state["picture"], self._studio.settings.checkpoint, soon=False)

    def _look(self, state: dict, picture: str, checkpoint: str, progress=None, **changes) -> str:
        """The key of a picture seen by a checkpoint at the size that the session asks for."""
        asked = state.get("size", sizes.OWN)
        inspector = self._studio.inspector(checkpoint, progress)
        upload = self._studio.picture(picture).size if asked == sizes.SHAPE else (0, 0)
        return self._studio.known(picture, checkpoint, sizes.pixels(asked, inspector, upload), **changes)

    def _sample(self, state: dict, name: str, checkpoint: str, progress=None) -> list:
        return self._show({**state, "sample": name}, self._studio.keep_sample(name), checkpoint, progress)

    def _attempt(self, state: dict, make: Callable[[dict], list]) -> list:
        """What `make` gives of the newest state; when it cannot, a sentence where the action was, and
        everything else as it was.
        """

        def made(state: dict) -> list:
            page = make(state)
            if page[0].get("awaited"):  # which may yet fail
                page[0] = {**page[0], "last": state["last"] if state.get("awaited") else state}
            return page

        try:
            return self._studio.sessions.settled(state, made)
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


def reported(progress: gr.Progress, checkpoint: str | None, state: dict) -> Callable[[int, int], None]:
    """Tells the page how much of a checkpoint has been downloaded; ends the download, by raising, when nobody
    waits for it.
    """
    told = translated("Downloading {checkpoint}", language_of(state), checkpoint=checkpoint or "")

    def report(done: int, total: int) -> None:
        require_visitor()
        progress((done, total), desc=told, unit="bytes")

    return report


def _before(film: dict) -> str:
    """The pair of a film's first frame and its last, as `pair` takes it; '' where there is no film."""
    names = [frame["name"] for frame in film.get("frames", ())]
    return f"{names[0]}|{names[-1]}" if len(names) > 1 else ""


def asked_for(link: links.Link) -> dict[str, str]:
    """What a session keeps of a link, besides picture and checkpoint."""
    return {"second": link.second or "", "size": link.size or sizes.OWN, "without": link.without or ""}


def language_of(state: dict) -> str:
    return state.get("language", "en")
