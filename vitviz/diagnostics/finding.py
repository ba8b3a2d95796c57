"""Findings of the model check, and their report."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from vitviz.surveys.report import HEAD, STYLE
from vitviz.traces.display import NotebookTable

Severity = Literal["serious", "note", "number"]
SEVERITIES: tuple[Severity, ...] = ("serious", "note", "number")
GROUPS = ("weights", "input", "head", "attention", "maps", "numbers")
MEASURED = "measured, docs/check.md"


@dataclass(frozen=True)
class Finding:
    """One result of the model check: a verdict ("serious" or "note"), or a number without a verdict."""

    name: str  # stable key, such as "initial_weights"
    group: str  # one of GROUPS
    severity: Severity
    sentence: str
    number: float | None = None
    threshold: float | None = None
    source: str = ""  # where the threshold comes from
    advice: str = ""
    view: str = ""  # slug of the view that shows it

    def __str__(self) -> str:
        number = "" if self.number is None else f" [{self.number:.3g}"
        number += f", threshold {self.threshold:.3g}: {self.source}" if self.threshold is not None else ""
        number += "]" if number else ""
        advice = f" {self.advice}" if self.advice else ""
        view = f" View: {self.view}." if self.view else ""
        return f"{self.severity.upper()} ({self.group}) {self.sentence}{number}{advice}{view}"


def judged(
    name: str, group: str, number: float, threshold: float, bad: str, good: str, advice: str, view: str = "",
    severity: Severity = "serious", below: bool = False, source: str = MEASURED,
) -> Finding:  # fmt: skip
    """Return a verdict if a number exceeds its threshold (with `below`: falls short), else the number alone.

    A number that is not finite is reported without a verdict.
    """
    exceeds = isfinite(number) and (number < threshold if below else number > threshold)
    if exceeds:
        return Finding(name, group, severity, bad, number, threshold, source, advice, view)
    return Finding(name, group, "number", good, number, threshold, source, view=view)


@dataclass(frozen=True)
class Report(NotebookTable):
    """All findings on one checkpoint, in the order of the check: weights, input, head, attention, maps."""

    checkpoint: str
    images: int
    findings: tuple[Finding, ...]

    @property
    def serious(self) -> tuple[Finding, ...]:
        """The serious findings."""
        return tuple(finding for finding in self.findings if finding.severity == "serious")

    @property
    def ranked(self) -> tuple[Finding, ...]:
        """The findings, serious ones first; causes (weights, input) come before effects (attention, maps)."""
        return tuple(sorted(self.findings, key=lambda finding: SEVERITIES.index(finding.severity)))

    @property
    def verdict(self) -> str:
        """The number of findings, as one sentence."""
        counts = Counter(finding.severity for finding in self.findings)
        serious = "no serious finding" if not counts["serious"] else f"{counts['serious']} serious"
        return f"{self.checkpoint}, {self.images} images: {serious}, {counts['note']} notes."

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per finding, serious ones first."""
        return [vars(finding) for finding in self.ranked]

    def __str__(self) -> str:
        return "\n".join([self.verdict, *map(str, self.ranked)])

    def save(self, path: str | PathLike) -> Path:
        """Write the report as one HTML file without scripts and requests, and return its path."""
        title = f"<title>Model check: {html.escape(self.checkpoint)}</title>"
        page = f"<!doctype html>{HEAD}{title}<style>{STYLE}</style>{self._repr_html_()}"
        Path(path).write_text(page, encoding="utf-8")
        return Path(path)


def layers_named(layers: Sequence[int]) -> str:
    """Return layers, given from 0, as text that counts from 1.

    >>> layers_named([0, 4]), layers_named([2])
    ('layers 1, 5', 'layer 3')
    """
    return f"layer{'s' * (len(layers) > 1)} {', '.join(str(layer + 1) for layer in layers)}"
