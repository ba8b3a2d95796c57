"""Values that a checkpoint's file does not state: the page's form with choices and their predictions."""

from typing import Any

from vitviz.engine import Inspector
from vitviz.engine.adapters import sidecar_config
from vitviz.engine.adapters.assumptions import NORMALISATIONS
from vitviz.engine.choices import predictions_by_choice
from vitviz.engine.formats.overrides import Overrides, split_name
from vitviz.engine.formats.timm_config import parse_label_lines
from vitviz.errors import CheckpointError
from vitviz.server.i18n import mark
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.text_classes import with_text, without_text

SHARED = "This server is shared, so settings are not saved next to its files. Copy the link instead."
_KNOWN = {
    "ImageNet": mark("ImageNet's"), "one half": mark("0.5 ± 0.5"), "CLIP": mark("CLIP's"),
    "CIFAR-10": mark("CIFAR-10's"), "none": mark("none"),
    "pool=class": mark("class token"), "pool=average": mark("average of the patches"),
    "pool=average+of+all": mark("average of all tokens"),
    "pool=max": mark("maximum over the patches"),
    "pool=average+and+max": mark("half average, half maximum"),
    "pool=attention": mark("attention over the patches"),
    "pool=attention+of+all": mark("attention over all tokens"),
    "block=pre-norm": mark("before attention and MLP (pre-norm)"),
    "block=res-post-norm": mark("after attention and MLP, before the sum (res-post-norm)"),
    "block=post-norm": mark("after each residual sum (post-norm)"),
    "head_type=sigmoid": mark("logit of yes or no (sigmoid)"),
    "head_type=value": mark("regression value"),
}  # fmt: skip


def form_value(
    inspector: Inspector, second: Inspector | None, keeps: bool, predictions: dict | None = None
) -> dict[str, Any]:
    """Return the form of assumed values as JSON; `predictions` (if known) are those by (name, value)."""
    known = predictions or {}
    plain, given = split_name(inspector.checkpoint.name)
    keeps = keeps and inspector.checkpoint.source == "local"
    names = _KNOWN | {usual.text(): _KNOWN[name] for name, usual in NORMALISATIONS.items()}

    def choice(name: str, text: str) -> dict[str, Any]:
        return {"text": text, "known": names.get(text), "answer": known.get((name, text))}

    items = [
        {"name": one.name, "taken": one.taken, "choices": [choice(one.name, text) for text in one.choices]}
        for one in inspector.checkpoint.assumed
    ]
    beside = () if second is None else second.checkpoint.assumed
    return {
        "said": given.text(),
        "items": items,
        "second": [{"name": assumption.name} for assumption in beside],
        "keeps": keeps,
        "file": plain,
        "head_type": inspector.head_type,
        # which the form asks for if names can be saved
        "classes": inspector.model.num_classes if keeps else 0,
        "answered": predictions is not None or not items,
    }


def form_with_predictions(service: AnalysisService, state: dict[str, Any]) -> dict[str, Any]:
    """Return the form of assumed values, with each choice's prediction for the current image."""
    run = service.runs.run(state["key"])
    inspector = service.checkpoints.inspector(run.checkpoint)
    size = run.size or inspector.preprocessing.size
    count = sum(len(assumption.choices) for assumption in inspector.checkpoint.assumed)
    with service.work.computing(inspector, run.size, max(1, count)):
        picture = service.pictures.opened(run.picture, run.strokes)
        result = predictions_by_choice(inspector, picture, inspector.checkpoint.assumed, size)
        answers = {(name, text): answer for name, text, answer in result}
    second = service.checkpoints.inspector(state["second"]) if state.get("second") else None
    return form_value(inspector, second, service.settings.keeps, answers)


def name_with(checkpoint: str, text: str) -> str:
    """Return a checkpoint's name with overrides. Raises CheckpointError or VitvizError for invalid ones."""
    plain, _ = split_name(checkpoint)
    said = Overrides.parse(text).text()
    return with_text(f"{plain}?{said}" if said else plain, *without_text(checkpoint)[1:])


def save_settings(service: AnalysisService, checkpoint: str, names: str = "") -> str:
    """Save the overrides and class names (one per line) next to the file; return the checkpoint's name.

    Raises CheckpointError where this server does not write, and if the number of names differs from the
    number of classes.
    """
    if not service.settings.keeps:
        raise CheckpointError(SHARED)
    inspector = service.checkpoints.inspector(checkpoint)
    plain, _ = split_name(checkpoint)
    placed, named = inspector.placed, inspector.labels
    if names.strip():
        named = parse_label_lines(names, inspector.model.num_classes, plain)
    sidecar_config.write_config(
        placed.checkpoint, placed.model, placed.preprocessing, named, placed.head_type
    )
    service.checkpoints.forget(plain)
    return plain
