"""The model check: every finding as it comes, and the whole report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from vitviz.analyses.protocol import TITLES
from vitviz.diagnostics import attention, head, inputs, maps, numbers, weights
from vitviz.diagnostics.finding import Finding, Report
from vitviz.diagnostics.subject import LIMIT, CheckedImage, CheckSubject, images_of
from vitviz.engine.inspector import Inspector
from vitviz.errors import ImageError, OutOfMemory, Stopped, TooMuch, VitvizError, quoted, require_whole
from vitviz.traces import cancellation
from vitviz.traces.localized_text import message_of

Check = Callable[[CheckSubject], Iterator[Finding]]
CHECKS = {
    "weights": (
        weights.finite, numbers.determinism, weights.initial, weights.constants, weights.positions,
        weights.channels, weights.repeated, weights.stored_precision, weights.heads,
    ),
    "input": (inputs.informed, *inputs.COMPARISONS, inputs.crop),
    "head": (head.outputs, head.head_type, head.class_bias, head.belongs, head.labels),
    "attention": (attention.uniform, attention.sinks, attention.outliers, attention.collapse),
    "maps": (maps.specific, maps.randomised, maps.faithful),
    "numbers": (numbers.range_of_values, numbers.balance, numbers.precision),
}  # fmt: skip
OF_CLASSES = {"input", "head", "maps"}  # groups of checks that need class scores
QUICK = (*CHECKS["weights"][:-1], *CHECKS["input"][:2])  # cheap checks that find the commonest faults
FINAL = {"not_finite", "no_forward_pass", "not_deterministic"}  # after these nothing else can be computed


def all_checks() -> list[tuple[str, Check]]:
    """Return every check with its group, in order."""
    return [(group, check) for group, checks in CHECKS.items() for check in checks]


def ends(findings: Iterable[Finding]) -> bool:
    """True if no further check can be computed after these findings."""
    return any(result.severity == "serious" and result.name in FINAL for result in findings)


def results(subject: CheckSubject, group: str, check: Check) -> list[Finding]:
    """Return the findings of one check; if the check does not apply, its reason as a finding.

    Raises:
        Stopped: The request was cancelled.
        TooMuch, OutOfMemory: The limits of time or memory were reached.
        ImageError: An image cannot be read.
    """
    cancellation.check()
    try:
        if group in OF_CLASSES:
            subject.require_classes()
        found = list(check(subject))
        subject.causes.update(one.name for one in found if one.severity == "serious")
        return found
    except (Stopped, TooMuch, OutOfMemory, ImageError):
        raise
    except VitvizError as error:
        failed = group != "weights" and "traces" not in vars(subject)  # no forward pass has succeeded
        name, severity = ("no_forward_pass", "serious") if failed else ("not_checked", "number")
        return [Finding(name, group, severity, message_of(error))]


def findings(
    inspector: Inspector, images: Sequence[CheckedImage], method: str = "frozen"
) -> Iterator[Finding]:
    """Yield the findings of all checks in order. Closing the generator ends the check."""
    subject = CheckSubject(inspector, tuple(images), method)
    for group, check in all_checks():
        yield from (result := results(subject, group, check))
        if ends(result):
            return


def check(
    inspector: Inspector, images: Any = None, method: str = "frozen", limit: int = LIMIT,
    on_finding: Callable[[Finding], bool | None] | None = None,
) -> Report:  # fmt: skip
    """Check a model for faults that make maps and predictions wrong, and return a report.

    Looks for untrained, damaged and foreign weights, a wrong normalisation, order of channels or position
    table, labels in a wrong order, uniform attention, outlier tokens, and maps that are no
    better than chance. Takes half a minute for a small model and minutes for ViT-B/16 on a CPU.

    Args:
        inspector: The model.
        images: A folder or another source as for `vitviz.survey`, or a list of images; labels of a folder of
            classes are used (names, numbers or WordNet ids). None for the samples that come with vitviz.
        method: The saliency method that is checked, one of `vitviz.METHODS`.
        limit: Maximum number of images, taken evenly from the source.
        on_finding: Called with every finding as it comes; False ends the check.

    Returns:
        `.serious` findings, all `.findings`, `.frame()`, `.save("check.html")`. `print(report)` shows every
        finding with its number, its threshold and what to do.

    Raises:
        VitvizError: There is no image, or the method does not exist.
        ImageError: An image cannot be read.
        Stopped: The request was cancelled.

    >>> import vitviz
    >>> report = check(vitviz.load("vitviz-tiny"), on_finding=lambda finding: finding.group == "weights")
    >>> report.serious
    ()
    """
    if method not in TITLES:
        raise VitvizError(f"method={quoted(method)} is not valid; expected one of {', '.join(TITLES)}.")
    require_whole("limit", limit)
    selected, reported = images_of(inspector, images, limit), []
    for finding in findings(inspector, selected, method):
        reported.append(finding)
        if on_finding is not None and on_finding(finding) is False:
            break
    return Report(inspector.checkpoint.name, len(selected), tuple(reported))
