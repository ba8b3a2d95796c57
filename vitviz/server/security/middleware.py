"""Security middleware: checks requests before Gradio sees them; each refusal is a sentence.

The middleware is outermost, outside Gradio's own CORS handling. Values that pass are checked again where they
are used.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import ipaddress
import logging
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
import gradio as gr
from gradio.blocks import BlocksConfig
from gradio.utils import LRUCache
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException as Refused
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import JSONResponse, Response

from vitviz.errors import whole_number
from vitviz.server.i18n import language_of, translate
from vitviz.server.security import request_context, uploads
from vitviz.server.security.page_cache import PageCache, resolve_placeholder
from vitviz.server.security.scheduler import FairScheduler
from vitviz.traces.localized_text import message_of
from vitviz.traces.unicode import parse_json

_log = logging.getLogger("vitviz")
LARGEST = 4 * 2**20  # bytes of a request body; one that names a thousand uploads takes a tenth
# Gradio routes that the page does not use: they fetch any URL for a stranger, write to disk, or call
# components.
CLOSED = re.compile(
    r"/gradio_api/(proxy=|file=\s*\w{2,}:|deep_link|process_recording|component_server|custom_component/|"
    r"stream/|[\w-]*vibe-)",
    re.IGNORECASE,
)
# Gradio writes inline scripts and styles and builds functions from text, but needs no other host
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; img-src 'self' data: blob:;"
    " style-src 'self' 'unsafe-inline'; media-src 'self' data: blob:; font-src 'self' data:;"
    " connect-src 'self' data: blob:{hub}; worker-src 'self' blob:; object-src 'none'; base-uri 'self';"
    " form-action 'self'"
)
BESIDE = ("x-forwarded-host", "x-gradio-server")  # Gradio builds a page's addresses from these
STREAM = re.compile(r"/gradio_api/(queue/data/?$|call/(v2/)?[^/]+/(?P<event>[^/]+)/?$)")
NO_EVENT = "No such event: it was already answered or cancelled."
NO_SESSION = (
    'data: {"msg": "unexpected_error", "message": "", "success": false, "session_not_found": true}\n\n'
)
BY_NAME = re.compile(r"/gradio_api/(?P<way>run|api|call/v2|call)/(?P<name>[^/]*)/?$")
JOIN = re.compile(r"/gradio_api/queue/join/?$")
MOST_FILES = 1_000  # named by one request
LONGEST = 100  # characters of a session's name; Gradio's have about ten
THREADS = 256  # that wait for a turn or compute, for all visitors together

NO_FORM = (
    "The upload failed: expected a form with plain file names. Send it again; if it still fails, "
    "see the server log."
)


DISK_FULL = (
    "The upload failed: the server's disk for uploads is full. The oldest uploads were removed. "
    "Send it again; if it still fails, the operator of the server must free disk space."
)
FULL = (errno.ENOSPC, errno.EDQUOT)


class SecurityMiddleware:
    """ASGI middleware around the whole app."""

    def __init__(self, app: Any, hosts: Hosts, calls: PageCalls, quota: uploads.Quota, turns: FairScheduler):
        self._app, self._hosts, self._calls, self._quota, self._turns = app, hosts, calls, quota, turns

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        scope, send = dict(scope), _with_headers(scope, send, self._hosts.frame_ancestors)
        try:
            self._admit(scope)
            if scope["type"] == "http" and scope["method"] == "POST":
                path = scope["path"]
                uploading = path.rstrip("/").endswith("/upload") and not BY_NAME.search(path)
                if uploading:
                    return await self._upload(scope, self._count_upload(scope, receive), send)
                receive = await self._read(scope, receive)
        except Refused as refused:
            return await _refusal(refused.detail, refused.status_code, scope)(scope, receive, send)
        stream = STREAM.search(scope["path"])
        if scope["type"] != "http" or not stream or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        name = stream["event"] or QueryParams(scope["query_string"]).get("session_hash", "")
        if not self._calls.awaited(name):  # Gradio's own handler fails for unknown names
            lost = Response(NO_SESSION, media_type="text/event-stream")
            return await (_refusal(NO_EVENT, 404, scope) if stream["event"] else lost)(scope, receive, send)
        with request_context.register_stream(name):  # results are awaited as long as the stream is open
            await self._app(scope, receive, send)

    def _admit(self, scope) -> None:
        """Remove untrusted forwarding headers. Raises Refused for a wrong host, origin or path."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host"), headers.get("origin")
        if not self._hosts.serves(host):
            said = f"vitviz is not served as {_short(host)} here"
            raise Refused(403, f"{said}. If it should, start it with --allowed-host.")
        if not self._hosts.trusts(origin, host):
            said = f"A page of {_short(origin)} may not use this"
            raise Refused(403, f"{said}. If it should, start it with --allowed-host.")
        if CLOSED.search(scope["path"]):
            raise Refused(404, "Not found.")
        named = MutableHeaders(scope=scope)
        for name in BESIDE:
            first = named.get(name, "").partition(",")[0].strip()
            if first and not self._hosts.serves(first.rpartition("://")[2]):
                del named[name]
        scope["headers"] = named.raw

    async def _read(self, scope, receive) -> Callable:
        """Read and check a request's whole body; return a receiver that passes it on."""
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > LARGEST:
                most = f"{LARGEST // 2**20} MB, the most that is accepted"
                raise Refused(413, f"The question is larger than {most}.")
            more = message.get("more_body")
        asked = resolve_placeholder(bytes(body))
        try:
            parsed = parse_json(asked) if asked else None
        except (ValueError, RecursionError):
            raise Refused(400, "The request is not valid JSON.") from None
        self._calls.check(scope["path"], parsed)
        whole: list[dict] = [{"type": "http.request", "body": asked, "more_body": False}]

        async def again() -> dict:
            return whole.pop() if whole else await receive()

        return again

    async def _upload(self, scope, receive, send) -> None:
        """Pass on an upload, and explain failures, for which Gradio sends HTTP 500 without a message.

        A failed upload leaves nothing on the disk.
        """
        begun = failed = False

        async def worded(message) -> None:
            nonlocal begun, failed
            failed = failed or (not begun and message.get("status") == 500)
            begun = True
            if not failed:
                await send(message)

        full = False
        try:
            with uploads.remove_incomplete_parts():
                await self._app(scope, receive, worded)
        except ClientDisconnect:  # the client cut the upload short, which is no error
            pass
        except OSError as error:
            full = error.errno in FULL
            if not full:
                raise
            _log.warning("An upload found no room on the disk (%s).", error.strerror)
        finally:
            if full:
                await asyncio.to_thread(self._quota.make_room)
            if failed or (full and not begun):
                details = (DISK_FULL, 507) if full else (NO_FORM, 400)
                await _refusal(*details, scope)(scope, receive, send)

    def _count_upload(self, scope, receive) -> Callable:
        """Return a receiver that counts an upload's bytes. Raises Refused if the visitor's queue is full."""
        visitor = request_context.listener_name(HTTPConnection({"query_string": b"", **scope}))
        if too_much := self._turns.full(visitor):
            raise Refused(429, message_of(too_much))
        most = self._quota.request
        sentence = f"These files have more than {most / 1e6:.0f} MB together, the most at once. Send fewer."
        too_large = Refused(413, sentence, {"Connection": "close"})  # the rest is not read
        if int(Headers(scope=scope).get("content-length") or 0) > most:
            raise too_large
        arrived = 0

        async def counting() -> dict:
            nonlocal arrived
            message = await receive()
            size = len(message.get("body", b""))
            arrived += size
            if arrived > most:
                raise too_large
            if self._quota.full(size):
                await asyncio.to_thread(self._quota.make_room)
            return message

        return counting


