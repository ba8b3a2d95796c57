"""Work that nobody waits for is given up: whoever asks says when, whoever computes looks between steps.

It belongs to the context it is written in: what other threads compute meanwhile goes on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from vitviz.errors import Stopped

StopCheck = Callable[[], bool]
_asked: ContextVar[tuple[StopCheck, ...]] = ContextVar("vitviz_stopping", default=())


@contextmanager
def when(gone: StopCheck) -> Iterator[None]:
    """What is computed inside ends, by Stopped or what `gone` itself raises, soon after `gone()` is True.

    It is asked once a layer, so it should be quick. Several hold at once where one stands inside another.

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
    """Between two steps of something long: raises where nobody waits for it."""
    for gone in _asked.get():
        if gone():
            raise Stopped("This was given up, because nobody waits for it any longer.")
