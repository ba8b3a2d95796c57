"""Each guard of the security middleware, in front of an app that accepts everything."""

import errno
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import gradio as gr
import pytest
from gradio import route_utils
from starlette.requests import ClientDisconnect

from tests import loops
from tests.security.client import MARK
from tests.server.helpers import wait_until
from vitviz.server.i18n import translate
from vitviz.server.security import uploads
from vitviz.server.security.middleware import (
    LARGEST,
    LONGEST,
    MOST_FILES,
    Hosts,
    PageCalls,
    SecurityMiddleware,
)
from vitviz.server.security.scheduler import UNDER_WAY, WAITING, FairScheduler

ACCEPTED = 299  # status of requests that reach the app


def predict(image: str, count: int = 5) -> int:
    return count


def other(image: str) -> str:
    return image


@pytest.fixture(scope="module")
def calls():
    with gr.Blocks() as demo:
        one, two = gr.Textbox(), gr.Textbox()
        one.change(lambda a, b: a, [one, two], [two], api_visibility="private", api_name="hidden")
        gr.api(predict)
        gr.api(other)
        picture, files = gr.Image(), gr.File(file_count="multiple")
        picture.input(lambda a, b: a, [picture, files], [one], api_visibility="private")
    return PageCalls(demo)


@pytest.fixture
def ask(calls):
    """Return a function that sends a request through the middleware.

    It returns the status, the body and the number of bytes that reached the app.
    """
    quota, turns = uploads.Quota(4_000), FairScheduler()

    def send_request(path: str, body: bytes | object = b"", parts: int = 1, hosts=None, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        step = -(-len(content) // parts) or 1
        cut = [content[at * step : (at + 1) * step] for at in range(parts)]
        arriving = [
            {"type": "http.request", "body": one, "more_body": number + 1 < parts}
            for number, one in enumerate(cut)
        ]
        received, sent = bytearray(), []

        async def receive():
            return arriving.pop(0) if arriving else {"type": "http.disconnect"}

        async def app(scope, receive, send):
            send_request.seen = scope
            while True:
                message = await receive()
                received.extend(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    break
            upload_folder = uploads.get_upload_folder()
            if received == b'"parts"':
                parts = [route_utils.NamedTemporaryFile(delete=False, dir=upload_folder) for _ in range(3)]
                Path(parts[0].name).rename(f"{upload_folder}/placed")
                parts[1].close()
            for sign, error in (
                (b'"no room', OSError(errno.ENOSPC, "No space left on device")),
                (b'"forbidden', PermissionError(errno.EACCES, "Permission denied")),
                (b'"gone', ClientDisconnect()),
            ):
                if received.startswith(sign):
                    if b"500" in received or sign == b'"gone':  # Starlette sends this before it raises
                        await send({"type": "http.response.start", "status": 500, "headers": []})
                    raise error
            disconnected = message["type"] == "http.disconnect"
            status = 500 if received == b'"failing"' else 499 if disconnected else ACCEPTED
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        async def send(message):
            sent.append(message)

        named = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [
                (name.encode(), value.encode()) for name, value in named.items() if value is not None
            ],
        }
        loops.run(
            SecurityMiddleware(app, hosts or Hosts("127.0.0.1"), calls, quota, turns)(scope, receive, send)
        )
        send_request.headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], sent[1]["body"].decode(), len(received)

    send_request.turns = turns
    return send_request


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1", "", None, "["])
def test_foreign_host_is_rejected(ask, host):
    assert ask("/config", host=host)[0] == 403
    assert ask("/config", host="127.0.0.1:7860")[0] == ask("/config", host="a.localhost")[0] == ACCEPTED


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "file://", "http://127.0.0.1.evil.example"]
)
def test_foreign_origin_is_rejected(ask, origin):
    assert ask("/config", origin=origin)[0] == 403
    assert ask("/config", origin="http://localhost")[0] == ACCEPTED


def test_origin_with_another_port_is_rejected(ask):
    for origin, status in (("http://localhost:7860", ACCEPTED), ("http://127.0.0.1:7860", ACCEPTED),
                           ("http://localhost:7861", 403), ("http://localhost", 403)):  # fmt: skip
        assert ask("/config", host="127.0.0.1:7860", origin=origin)[0] == status, origin
    proxied = Hosts("127.0.0.1", ["vit.example.org"])
    assert (
        ask("/config", hosts=proxied, host="127.0.0.1:7860", origin="https://vit.example.org")[0] == ACCEPTED
    )


