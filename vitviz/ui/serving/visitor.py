"""Whether anybody still waits for an answer: a page may be closed in the middle of a long download or forward
pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio.from_thread
from fastapi import Request
from gradio.context import LocalContext

from vitviz.errors import Stopped

LOOKS = 0.25  # seconds between two looks at a connection

_connection: ContextVar[Callable[[], bool] | None] = ContextVar("vitviz_connection", default=None)


class Gone(Stopped):
    """The page that asked has been closed."""


def gone() -> bool:
    """Whether whoever the running listener or route works for has left; False outside of both."""
    blocks, number = LocalContext.blocks.get(None), LocalContext.event_id.get(None)
    # Gradio gives up what waits in its queue and generators between two steps, but tells no function that
    # runs.
    event = blocks._queue.event_ids_to_events.get(number) if blocks and number else None
    if event is not None:
        return not event.alive
    broken = _connection.get()
    return broken is not None and broken()


def require_visitor() -> None:
    """Raises Gone once nobody waits for what the running listener or route does; nothing outside of both."""
    if gone():
        raise Gone("The page that asked for this has been closed.")


def page() -> str | None:
    """Gradio's name for the page that the running listener works for, known to it alone. None outside."""
    return getattr(LocalContext.request.get(None), "session_hash", None)


def name() -> str:
    """Whose turn it is: the same for everything that one page asks for through listeners, as far as that is
    known.
    """
    request = LocalContext.request.get(None)
    if request is None:
        return ""
    return (
        getattr(request, "session_hash", None)
        or getattr(getattr(request, "client", None), "host", None)
        or ""
    )


@contextmanager
def asking(request: Request) -> Iterator[None]:
    """Around what a route computes in its thread: whoever asked is gone when the connection is."""
    last, found = time.monotonic(), False

    def broken() -> bool:
        nonlocal last, found
        if not found and time.monotonic() > last + LOOKS:
            found = anyio.from_thread.run(request.is_disconnected)
            last = time.monotonic()
        return found

    token = _connection.set(broken)
    try:
        yield
    finally:
        _connection.reset(token)
