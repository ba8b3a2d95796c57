"""Cancellation: the caller says when a computation is obsolete, and the computation checks between steps.

The condition belongs to the current context (`contextvars`). Computations in other threads continue.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from vitviz.errors import Stopped

StopCheck = Callable[[], bool]
_asked: ContextVar[tuple[StopCheck, ...]] = ContextVar("vitviz_stopping", default=())


@contextmanager
def when(gone: StopCheck) -> Iterator[None]:
    """Stop the computations inside the block, soon after `gone()` returns True.

    They stop with Stopped, or with the exception that `gone` itself raises. `gone` is called once per layer,
    so it should be fast. Blocks can be nested; every condition of the enclosing blocks applies.

    >>> with when(lambda: True):
    ...     check()
    Traceback (most recent call last):
    vitviz.errors.Stopped: This was given up, because nobody waits for it any longer.
    """
    token = _asked.set((*_asked.get(), gone))
    try:
        yield
    finally:
        _asked.reset(token)


def check() -> None:
    """Raise Stopped if the current computation was cancelled. Long computations call this between steps."""
    for gone in _asked.get():
        if gone():
            raise Stopped("This was given up, because nobody waits for it any longer.")
