"""The door: what is refused before Gradio sees it, each time with a sentence.

It stands outermost, before Gradio's own CORS answers. What it lets through is checked once more where it is
used.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from vitviz.ui.serving import uploads
from vitviz.ui.serving.calls import Calls, Refused
from vitviz.ui.serving.hosts import Hosts

LARGEST = 4 * 2**20  # bytes of a question; one that names a thousand uploads has a tenth of it
# Gradio's that the page does not use: they fetch any address for a stranger, write on the disk, or call
# components.
CLOSED = re.compile(
    r"/gradio_api/(proxy=|file=\s*\w{2,}:|deep_link|process_recording|component_server|custom_component/|"
    r"stream/|reset/?$|vibe-)",
    re.IGNORECASE,
)


NO_FORM = (
    "This upload could not be taken: expected a form with files under plain names. Send it again; if it fails"
    " once more, the log of the server says why."
)


class Door:
    """ASGI middleware around the whole app."""

    def __init__(self, app: Any, hosts: Hosts, calls: Calls, quota: uploads.Quota):
        self._app, self._hosts, self._calls, self._quota = app, hosts, calls, quota

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        try:
            self._admit(scope)
            if scope["type"] == "http" and scope["method"] == "POST":
                uploading = self._uploads(scope["path"])
                receive = self._counted(scope, receive) if uploading else await self._read(scope, receive)
                send = _worded(scope, receive, send) if uploading else send
        except Refused as refused:
            return await JSONResponse({"detail": str(refused)}, status_code=refused.status)(
                scope, receive, send
            )
        await self._app(scope, receive, send)

    def _admit(self, scope) -> None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host"), headers.get("origin")
        if not self._hosts.serves(host):
            raise Refused(
                403,
                f"vitviz is not served as {_short(host)} here. If it should, start it with --allowed-host.",
            )
        if not self._hosts.trusts(origin):
            raise Refused(
                403,
                f"A page of {_short(origin)} may not use this. If it should, start it with --allowed-host.",
            )
        if CLOSED.search(scope["path"]):
            raise Refused(404, "There is nothing here.")

    def _uploads(self, path: str) -> bool:
        return path.rstrip("/").endswith("/upload") and not self._calls.named(path)

    async def _read(self, scope, receive) -> Callable:
        """What hands a question on, once it has arrived whole and is checked."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                break
            body += message.get("body", b"")
            if len(body) > LARGEST:
                raise Refused(
                    413, f"The question is larger than {LARGEST // 2**20} MB, the most that is accepted."
                )
            if not message.get("more_body"):
                break
        self._calls.check(scope["path"], _parsed(bytes(body)))
        whole: list[dict] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def again() -> dict:
            return whole.pop() if whole else await receive()

        return again

    def _counted(self, scope, receive) -> Callable:
        """What hands an upload on as it arrives, counted."""
        most = self._quota.request
        if int(Headers(scope=scope).get("content-length") or 0) > most:
            raise Refused(413, _too_much(most))
        arrived = 0

        async def counting() -> dict:
            nonlocal arrived
            message = await receive()
            size = len(message.get("body", b""))
            arrived += size
            if arrived > most:
                return {"type": "http.disconnect"}
            if self._quota.full(size):
                await asyncio.to_thread(self._quota.make_room)
            return message

        return counting


def lifespan(hosts: Hosts, calls: Calls, quota: uploads.Quota) -> Callable:
    """Puts the door before all else as an app starts: middleware given to Gradio stands behind its own."""

    @asynccontextmanager
    async def running(app):
        app.middleware_stack = Door(app.middleware_stack, hosts, calls, quota)
        yield

    return running


def _worded(scope, receive, send) -> Callable:
    """Says so where Gradio fails over an upload: its own answer is HTTP 500 without a word."""
    failed = False

    async def worded(message) -> None:
        nonlocal failed
        if not failed and message["type"] == "http.response.start" and message["status"] == 500:
            failed = True
            await JSONResponse({"detail": NO_FORM}, status_code=400)(scope, receive, send)
        elif not failed:
            await send(message)

    return worded


def _parsed(body: bytes) -> Any:
    try:
        parsed = json.loads(body) if body else None
        json.dumps(parsed, ensure_ascii=False).encode()  # half a character would break off what quotes it
    except (ValueError, RecursionError):
        raise Refused(400, "The question is no JSON that can be read.") from None
    return parsed


def _too_much(most: int) -> str:
    return f"These files have more than {most / 1e6:.0f} MB together, the most at once. Send fewer."


def _short(name: str | None) -> str:
    """A name out of a header as plain text: it may be anything."""
    return re.sub(r"[^\w.:\[\]/-]", "_", name or "nothing")[:100]