@pytest.mark.parametrize("host", ["a, b", "localhost, evil.example", "a b", "a/b", "x@a"])
def test_host_header_with_several_names_is_rejected(ask, host):
    assert ask("/config", hosts=Hosts("0.0.0.0"), host=host)[0] == 403
    assert ask("/config", host=host)[0] == 403


def test_forwarded_host_is_removed_unless_allowed(ask):
    for name in ("x-forwarded-host", "x-gradio-server"):
        for given, hosts, kept in (
            ("evil.example", Hosts("127.0.0.1"), False),
            ("https://evil.example", Hosts("0.0.0.0", ["vit.example.org"]), False),
            ("evil.example, vit.example.org", Hosts("0.0.0.0", ["vit.example.org"]), False),
            ("vit.example.org", Hosts("127.0.0.1", ["vit.example.org"]), True),
            ("https://vit.example.org", Hosts("127.0.0.1", ["vit.example.org"]), True),
        ):
            ask("/config", hosts=hosts, **{name.replace("-", "_"): given})
            assert ((name.encode(), given.encode()) in ask.seen["headers"]) is kept, (name, given)


def test_responses_are_nosniff_and_page_sets_a_cookie(ask):
    for path in ("/gradio_api/file=/x.png", "/config", "/gradio_api/proxy=x"):
        ask(path)
        assert ask.headers["x-content-type-options"] == "nosniff" and "set-cookie" not in ask.headers
    ask("/")
    cookie = ask.headers["set-cookie"]
    assert cookie.startswith("vitviz=") and "HttpOnly; SameSite=Lax" in cookie
    assert "Secure" not in cookie and ask.headers["referrer-policy"] == "same-origin"
    ask("/", x_forwarded_proto="https")
    assert ask.headers["set-cookie"].endswith("SameSite=Lax; Secure")
    ask("/", cookie="vitviz=abc")
    assert "set-cookie" not in ask.headers


def test_csp_contains_frame_ancestors_only_if_configured(ask, monkeypatch):
    def policy(path: str = "/", **given) -> dict[str, str]:
        ask(path, hosts=Hosts("127.0.0.1", **given))
        directives = ask.headers.get("content-security-policy", "").split("; ")
        return dict(one.partition(" ")[::2] for one in directives)

    assert policy("/config") == {"": ""}
    default = policy()
    assert (
        default["default-src"] == "'self'"
        and default["object-src"] == "'none'"
        and "http" not in str(default)
    )
    assert "frame-ancestors" not in default  # a Space embeds the page
    monkeypatch.setenv("SPACE_HOST", "a-b.hf.space")
    assert policy()["connect-src"].endswith(" https://huggingface.co")
    frames = policy(frame_ancestors=("'self'", "https://moodle.example.org"))
    assert frames["frame-ancestors"] == "'self' https://moodle.example.org"


def test_only_allowed_hosts_are_accepted(ask):
    only = Hosts("0.0.0.0", ["vit.example.org", "*.lab.example"])
    for host, status in (
        ("vit.example.org", ACCEPTED), ("a.lab.example", ACCEPTED), ("VIT.example.org.", ACCEPTED),
        ("localhost", ACCEPTED),
        ("evil.example", 403), ("evillab.example", 403), ("lab.example", 403),
    ):  # fmt: skip
        assert ask("/config", hosts=only, host=host)[0] == status, host
    assert ask("/config", hosts=Hosts("0.0.0.0"), host="any.example")[0] == ACCEPTED
    assert ask("/config", hosts=Hosts("127.0.0.1", share=True), host="a.gradio.live")[0] == ACCEPTED
    assert ask("/config", host="a.gradio.live")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "proxy=http://127.0.0.1:9/x", "file=http://127.0.0.1:9/x", "file= https://example.org",
        "file=FTP:x", "deep_link", "process_recording",
        "component_server", "custom_component/x/client/component/a", "stream/a/b/1/playlist.m3u8",
        "vibe-code/", "undo-vibe-edit/", "PROXY=x",
    ],
)  # fmt: skip
def test_dangerous_gradio_routes_return_404(ask, path):
    status, body, _ = ask(f"/gradio_api/{path}")
    assert status == 404 and "Not found" in body


