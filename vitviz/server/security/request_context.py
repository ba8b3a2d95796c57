"""Context of the running request: its visitor, and whether the visitor still waits for the result."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import anyio.from_thread
from fastapi import Request
from gradio.context import LocalContext
from starlette.requests import HTTPConnection

from vitviz.errors import Stopped
from vitviz.traces.cancellation import bind

LOOKS = 0.25  # seconds between two checks of a connection

COOKIE = "vitviz"  # distinguishes the browsers behind one address
# Seconds after which an event without a listener is abandoned. A browser opens its stream within seconds, yet
# not while the server of a busy machine imports torch.
UNHEARD = 15

_connection: ContextVar[tuple[Request, Callable[[], bool]] | None] = ContextVar("_connection", default=None)
_listening: Counter[str] = Counter()  # open streams per session or event name


class PageClosed(Stopped):
    """The page that sent the request has been closed."""


def visitor_has_left() -> bool:
    """True if the visitor of the running listener or route has left; False outside of both."""
    blocks, number = LocalContext.blocks.get(None), LocalContext.event_id.get(None)
    # Gradio cancels queued events, and generators between two steps, but does not notify a running function.
    # It also computes a named call whose result is to be fetched later, even if nobody fetches the result.
    event = blocks._queue.event_ids_to_events.get(number) if blocks and number else None
    if event is not None:
        unheard = time.monotonic() - event.enqueue_time > UNHEARD
        return not event.alive or (unheard and not (_listening[event.session_hash] or _listening[number]))
    asked = _connection.get()
    return asked is not None and asked[1]()


@contextmanager
def register_stream(name: str) -> Iterator[None]:
    """Register an open stream on which results of a session or an event are awaited."""
    _listening[name] += 1
    try:
        yield
    finally:
        _listening[name] -= 1
        if not _listening[name]:
            del _listening[name]


def has_listener(name: str) -> bool:
    """True if a stream for the session or the event is open."""
    return name in _listening


def require_visitor() -> None:
    """Raise PageClosed if the visitor of the running listener or route has left; no-op outside of both."""
    if visitor_has_left():
        raise PageClosed("The page that sent this request has been closed.")


def page_session() -> str | None:
    """Return Gradio's secret session name of the running listener's page; None outside a listener."""
    return getattr(LocalContext.request.get(None), "session_hash", None)


def visitor_name() -> str:
    """Return the visitor: an address and a session, the browser's if it has our cookie."""
    listener, route = LocalContext.request.get(None), _connection.get()
    request = route[0] if route else getattr(listener, "request", None)
    return "" if request is None else listener_name(request, page_session())


def listener_name(request: HTTPConnection, page: str | None = None) -> str:
    """Return the visitor of a request; without our cookie, Gradio's session name identifies the page."""
    session = request.cookies.get(COOKIE) or page or ""
    return f"{request.client.host if request.client else ''} {session[:40]}"


def direct_request() -> Request | None:
    """Return the request that a listener answers directly; None for the queue and outside a listener."""
    if LocalContext.event_id.get(None):
        return None
    return getattr(LocalContext.request.get(None), "request", None)


def bind_request(request: Request | None) -> AbstractContextManager[None]:
    """Bind a computation in a thread to its request; the visitor has left once the connection is closed."""
    last, result = time.monotonic(), False

    def broken() -> bool:
        nonlocal last, result
        if not result and time.monotonic() > last + LOOKS:
            result = anyio.from_thread.run(request.is_disconnected)
            last = time.monotonic()
        return result

    return bind(_connection, None if request is None else (request, broken))
