"""Cancellation: the caller says when a computation is obsolete, and the computation checks between steps.

The condition belongs to the current context (`contextvars`). Computations in other threads continue.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from vitviz.errors import Stopped

T = TypeVar("T")
StopCheck = Callable[[], bool]
_asked: ContextVar[tuple[StopCheck, ...]] = ContextVar("vitviz_stopping", default=())


@contextmanager
def bind(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable for the duration of a with block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def when(gone: StopCheck) -> AbstractContextManager[None]:
    """Stop the computations inside the block, soon after `gone()` returns True.

    They stop with Stopped, or with the exception that `gone` itself raises. `gone` is called once per layer,
    so it should be fast. Blocks can be nested; every condition of the enclosing blocks applies.

    >>> with when(lambda: True):
    ...     check()
    Traceback (most recent call last):
    vitviz.errors.Stopped: This was given up, because nobody waits for it any longer.
    """
    return bind(_asked, (*_asked.get(), gone))


def check() -> None:
    """Raise Stopped if the current computation was cancelled. Long computations call this between steps."""
    for gone in _asked.get():
        if gone():
            raise Stopped("This was given up, because nobody waits for it any longer.")