@pytest.mark.parametrize("path", ["cancel", "reset", "reset/"])
def test_cancel_and_reset_routes_are_open(ask, path):
    """/reset does nothing in Gradio, but a 404 would be an error in the browser's console."""
    assert ask(f"/gradio_api/{path}", b'{"event_id": "x"}')[0] == ACCEPTED


def test_request_body_is_limited_and_valid_json(ask):
    assert ask("/x", b'"' + b"a" * (LARGEST - 2) + b'"', parts=3)[0] == ACCEPTED
    status, _, given = ask("/x", b'"' + b"a" * LARGEST + b'"', parts=3)
    assert status == 413 and given == 0
    assert ask("/x", b"{")[0] == ask("/x", b"[" * 200_000)[0] == ask("/x", b"\xff")[0] == 400
    assert ask("/x", b'{"a": ["\\ud83d"]}')[0] == 400, "a lone surrogate was accepted"
    assert ask("/x", b'{"a": ["\\ud83d\\ude00"]}')[0] == ACCEPTED


def test_upload_is_limited_by_header_and_received_bytes(ask):
    path = "/gradio_api/upload"
    assert ask(path, bytes(900), parts=3)[0] == ACCEPTED
    status, body, given = ask(path, b"", content_length="1001")
    assert status == 413 and given == 0 and "at once" in body
    assert ask(path, bytes(1100), parts=11, content_length="10")[::2] == (413, 1000), (
        "more than the limit was read"
    )
    assert ask("/gradio_api/run/upload", b"not json")[0] == 400, (
        "an endpoint named upload counts as an upload"
    )


def test_upload_of_a_client_with_a_full_queue_is_rejected(ask):
    """Many uploads would block the event loop. A rejection costs nothing."""
    release, path, cookie = Event(), "/gradio_api/upload", {"cookie": "vitviz=mine"}

    def answer():
        with ask.turns.place(" mine"):
            assert release.wait(20)

    with ThreadPoolExecutor(UNDER_WAY + WAITING) as threads:
        assert ask(path, b"file", **cookie)[0] == ACCEPTED
        futures = [threads.submit(answer) for _ in range(UNDER_WAY + WAITING)]
        try:
            wait_until(lambda: ask.turns.full(" mine"))
            status, body, given = ask(path, b"file", **cookie, accept_language="ko")
            assert (status, given) == (429, 0) and "8개가 기다리고" in json.loads(body)["detail"]
            assert ask(path, b"file", cookie="vitviz=other")[0] == ACCEPTED
        finally:
            release.set()
        [one.result(20) for one in futures]
    assert ask(path, b"file", **cookie)[0] == ACCEPTED


def test_failed_upload_is_reported_and_other_errors_stay_500(ask):
    status, body, _ = ask("/gradio_api/upload", b'"failing"')
    assert status == 400 and "plain file names" in json.loads(body)["detail"]
    assert ask("/gradio_api/other", b'"failing"')[:2] == (500, "{}")


def test_full_disk_returns_507_and_evicts_uploads(ask, monkeypatch):
    evictions, known = [], uploads._parts
    monkeypatch.setattr(uploads.Quota, "make_room", lambda quota: evictions.append(known.get()))
    monkeypatch.setattr(uploads, "_free", lambda: 10**12)
    for body in (b'"no room"', b'"no room, 500"'):
        evictions.clear()
        status, text, _ = ask("/gradio_api/upload", body, accept_language="zh-CN")
        assert status == 507 and "磁盘已满" in json.loads(text)["detail"]
        assert evictions[-1] is None, "parts of the upload were not removed first"
    with pytest.raises(PermissionError):
        ask("/gradio_api/upload", b'"forbidden"')
    assert ask("/gradio_api/upload", b'"gone"')[0] == 400


