"""Checks of the computation: contributions add up, precision, determinism."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from vitviz.diagnostics.finding import Finding, verdict
from vitviz.diagnostics.subject import CheckSubject
from vitviz.engine.studies.attribution import logit_attribution

OVERFLOW = 65504.0  # largest float16
GAP = 1e-4  # of the largest logit
CHANGE = 1e-4  # of the largest token entry


def determinism(subject: CheckSubject) -> Iterator[Finding]:
    """Compare two passes on one image."""
    first, second = subject.traces[0], subject.inspector.trace(subject.images[0].image)
    last, again = first.tokens[-1], second.tokens[-1]
    change = ((last - again).abs().max() / last.abs().max()).item()
    yield verdict("not_deterministic", change, CHANGE)


def range_of_values(subject: CheckSubject) -> Iterator[Finding]:
    """Find activations that float16 cannot represent."""
    largest = max(tokens.abs().max().item() for trace in subject.traces for tokens in trace.tokens)
    yield verdict("float16_overflow", largest, OVERFLOW)


def balance(subject: CheckSubject) -> Iterator[Finding]:
    """Check that the contributions to a logit add up to it."""
    subject.require_classes(images=1)
    trace = subject.traces[0]
    gap = abs(logit_attribution(subject.inspector, trace, int(trace.logits.argmax())).gap)
    yield verdict("unbalanced", gap / max(trace.size, torch.finfo(torch.float32).tiny), GAP)


def precision(subject: CheckSubject) -> Iterator[Finding]:
    """Report the deviation of the model's precision from float32."""
    deviation = subject.traces[0].deviation
    if deviation is not None and deviation.classes is not None:
        change = f"{deviation.classes:.2g}"
        yield verdict("deviation", deviation.classes, dtype=subject.inspector.dtype, change=change)