class _Undescribed(BlocksConfig):
    """Gradio's session state without the description of all components.

    The description takes a tenth of a second of Python per session. It serves deep links, which are disabled.
    """

    @staticmethod
    def config_for_block(*given) -> dict:
        """Return {} instead of Gradio's description of a component, which takes long."""
        return {}

    def __copy__(self) -> BlocksConfig:
        new = super().__copy__()
        new.__class__ = _Undescribed
        return new


def lifespan(hosts: Hosts, calls: PageCalls, quota: uploads.Quota, turns: FairScheduler) -> Callable:
    """Install the middleware outermost at startup; middleware given to Gradio runs after Gradio's own."""

    @asynccontextmanager
    async def running(app):
        pages = PageCache(app.middleware_stack, app.root_path or "")
        app.middleware_stack = SecurityMiddleware(pages, hosts, calls, quota, turns)
        app.get_blocks().default_config.__class__ = _Undescribed
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield

    return running


def _with_headers(scope, send, frame_ancestors: Sequence[str]) -> Callable:
    """Return `send` with added headers; a page also gets its content policy and the session cookie."""
    page = scope["type"] == "http" and scope["path"] == "/"
    # on a Space the page is in a frame of another site
    where = "SameSite=None; Secure; Partitioned" if os.environ.get("SPACE_HOST") else "SameSite=Lax"
    schemes = scope.get("scheme"), Headers(scope=scope).get("x-forwarded-proto", "").partition(",")[0].strip()
    where += "; Secure" if "https" in schemes and "Secure" not in where else ""
    policy = POLICY.format(hub=" https://huggingface.co" if os.environ.get("SPACE_HOST") else "")
    policy += f"; frame-ancestors {' '.join(frame_ancestors)}" if frame_ancestors else ""

    async def headed(message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            headers["x-content-type-options"] = "nosniff"
            headers.setdefault("referrer-policy", "same-origin")  # links hold the page's state
            if page:
                headers["content-security-policy"] = policy
            if page and request_context.COOKIE not in HTTPConnection(scope).cookies:
                name = f"{request_context.COOKIE}={secrets.token_hex(12)}"
                headers.append("set-cookie", f"{name}; Path=/; HttpOnly; {where}")
            message = {**message, "headers": headers.raw}
        await send(message)

    return headed


def _refusal(sentence: str, status: int, scope) -> JSONResponse:
    """Return a refusal in the visitor's language.

    For the queue's 422, Gradio's page and gradio_client expect a list of what is wrong with each value; a
    plain sentence would make them fail.
    """
    detail: Any = translate(sentence, language_of(HTTPConnection({"query_string": b"", **scope})))
    if status == 422 and JOIN.search(scope["path"]):
        detail = [{"__type__": "validate", "is_valid": False, "parameter_name": "data", "message": detail}]
    return JSONResponse({"detail": detail}, status_code=status)


def _short(name: str | None) -> str:
    """Return a name from a header as short plain text; headers are untrusted."""
    return re.sub(r"[^\w.:\[\]/-]", "_", name or "nothing")[:100]


class PageMessages(LRUCache):
    """Pending messages of a bounded number of pages.

    Gradio's own cache evicts the oldest page, even a waiting one: two hundred new pages of one visitor would
    cost another visitor the result. This class evicts pages without an open stream first.
    """

    def __setitem__(self, page: str, told: Any) -> None:
        if page not in self and len(self) >= self.max_size:
            self.pop(next((one for one in self if not request_context.has_listener(one)), None), None)
        OrderedDict.__setitem__(self, page, told)


class PageCalls:
    """Listeners of one page; checks requests by name, number of values, and named files.

    Without these checks the caller would get "error: null" or HTTP 500.
    """

    def __init__(self, demo: gr.Blocks):
        self._queue = demo._queue
        self._inputs = {number: fn.inputs for number, fn in demo.fns.items()}
        public = {number: fn for number, fn in demo.fns.items() if fn.api_visibility == "public"}
        parameters = {number: inspect.signature(fn.fn).parameters for number, fn in public.items()}
        self._public = {fn.api_name: (n, list(parameters[n].values())) for n, fn in public.items()}

    def awaited(self, name: str) -> bool:
        """Return True if a session or an event of this name has pending results."""
        queue = self._queue
        known = name in queue.pending_messages_per_session or name in queue.event_ids_to_events
        return known or any(name in events for events in tuple(queue.pending_event_ids_session.values()))

    def check(self, path: str, body: Any) -> None:
        """Raise Refused for a request that no listener can answer."""
        by_name, join = BY_NAME.search(path), JOIN.search(path)
        if by_name or join:
            if not isinstance(body, dict):
                raise Refused(422, 'Expected a JSON object such as {"data": ["coffee"]}.')
            session = body.get("session_hash") or ""
            if not isinstance(session, str) or len(session) > LONGEST:
                raise Refused(422, f"session_hash is no text of at most {LONGEST} characters.")
        if by_name:
            self._check_named(by_name["name"], by_name["way"] == "call/v2", body)
        elif join:
            self._check_numbered(body)
        _check_files(body)

    def _check_named(self, name: str, spelled: bool, body: dict) -> None:
        """Raise Refused unless `name` is a public endpoint and the request fits its parameters.

        If `spelled`, the body holds values by parameter name, otherwise a list as `data`.
        """
        if name not in self._public:  # the page's own listeners have names too, but are private
            known = ", ".join(self._public)
            raise Refused(404, f"There is no endpoint of this name: expected one of {known}.")
        number, parameters = self._public[name]
        if spelled:
            return _check_parameter_names(name, parameters, body)
        if body.get("fn_index") not in (None, number):
            raise Refused(422, f"fn_index is not that of {name}. Leave it out.")
        data = body.get("data")
        if not isinstance(data, list) or len(data) != len(parameters):
            expected = f"{len(parameters)} values ({_signature(parameters)})"
            raise Refused(422, f"{name} takes {expected} and was given {_count_in_words(data)}.")

    def _check_numbered(self, body: dict) -> None:
        """Raise Refused unless `fn_index` is a listener and its `data` has enough valid values."""
        number, data = whole_number(body.get("fn_index")), body.get("data")
        if number not in self._inputs:
            raise Refused(404, "fn_index is not the number of a listener of this page.")
        inputs = self._inputs[number]
        if not isinstance(data, list) or len(data) < len(inputs):
            expected = f"data of {len(inputs)} values"
            raise Refused(422, f"This listener takes {expected}, but was given {_count_in_words(data)}.")
        for block, value in zip(inputs, data, strict=False):
            model = getattr(block, "data_model", None)  # on the page, only file inputs have one
            try:
                if model is not None and value is not None:
                    model.model_validate(value, context={"validate_meta": True})  # as Gradio does
            except (ValueError, TypeError):
                raise Refused(422, uploads.NOT_UPLOADED) from None


def _check_parameter_names(name: str, parameters: list[inspect.Parameter], body: dict) -> None:
    """Raise Refused if a request by parameter name lacks a required value or has an unknown name."""
    missing = [one.name for one in parameters if one.default is one.empty and one.name not in body]
    unknown = body.keys() - {one.name for one in parameters}
    if missing or unknown:
        wrong = f"was given {len(unknown)} values of other names"
        wrong = f"is missing {', '.join(missing)}" if missing else wrong
        raise Refused(422, f"{name} takes {_signature(parameters)}, but {wrong}.")


def _count_in_words(data: Any) -> str:
    """Return the number of values in a request's data as text; "no list" if it is not a list."""
    return f"{len(data)} values" if isinstance(data, list) else "no list"


def _signature(parameters: list[inspect.Parameter]) -> str:
    """Return an endpoint's parameters as text for a refusal, such as "image, count=5"."""
    named = (one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in parameters)
    return ", ".join(named)


def _check_files(body: Any) -> None:
    """Raise Refused if a file outside the upload folder is named, in any form."""
    for count, path in enumerate(_paths(body)):
        if count >= MOST_FILES:
            raise Refused(413, f"More than {MOST_FILES} files are named at once.")
        try:
            uploads.resolve_inside(path)
        except uploads.NotUploaded as error:
            raise Refused(422, str(error)) from None


def _paths(body: Any) -> Iterator[Any]:
    """Yield every `path` value of nested objects."""
    nested = (dict, list)
    waiting = [body] if isinstance(body, nested) else []
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("path") is not None:
                yield one["path"]
            one = one.values()
        waiting += [part for part in one if isinstance(part, nested)]


class Hosts:
    """Host names that the app serves: every name, if served to a network without a list of allowed names.

    A page of another site must not use the app through a visitor's browser. A foreign site can point its own
    name to 127.0.0.1 (DNS rebinding); the browser then treats the requests of that site's page as
    same-origin. Only the Host header reveals the name. Starlette's TrustedHostMiddleware was tried: it reads
    `[::1]:7860` as `[`, does not check the origin, and its refusal does not say what to do.

    >>> hosts = Hosts("127.0.0.1", ["vit.example.org", "*.lab.example"])
    >>> [hosts.serves(name) for name in ("localhost:7860", "[::1]:7860", "vit.example.org", "evil.example")]
    [True, True, True, False]
    >>> Hosts("0.0.0.0", []).serves("any.example")
    True
    """

    def __init__(
        self, bound: str, allowed: Iterable[str] = (), share: bool = False,
        frame_ancestors: Sequence[str] = (),
    ):  # fmt: skip
        self.frame_ancestors = frame_ancestors  # pages that may embed ours, in CSP's form; () for every page
        self._allowed = {name.lower().strip(".") for name in allowed}
        bound = _name(bound) or bound
        self._all = "*" in self._allowed or (not self._allowed and not _local(bound))
        if not _local(bound):
            self._allowed.add(bound.lower())
        if share:
            self._allowed.add("*.gradio.live")  # addresses of Gradio's public links

    def serves(self, host: str | None) -> bool:
        """True if a `Host` header names this app; False for a list of names or an invalid name."""
        return host is None if self._all and not _name(host) else self._all or self._known(_name(host))

    def trusts(self, origin: str | None, host: str | None) -> bool:
        """True if an `Origin` header names this app, or if there is none (sent by no page's script).

        Another port of this machine is another program, whose page is not trusted.
        """
        if self._all or origin is None:
            return True
        theirs = origin.partition("://")[2]
        name = _name(theirs)
        same = not _local(name) or _port(theirs) == _port(host)
        return name in self._allowed or (self._known(name) and same)

    def _known(self, name: str) -> bool:
        """Return True if the name is this machine's, is allowed, or matches an allowed *.name."""
        wildcards = (known[1:] for known in self._allowed if known.startswith("*."))
        return _local(name) or name in self._allowed or name.endswith(tuple(wildcards))


def _name(host: str | None) -> str:
    """Return a host name without port and brackets; '' if invalid."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".") if host else ""
    except ValueError:
        return ""
    return "" if re.search(r"[\s,@/]", host or "") else name


def _port(host: str | None) -> int | None:
    """Return the port in a host such as "localhost:7860"; None if it has none or is invalid."""
    try:
        return urlsplit(f"//{host}").port
    except ValueError:
        return None


def _local(name: str) -> bool:
    """True if a name denotes this machine regardless of DNS."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
