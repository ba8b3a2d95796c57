"""Cache of the page and its configuration, which are identical for all visitors of one host name.

Gradio builds both anew for every visitor: half a second of Python, which waits for other computations. Both
also reveal the upload folder's path on the server. This middleware replaces the path by a placeholder, and
the placeholder by the path in incoming requests. It puts our language script before everything else (Gradio
inserts `head=` only after it has chosen its own language), preloads the typefaces, and adds metadata for
link previews.
"""

import gzip
import html
import json
import re
from typing import Any

from gradio.utils import LRUCache, get_upload_folder
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from vitviz.server import i18n
from vitviz.views import typefaces

SAME = ("/", "/config", "/config/")  # without a query, which the page does not need here
NAMES = ("host", "x-forwarded-host", "x-forwarded-proto")  # Gradio builds the addresses from these
FOLDER = "/uploads-of-vitviz"
MOST = 32  # entries; host names of one site
CARD = "/gradio_api/vitviz/card.jpg"
_INSTEAD = {
    b'content="Gradio"': b'content="vitviz"',
    b'content="@Gradio"': b'content="vitviz"',
    b"Click to try out the app!": b"See what happens inside a Vision Transformer, on your own photograph.",
    b'<meta property="og:image" content="" />': b"",
}
_PICTURE = re.compile(rb'https://[^"]+/header-image\.jpg')


def resolve_placeholder(question: bytes) -> bytes:
    """Return a request's body with the placeholder replaced by the upload folder."""
    return question.replace(f'"{FOLDER}/'.encode(), json.dumps(f"{get_upload_folder()}/")[:-1].encode())


class PageCache:
    """ASGI middleware around Gradio."""

    def __init__(self, app: Any, root_path: str = ""):
        self._app, self._root_path = app, root_path
        self._made: LRUCache[tuple, dict[bool, Response]] = LRUCache(MOST)  # gzipped (True) and plain

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return await self._app(scope, receive, send)
        if f"file={FOLDER}/" in scope["path"]:
            folder = get_upload_folder()
            path = scope["path"].replace(f"file={FOLDER}/", f"file={folder}/", 1)
            return await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, send)
        if scope["path"] not in SAME or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        asked = Headers(scope=scope)
        which = (scope["path"], scope["scheme"], *(asked.get(name) for name in NAMES))
        if which not in self._made:
            plain = MutableHeaders(scope=scope).mutablecopy()
            del plain["accept-encoding"]
            start, body = await self._whole({**scope, "headers": plain.raw, "query_string": b""}, receive)
            if start["status"] != 200:
                await send(start)
                return await send({"type": "http.response.body", "body": body})
            body = body.replace(get_upload_folder().encode(), FOLDER.encode())
            if scope["path"] == "/":
                first = f"<head><script>{i18n.language_script()}</script>{typefaces.preloads()}".encode()
                body = with_link_preview(body.replace(b"<head>", first, 1), scope, self._root_path)
            details = {**Headers(raw=start["headers"]), "vary": "accept-encoding"}
            details.pop("content-length", None)
            packed = Response(gzip.compress(body), headers={**details, "content-encoding": "gzip"})
            self._made[which] = {True: packed, False: Response(body, headers=details)}
        answer = self._made[which]["gzip" in asked.get("accept-encoding", "")]
        await answer(scope, receive, send)

    async def _whole(self, scope, receive) -> tuple[dict, bytes]:
        """Run the app for a request; return its response start message and its whole body."""
        start, body = {}, bytearray()

        async def take(message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                body.extend(message.get("body", b""))

        await self._app(scope, receive, take)
        return start, bytes(body)


def with_link_preview(page: bytes, scope, root_path: str = "") -> bytes:
    """Return the page with our title, description and image for link previews.

    `root_path` is the prefix that a proxy removes from each path.
    """
    headers = Headers(scope=scope)
    # `SecurityMiddleware` has removed a forwarded host that is not allowed
    host = headers.get("x-forwarded-host") or headers.get("host", "")
    scheme = headers.get("x-forwarded-proto") or scope["scheme"]
    where = "://".join(one.partition(",")[0].strip() for one in (scheme, host))
    picture = html.escape(f"{where}{root_path.rstrip('/')}{CARD}").encode("latin-1")
    page = _PICTURE.sub(lambda _: picture, page)
    for theirs, ours in _INSTEAD.items():
        page = page.replace(theirs, ours)
    return page
