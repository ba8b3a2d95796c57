"""Quantities of a trace that several views need, cached with the trace."""

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

ClassTarget = int | tuple[int, int]  # a class, or (a, b) for a rather than b
WHOLE = "This test needs the full model. Restore removed parts first."


def shared_distances(subject: ViewContext) -> Distances:
    """Return the attention distances and the mass on prefix tokens of a trace."""
    return subject.once("distances", lambda: analyses.distances(subject.trace))


def passes_of(subject: ViewContext, target: ClassTarget, patches_as: str = "dropped") -> SaliencyInputs:
    """Return the passes from which saliency maps of a target are computed, on the unablated model.

    Call within `once_by_passes`. Only results are cached, never the model.
    """

    def keep(name, make):
        return subject.once(f"{name} {target}", make)

    return lazy.saliency_study.explained(subject.inspector, subject.trace, target, patches_as, once=keep)


def shared_saliency_map(
    subject: ViewContext, target: ClassTarget, method: str, steps: int | None = None
) -> SaliencyMap:
    """Return the target's map by one saliency method, cached for all views."""

    def make():
        return lazy.saliency.saliency_map(passes_of(subject, target), method, steps=steps)

    return subject.once_by_passes(f"relevance {method} {target} {steps}", make)


def parse_target(subject: ViewContext, text: str) -> ClassTarget:
    """Return the class (int), or pair (a, b) for a minus b, of a text such as "top", "7" or "7-3".

    Raises:
        WrongSetting: If there is no such class.
    """
    count = subject.trace.logits.numel()
    if text == "top":
        return int(subject.trace.logits.argmax())
    classes = [int(part) for part in text.split("-")]
    if max(classes) >= count or len(set(classes)) < len(classes):
        expected = f"a class from 0 to {count - 1}, or two different ones"
        raise WrongSetting(f"target={text} is not valid; expected {expected}.")
    return classes[0] if len(classes) == 1 else (classes[0], classes[1])


def class_name(trace: Trace, index: int) -> str:
    """Return the label of a class, or its number as a text if the labels do not match the logits."""
    if len(trace.labels) == trace.logits.numel():
        return trace.labels[index]
    of_values = trace.head_type == "value"
    return LocalizedText("output {number}" if of_values else "class {number}", number=index)


def target_name(subject: ViewContext, text: str) -> str:
    """Return the displayed name of the class, or pair of classes, that `parse_target` returns."""
    target = parse_target(subject, text)
    if not isinstance(target, tuple):
        return class_name(subject.trace, target)
    name, other = (class_name(subject.trace, target_class) for target_class in target)
    return LocalizedText("{name} rather than {other}", name=name, other=other)


def likeliest_classes(trace: Trace, count: int) -> list[dict[str, Any]]:
    """Return the `count` most likely classes with names, logits and probabilities, for a picker.

    For a head of values, these are the largest outputs, under the key "value".
    """
    top = trace.logits.topk(min(count, trace.logits.numel()))
    scores = trace.scores()
    return [
        {"class": i, "name": trace.named(i), "logit": v, trace.quantity: scores[i].item()}
        for i, v in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def score_text(score: float, subject: ViewContext) -> str:
    """Format the probability of a class in per cent, or a value unchanged."""
    return number(score) if subject.trace.head_type == "value" else f"{100 * score:.1f} %"


def json_bytes(value: Any) -> np.ndarray:
    """Return a value as JSON, in an array of bytes (uint8)."""
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def to_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows with the same keys as a CSV table with a header."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def shared_logit_terms(subject: ViewContext) -> LogitTerms:
    """Return a trace's logit terms, for all targets; raise UnsupportedModel if their sum is not the logit."""
    terms = lazy.attribution.checked_logit_terms
    return subject.once("ledger", lambda: terms(subject.inspector, subject.trace))


def ensure_recorded(subject: ViewContext) -> None:
    """Record the outputs of all sources by a pass of the trace's image, unless they are recorded."""
    record = lazy.circuits.record_stream
    subject.once_by_passes("written", lambda: bool(record(subject.inspector, subject.trace)))


def shared_upstream(
    subject: ViewContext, target: ClassTarget, layer: int, head: int, via: Sequence = (),
    relative: bool = False
) -> Upstream:  # fmt: skip
    """Return the sources of a head's input with their contributions to a logit through the heads `via`.

    Layers and heads count from 0.
    """

    def make():
        ensure_recorded(subject)
        contributions = lazy.circuits.upstream_contributions
        options = {"relative": relative, "via": via}
        return contributions(subject.inspector, subject.trace, target, layer, head, **options)

    return subject.once(f"writers {target} {relative} {via} {layer} {head}", make)


def ablation_drops(subject: ViewContext, layer: int) -> Tensor:
    """Return the drop of every logit if one component of a layer (from 0) is ablated: (part, class).

    Rows are the heads, then the MLP.

    Raises:
        UnsupportedModel: If a component or patch has been removed already.
    """
    if subject.trace.without:
        raise UnsupportedModel(LocalizedText(WHOLE))
    made = f"taken away {layer}"
    return subject.once_by_passes(made, lambda: subject.inspector.layer_effects(subject.trace.view, layer))
