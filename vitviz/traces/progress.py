"""Progress of long computations: the caller sets a report function that is called between steps.

The function belongs to the current context (`contextvars`), as in `vitviz.traces.cancellation`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar

from vitviz.traces.cancellation import bind

Report = Callable[[int, int], object]
_report: ContextVar[Report | None] = ContextVar("vitviz_progress", default=None)


def to(report: Report) -> AbstractContextManager[None]:
    """Call `report(done, of)` as the computations inside the block proceed; a trace reports its layers.

    >>> with to(print):
    ...     tell(3, 12)
    3 12
    """
    return bind(_report, report)


def tell(done: int, of: int) -> None:
    """Report that `done` of `of` steps are complete; long computations call this between steps."""
    report = _report.get()
    if report is not None:
        report(done, of)