def test_temporary_parts_of_an_upload_are_removed(ask, monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    ask("/gradio_api/upload", b'"parts"')
    assert [path.name for path in tmp_path.iterdir()] == ["placed"] and not uploads._used


def test_uploads_evict_while_arriving(ask, monkeypatch):
    evictions = []
    monkeypatch.setattr(uploads.Quota, "make_room", lambda quota: evictions.append(1))
    ask("/gradio_api/upload", bytes(900), parts=9)
    assert evictions


def test_call_by_name_is_validated(ask):
    valid = {"data": ["coffee", 5]}
    assert ask("/gradio_api/run/predict", valid)[0] == ask("/gradio_api/call/predict/", valid)[0] == ACCEPTED
    assert ask("/gradio_api/run/predict", {**valid, "fn_index": 1})[0] == ACCEPTED
    for name in ("hidden", "nothing", ""):
        status, body, _ = ask(f"/gradio_api/run/{name}", valid)
        assert status == 404 and "predict, other" in body
    for invalid in (
        [],
        3,
        "x",
        {"data": ["coffee"]},
        {"data": "ab"},
        {"data": {"a": 1, "b": 2}},
        {},
        {**valid, "fn_index": 0},
    ):
        assert ask("/gradio_api/run/predict", invalid)[0] == 422, invalid
    for session in (3, ["x"], "x" * (LONGEST + 1)):
        assert ask("/gradio_api/run/predict", {**valid, "session_hash": session})[0] == 422, session
    assert ask("/gradio_api/run/predict", {**valid, "session_hash": "x" * LONGEST})[0] == ACCEPTED
    assert ask("/gradio_api/call/v2/predict", {"image": "coffee"})[0] == ACCEPTED
    for invalid in ({}, {"count": 3}, {"image": "coffee", "colour": 1}):
        assert ask("/gradio_api/call/v2/predict", invalid)[0] == 422, invalid


def test_call_by_number_is_validated(ask):
    path = "/gradio_api/queue/join"
    assert ask(path, {"fn_index": 0, "data": [1, 2]})[0] == ACCEPTED
    for number in (99, -1, None, True, False, 0.0, "0", [0]):
        assert ask(path, {"fn_index": number, "data": [1, 2]})[0] == 404, number
    for data in ([], [1], None, "ab", {"a": 1, "b": 2}):
        assert ask(path, {"fn_index": 0, "data": data})[0] == 422, data


def test_file_inputs_require_file_objects(ask):
    uploaded = {"path": f"{uploads.get_upload_folder()}/mine.png", "meta": MARK}
    for data, status in (
        ([uploaded, None], ACCEPTED),
        ([None, [uploaded, uploaded]], ACCEPTED),
        ([uploaded["path"], None], 422),  # Gradio itself responds "error: null"
        ([[uploaded], None], 422),
        ([None, uploaded["path"]], 422),
        ([None, {"a": [uploaded]}], 422),
    ):
        result, body, _ = ask("/gradio_api/queue/join", {"fn_index": 3, "data": data})
        assert result == status and (status == ACCEPTED or "uploaded here" in body), data


def test_nested_path_of_a_file_not_uploaded_is_rejected(ask):
    for path in ("/gradio_api/run/predict", "/gradio_api/queue/join", "/anything"):
        for given in (
            {"path": "/etc/passwd"},
            [{"path": "/etc/passwd"}],
            {"a": [{"b": {"path": "/etc/passwd"}}]},
            {"path": ["x"]},
            {"path": uploads.get_upload_folder()},
            {"path": 0},
        ):
            status, body, _ = ask(path, {"data": [given, 5], "fn_index": 1})
            assert status == 422 and "uploaded here" in str(json.loads(body)["detail"]), (path, given)
    inside = f"{uploads.get_upload_folder()}/mine.png"
    assert ask("/gradio_api/run/predict", {"data": [{"path": inside}, 5]})[0] == ACCEPTED
    many = {"data": [[{"path": inside}] * (MOST_FILES + 1), 5]}
    assert ask("/gradio_api/run/predict", many)[0] == 413


@pytest.mark.parametrize(
    ("headers", "language"),
    [
        ({}, "en"),
        ({"accept_language": "ko-KR,en;q=0.5"}, "ko"),
        ({"accept_language": "ko", "referer": "http://localhost/?lang=zh-CN"}, "zh-CN"),
        ({"accept_language": "ko;q=1.2.3,,;"}, "ko"),
    ],
)
def test_rejection_message_is_in_the_client_language(ask, headers, language):
    body = {"data": [{"path": "/etc/passwd"}]}
    status, text, _ = ask("/gradio_api/call/other", body, **headers)
    expected = translate(uploads.NOT_UPLOADED, language)
    assert status == 422 and json.loads(text)["detail"] == expected
