"""Checks of the computation: contributions add up, precision, determinism."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from vitviz.diagnostics.finding import ROUNDING, Finding, stated, verdict_of
from vitviz.diagnostics.subject import CheckSubject
from vitviz.engine.studies.attribution import logit_attribution
from vitviz.traces.localized_text import LocalizedText

OVERFLOW = 65504.0  # largest float16
GAP = 1e-4  # of the largest logit
CHANGE = 1e-4  # of the largest token entry


def determinism(subject: CheckSubject) -> Iterator[Finding]:
    """Compare two passes on one image."""
    first, second = subject.traces[0], subject.inspector.trace(subject.images[0].image)
    last, again = first.tokens[-1], second.tokens[-1]
    change = ((last - again).abs().max() / last.abs().max()).item()
    yield verdict_of(
        "not_deterministic", "numbers", change, CHANGE, "Two passes on one image give different results.",
        "Two passes on one image agree.", "Switch off dropout and sampling: model.eval().",
        source=ROUNDING)  # fmt: skip


def range_of_values(subject: CheckSubject) -> Iterator[Finding]:
    """Find activations that float16 cannot represent."""
    largest = max(tokens.abs().max().item() for trace in subject.traces for tokens in trace.tokens)
    yield verdict_of(
        "float16_overflow", "numbers", largest, OVERFLOW, "Activations are too large for float16.",
        "Activations fit into float16.", "Compute in float32 or bfloat16.", "tokens", severity="note",
        source=LocalizedText("largest float16 number"))  # fmt: skip


def balance(subject: CheckSubject) -> Iterator[Finding]:
    """Check that the contributions to a logit add up to it."""
    subject.require_classes()
    trace = subject.traces[0]
    gap = abs(logit_attribution(subject.inspector, trace, int(trace.logits.argmax())).gap)
    yield verdict_of(
        "unbalanced", "numbers", gap / max(trace.size, torch.finfo(torch.float32).tiny), GAP,
        "The contributions of heads and MLPs do not add up to the logit.",
        "The contributions of heads and MLPs add up to the logit.", "Report this model: its form is not"
        " understood.", "evidence", source=ROUNDING)  # fmt: skip


def precision(subject: CheckSubject) -> Iterator[Finding]:
    """Report the deviation of the model's precision from float32."""
    deviation = subject.traces[0].deviation
    if deviation is not None and deviation.classes is not None:
        yield stated(
            "deviation", "numbers", "number", "{dtype} changes a probability by up to {change}.",
            deviation.classes, view="patches", dtype=subject.inspector.dtype,
            change=f"{deviation.classes:.2g}")  # fmt: skip
