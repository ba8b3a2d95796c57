"""Findings of the model check as JSON and as files, without paths on the server."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from vitviz.diagnostics.finding import Finding
from vitviz.errors import Unknown, quoted
from vitviz.server.api.serialization import to_lists, without_paths
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.localized_text import LocalizedText, text_to_json

TEXTS = ("sentence", "source", "advice")


def public(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings whose sentences, such as those of errors, contain no path on the server."""

    def plain(sentence: str) -> str:
        return sentence if isinstance(sentence, LocalizedText) else without_paths(sentence)

    return tuple(replace(finding, sentence=plain(finding.sentence)) for finding in findings)


def finding_json(finding: Finding, say: Callable[[str], Any] = str) -> dict[str, Any]:
    """Return a finding as JSON; `say` converts its texts."""
    numbers = {name: to_lists(getattr(finding, name)) for name in ("number", "threshold")}
    return {**vars(finding), **numbers, **{name: say(getattr(finding, name)) for name in TEXTS}}


def step_json(service: AnalysisService, key: str, number: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Run check `number` on a run's checkpoint; return its findings and the next number, as JSON.

    With `quick`, cheap checks alone follow, on half of the cores.
    """
    quick, place = bool(query.get("quick")), int(number) if number.isdecimal() and len(number) < 4 else number
    with service.work.sparing() if quick else nullcontext():
        step = service.checks.step(key, query.get("set", ""), place, quick)
    details = [finding_json(finding, text_to_json) for finding in public(step.findings)]
    return {"findings": details, "next": step.next, "images": step.images, "share": step.share}


def file(service: AnalysisService, key: str, name: str, query: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the findings computed so far as a file's bytes and its name: report.html or report.csv."""
    report = service.checks.report(key, query.get("set", ""))
    report = replace(report, findings=public(report.findings))
    made = {"report.html": report.html, "report.csv": report.csv}
    if name not in made:
        raise Unknown(f"There is no file {quoted(name)}; there are {' and '.join(made)}.")
    return made[name]().encode(), f"vitviz-check.{name.partition('.')[2]}"
