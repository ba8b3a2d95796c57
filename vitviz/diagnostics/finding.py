"""Findings of the model check, and their report."""

from __future__ import annotations

import csv
import html
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from vitviz.errors import VitvizError, write_error
from vitviz.surveys.report import HEAD, STYLE
from vitviz.traces.display import NotebookTable
from vitviz.traces.localized_text import LocalizedText

Severity = Literal["serious", "note", "number"]
SEVERITIES: tuple[Severity, ...] = ("serious", "note", "number")
GROUPS = ("weights", "input", "head", "attention", "maps", "numbers")
MEASURED = LocalizedText(
    "measured, docs/check.md"
)  # where a threshold comes from, unless its rule says otherwise
RULES = json.loads(Path(__file__).with_name("findings.json").read_text(encoding="utf-8"))  # by finding


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
        limit = "" if self.threshold is None else f", threshold {self.threshold:.3g}: {self.source}"
        number = "" if self.number is None else f"[{self.number:.3g}{limit}]"
        view = f"View: {self.view}." if self.view else ""
        parts = (f"{self.severity.upper()} ({self.group})", self.sentence, number, self.advice, view)
        return " ".join(filter(None, parts))


def verdict(
    rule: str, number: float, threshold: float | None = None, *, name: str = "",
    severity: Severity | None = None, source: str = "", advice: str = "", view: str = "", **values: Any,
) -> Finding:  # fmt: skip
    """Return a `Finding`: a verdict if `number` exceeds its threshold (or, by some rules, falls short).

    Otherwise the finding is the number without a verdict.

    A number that is not finite has none either. A rule without a good sentence is not decided here. The
    sentence and the advice are patterns, filled with `values` in every language.

    Args:
        rule: A key of findings.json: the finding's name, and a word where one name has several rules.
        name, severity, source, advice, view: What differs from the rule.
    """
    known, bad = RULES[rule], True
    if "good" in known:
        bad = isfinite(number) and (number < threshold if known.get("below") else number > threshold)
    severity = (severity or known.get("severity", "serious")) if bad else "number"
    sentence = LocalizedText(known["bad" if bad else "good"], **values)
    advice = bad and (advice or known.get("advice"))
    advice = LocalizedText(advice, **values) if advice else ""
    source, view = source or known.get("source", MEASURED), view or known.get("view", "")
    source = LocalizedText(source) if type(source) is str and source else source
    name = name or rule.split()[0]
    return Finding(name, known["group"], severity, sentence, number, threshold, source, advice, view)


def _rank(finding: Finding) -> tuple[int, int, float]:
    """Return a finding's sort key: severity, then group, then (group "input" only) larger gain first."""
    gain = (finding.number or 0.0) if finding.group == "input" else 0.0
    return SEVERITIES.index(finding.severity), GROUPS.index(finding.group), -gain


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
        """The findings, serious ones first; causes (weights, input) come before effects (attention, maps).

        Of the findings on the input, the alternative that gains most comes first.
        """
        return tuple(sorted(self.findings, key=_rank))

    @property
    def verdict(self) -> str:
        """The number of findings, as one sentence."""
        counts = Counter(finding.severity for finding in self.findings)
        serious = f"{counts['serious']} serious" if counts["serious"] else "no serious finding"
        return f"{self.checkpoint}, {self.images} images: {serious}, {counts['note']} notes."

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per finding, serious ones first."""
        return [vars(finding) for finding in self.ranked]

    def __str__(self) -> str:
        return "\n".join([self.verdict, *map(str, self.ranked)])

    def html(self) -> str:
        """Return the report as one HTML page without scripts and requests."""
        title = f"<title>Model check: {html.escape(self.checkpoint)}</title>"
        return f"<!doctype html>{HEAD}{title}<style>{STYLE}</style>{self._repr_html_()}"

    def csv(self) -> str:
        """Return the table of `frame()` as CSV."""
        file = io.StringIO()
        writer = csv.DictWriter(file, [field.name for field in fields(Finding)])
        writer.writeheader()
        writer.writerows(self.rows())
        return file.getvalue()

    def save(self, path: str | PathLike) -> Path:
        """Write the report as one .html file and return its path; VitvizError if that is not possible."""
        path = Path(path)
        if path.suffix.lower() != ".html":
            raise VitvizError(f"{path.name} is not valid; expected a name that ends in .html.")
        try:
            path.write_text(self.html(), encoding="utf-8")
        except OSError as error:
            raise write_error(path, error) from None
        return path


def layers_named(layers: Sequence[int]) -> LocalizedText:
    """Return layers, given from 0, as text that counts from 1.

    >>> layers_named([0, 4]), layers_named([2])
    ('layers 1, 5', 'layer 3')
    """
    numbers = ", ".join(str(layer + 1) for layer in layers)
    return LocalizedText("layers {numbers}" if len(layers) > 1 else "layer {numbers}", numbers=numbers)
