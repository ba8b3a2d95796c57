"""What several views need of a trace, computed once and forgotten with it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import number
from vitviz.errors import UnsupportedModel, WrongSetting
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import lazy

if TYPE_CHECKING:
    from torch import Tensor

    from vitviz.analyses import Distances, LogitTerms
    from vitviz.analyses.saliency import SaliencyMap
    from vitviz.analyses.upstream import Upstream
    from vitviz.engine.saliency_inputs import SaliencyInputs
    from vitviz.traces.trace import Trace
    from vitviz.views.subject import ViewContext

ClassTarget = int | tuple[int, int]  # a class, or a rather than b
WHOLE = "This test needs the full model. Restore removed parts first."


def distances_of(subject: ViewContext) -> Distances:
    """Distance and mass on the prefix of a trace, from one pass over its layers."""
    return subject.once("distances", lambda: analyses.distances(subject.trace))


def passes_of(subject: ViewContext, target: ClassTarget, patches_as: str = "dropped") -> SaliencyInputs:
    """The passes of maps on the untouched model, within `once_by_passes`; finds are kept, never the model."""

    def keep(name, make):
        return subject.once(f"{name} {target}", make)

    return lazy.saliency_study.explained(subject.inspector, subject.trace, target, patches_as, once=keep)


def relevance_of(
    subject: ViewContext, target: ClassTarget, method: str, steps: int | None = None
) -> SaliencyMap:
    """One method's map, the same in every view."""

    def make():
        return lazy.saliency.relevance_of(passes_of(subject, target), method, steps=steps)

    return subject.once_by_passes(f"relevance {method} {target} {steps}", make)


def target_of(subject: ViewContext, asked: str) -> ClassTarget:
    """The class that a setting such as "top", "7" or "7-3" (7 less 3) asks about; WrongSetting for none."""
    count = subject.trace.logits.numel()
    if asked == "top":
        return int(subject.trace.logits.argmax())
    classes = [int(part) for part in asked.split("-")]
    if max(classes) >= count or len(set(classes)) < len(classes):
        raise WrongSetting(
            f"Given target={asked}; expected a class from 0 to {count - 1}, or two different ones."
        )
    return classes[0] if len(classes) == 1 else (classes[0], classes[1])


def class_name(trace: Trace, index: int) -> str:
    """A class by its label, or as the page says its number where the labels are not those of the logits."""
    known = len(trace.labels) == trace.logits.numel()
    if known:
        return trace.labels[index]
    of_values = trace.head_type == "value"
    return LocalizedText("output {number}" if of_values else "class {number}", number=index)


def target_name(subject: ViewContext, asked: str) -> str:
    """What `target_of` names, as a reader knows it."""
    target = target_of(subject, asked)
    if not isinstance(target, tuple):
        return class_name(subject.trace, target)
    name, other = (class_name(subject.trace, one) for one in target)
    return LocalizedText("{name} rather than {other}", name=name, other=other)


def likeliest(trace: Trace, count: int) -> list[dict[str, Any]]:
    """The likeliest classes with their names, logits and probabilities, for a picker; of values the largest,
    as "value".
    """
    top = trace.logits.topk(min(count, trace.logits.numel()))
    scores = trace.scores()
    return [
        {"class": i, "name": trace.named(i), "logit": v, trace.quantity: scores[i].item()}
        for i, v in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def score_text(score: float, subject: ViewContext) -> str:
    """A class's probability in per cent; a value as it is."""
    return number(score) if subject.trace.head_type == "value" else f"{100 * score:.1f} %"


def json_bytes(value: Any) -> np.ndarray:
    """JSON as an item of bytes."""
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows with the same names as a table."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def ledger_of(subject: ViewContext) -> LogitTerms:
    """What all accounts of a trace have in common; UnsupportedModel where there is none that balances."""
    return subject.once("ledger", lambda: lazy.attribution.balanced_ledger(subject.inspector, subject.trace))


def ensure_recorded(subject: ViewContext) -> None:
    """Sees that what every part wrote in a trace's pass is recorded."""
    subject.once_by_passes(
        "written", lambda: bool(lazy.circuits.record_stream(subject.inspector, subject.trace))
    )


def writers_of(
    subject: ViewContext, asked: ClassTarget, layer: int, head: int, via: Sequence = (),
    relative: bool = False
) -> Upstream:  # fmt: skip
    """Who wrote what a head reads, from 0, on its way to an answer through the heads `via`."""

    def make():
        ensure_recorded(subject)
        more = {"relative": relative, "via": via}
        return lazy.circuits.upstream_contributions(
            subject.inspector, subject.trace, asked, layer, head, **more
        )

    return subject.once(f"writers {asked} {relative} {via} {layer} {head}", make)


def taken_away(subject: ViewContext, layer: int) -> Tensor:
    """What each part of a layer (from 0) takes of every logit when it goes alone: part, class.
    UnsupportedModel where something has been taken away already.
    """
    if subject.trace.without:
        raise UnsupportedModel(LocalizedText(WHOLE))
    made = f"taken away {layer}"
    return subject.once_by_passes(made, lambda: subject.inspector.layer_effects(subject.trace.view, layer))
