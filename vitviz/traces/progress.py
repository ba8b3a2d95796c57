"""How far something long is: whoever asks says whom to tell, whoever computes tells it between two steps.

It belongs to the context it is written in, as `vitviz.stopping` does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[int, int], object]
_report: ContextVar[Report | None] = ContextVar("vitviz_progress", default=None)


@contextmanager
def to(report: Report) -> Iterator[None]:
    """What is computed inside tells `report(done, of)` how many of its steps are done: a trace, its layers.

    >>> with to(print):
    ...     tell(3, 12)
    3 12
    """
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def tell(done: int, of: int) -> None:
    """Between two steps of something long: so many are done."""
    report = _report.get()
    if report is not None:
        report(done, of)
