"""Values of the views' figures: small, since the scripts fetch the data."""

from typing import Any

from vitviz.server.api.serialization import error_json
from vitviz.server.i18n import mark
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.localized_text import text_to_json
from vitviz.views import Needs, View, ViewContext, scripts
from vitviz.views.availability import misses_patches, refusal
from vitviz.views.printing import is_printable

AWAITED = mark("This view needs the whole forward pass, which is still running.")


def figures_of(view: View, service: AnalysisService, state: dict, soon: bool = False) -> list:
    """Return a view's figure values (JSON) for the first and the second checkpoint; {} without a second.

    The second figure follows the settings of the first. With `soon`, return what is available before a pass
    and wait for none.
    """
    explained, survey = state.get("explained"), state.get("surveys", {}).get(view.slug)
    key = survey if service.sets.survey(survey) is not None else state["key"]
    key, second = service.runs.both(key)
    second = second or (state.get("second_key") if key != survey else None)
    still = {} if explained is None else {"still": {"target": str(explained)}}
    if not second:
        return [figure_value(service, key, view, soon) | still, {}]
    keys = [key, second]
    if view.scope.paired or view.scope.sided:
        keys = [service.runs.pair(key, second), service.runs.pair(second, key)]
    first, beside = (figure_value(service, one, view, soon) for one in keys)
    both = first | still, {**beside, "second": True}  # the second may have other classes
    return [{**tensor, "heading": tensor["checkpoint"]} for tensor in both]


def figure_value(service: AnalysisService, key: str, view: View, soon: bool = False) -> dict[str, Any]:
    """Return a figure's value. Errors become sentences; a failing view does not affect others."""
    subject = service.before(key) if soon else service.subject(key)
    frame = figure_frame(service, key, view.slug, subject)
    try:
        if subject.awaited and not view.scope.needs_no_pass:
            return {**frame, "message": text_to_json(AWAITED), "awaited": True}
        if reason := refusal(view, subject):
            ways = {"paintable": misses_patches(view, subject), "restorable": _restorable(view, subject)}
            return {**frame, "message": text_to_json(reason), **ways}
        result = scripts.view_declaration(view, subject)
        if subject.awaited and view.needs is not Needs.WEIGHTS:
            result |= {"items": {}}  # before a pass only items computed from the weights exist
        files = [[file.name, file.label] for file in view.export.files]
        details = {"printable": is_printable(view), "files": files, "summary": service.summary(key, view)}
        return {**frame, **result, **details}
    except Exception as error:
        return {**frame, "message": error_json(error, f"The view {view.slug}")}


def _restorable(view: View, subject: ViewContext) -> bool:
    """Return True if the view is refused only because parts of the model or the sequence are removed."""
    removed = subject.trace is not None and subject.trace.without
    return bool(removed and subject.original) and refusal(view, subject.original()) is None


def figure_frame(
    service: AnalysisService, key: str, slug: str, subject: ViewContext | None = None
) -> dict[str, Any]:
    """Return the part of every figure's value that needs no pass."""
    subject = subject or service.before(key)
    upload = "" if service.sets.survey(key) is not None else service.runs.run(key).picture
    return {"key": key, "scene": service.scene(key), "upload": upload, **scripts.figure_frame(subject, slug)}
