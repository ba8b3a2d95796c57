"""Panel for averages over an image set: start, stop, and return to one image."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gradio as gr

from vitviz.errors import Unknown, VitvizError
from vitviz.server.api.serialization import error_json
from vitviz.server.page.components import event_data
from vitviz.server.page.figures import figures_of
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.server.services.image_sets import SEEN, require_at_most
from vitviz.traces.localized_text import text_to_json
from vitviz.views import VIEWS, Needs, View
from vitviz.views.routes import image_set_setting

AVERAGED = [view for view in VIEWS if view.scope.averages]


def _ways(view: View) -> list | None:
    """Return a view's choice for surveys as [label, options, default]; None if it has none."""
    control = next((control for control in view.controls if control.name == view.scope.set_control), None)
    return control and [control.label, [list(one) for one in control.options], control.start()]


WAYS = {view.slug: _ways(view) for view in AVERAGED}
NEVER_OF_ONE = [view.slug for view in AVERAGED if view.needs is Needs.SET]  # samples at least


def panel_value(service: AnalysisService, state: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the panel's value: the set, predictions of its first images, and the image count per view."""
    sets, given, key = service.sets, state.get("set", ""), state.get("key")
    count = sets.count(given)
    made = {slug: sets.survey(one) for slug, one in state.get("surveys", {}).items()}
    return {
        "set": given if count else "",
        "count": count,
        "own": sets.own(given),
        "seen": SEEN,
        "answers": sets.answers(given, key) if count and key else [],
        "by": [state.get("checkpoint"), state.get("size")],
        "over": {slug: survey.images for slug, survey in made.items() if survey is not None},
        "ways": WAYS,
        "never_of_one": NEVER_OF_ONE,
        "told": {"text": ""},
        **more,
    }


class ImageSetPanel:
    """Handlers of the panel. Any other choice ends a survey, whose results would replace that choice."""

    def __init__(self, service: AnalysisService):
        self._service = service

    def give(self, state: dict, paths: Sequence[str] | None = None) -> list:
        """Set the images: uploads, or crops of the samples. Returns state, panel and the emptied input."""

        def with_set(now: dict) -> list:
            now = {**now, "set": self._service.sets.give(paths or ())}
            return [now, panel_value(self._service, now)]

        try:
            return [*self._service.sessions.settled(state, with_set), None]
        except VitvizError as error:
            return [gr.skip(), self._panel_with_error(state, error), None]

    def answer(self, state: dict) -> Iterator[dict]:
        """Yield the panel as predictions of the images become known."""
        state = self._service.sessions.newest(state)
        try:
            for _ in self._service.sets.answering(state.get("set", ""), state["key"]):
                yield panel_value(self._service, state, predicting=True)
        except (VitvizError, KeyError) as error:
            yield self._panel_with_error(state, error)

    def survey(self, state: dict, event: gr.EventData) -> Iterator[list]:
        """Yield state, figures and panel as a view's average grows; `way` is the option of the survey."""
        service, state = self._service, self._service.sessions.newest(state)
        slug, way = (str(event_data(event).get(name) or "") for name in ("view", "way"))
        try:
            view, given = service.view(slug), state.get("set", "")
            if not view.scope.averages:
                raise Unknown(f"{view.title} has no average over an image set.")
            way, pictures = image_set_setting(view, way), service.sets.pictures(given)
            require_at_most(view.scope.most_images, len(pictures))
            second = state.get("second_key") if view.scope.paired else None
            steps, last = -1, None
            surveys = service.sets.surveying(state["key"], pictures, view.scope.paired, second, way, given)
            for key, survey in surveys:
                steps, last = (steps + 1 if survey is last else 0), survey
                done = [survey.images, len(pictures), ""]
                if steps:  # the set is complete; snapshots of the training follow
                    done = [steps, len(service.sets.steps_of(service.runs.run(state["key"]))), "steps"]
                # Not settled: every other choice ends the survey, and later results of the survey must not
                # count.
                now = {**state, "surveys": {**state.get("surveys", {}), slug: key}}
                said = text_to_json(" ".join(map(str, survey.skipped)))
                yield self._page(now, slug, done=[slug, *done], told=said)
        except (VitvizError, KeyError) as error:
            yield self._unchanged_with_error(state, error)

    def single(self, state: dict, event: gr.EventData) -> list:
        """Return state, figures and panel for the single image."""
        slug, state = str(event_data(event).get("view") or ""), self._service.sessions.newest(state)

        def without(new: dict) -> list:
            others = {name: key for name, key in new.get("surveys", {}).items() if name != slug}
            return self._page({**new, "surveys": others}, slug)

        try:
            return self._service.sessions.settled(state, without)
        except (VitvizError, KeyError) as error:
            return self._unchanged_with_error(state, error)

    def _page(self, now: dict, slug: str, **more: Any) -> list:
        """Return state, figures and panel for the state `now`; render only figures of view `slug`."""
        drawn = []
        for view in AVERAGED:
            drawn += figures_of(view, self._service, now) if view.slug == slug else [gr.skip()] * 2
        return [now, *drawn, panel_value(self._service, now, **more)]

    def _unchanged_with_error(self, state: dict, error: Exception) -> list:
        """Return updates that keep state and figures, and show the error in the panel."""
        return [gr.skip()] * (1 + 2 * len(AVERAGED)) + [self._panel_with_error(state, error)]

    def _panel_with_error(self, state: dict, error: Exception) -> dict:
        """Return the panel's value for the newest state, with the error's message."""
        return panel_value(self._service, self._service.sessions.newest(state), told=error_json(error))
