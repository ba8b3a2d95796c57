"""Every guard of the door by itself, before an app that takes whatever it is given."""

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
from tests.security.stranger import MARK
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

TAKEN = 299  # the status of what went through


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
    """Asks the door, and returns the status, what is said, and how many bytes the app behind it was given."""
    quota, turns = uploads.Quota(4_000), FairScheduler()

    def asking(path: str, body: bytes | object = b"", parts: int = 1, hosts=None, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        step = -(-len(content) // parts) or 1
        cut = [content[at * step : (at + 1) * step] for at in range(parts)]
        arriving = [
            {"type": "http.request", "body": one, "more_body": number + 1 < parts}
            for number, one in enumerate(cut)
        ]
        given, sent = bytearray(), []

        async def receive():
            return arriving.pop(0) if arriving else {"type": "http.disconnect"}

        async def app(scope, receive, send):
            asking.seen = scope
            while True:
                message = await receive()
                given.extend(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    break
            left = uploads.get_upload_folder()
            if given == b'"parts"':
                parts = [route_utils.NamedTemporaryFile(delete=False, dir=left) for _ in range(3)]
                Path(parts[0].name).rename(f"{left}/placed")
                parts[1].close()
            for sign, error in (
                (b'"no room', OSError(errno.ENOSPC, "No space left on device")),
                (b'"forbidden', PermissionError(errno.EACCES, "Permission denied")),
                (b'"gone', ClientDisconnect()),
            ):
                if given.startswith(sign):
                    if b"500" in given or sign == b'"gone':  # as Starlette says before it raises
                        await send({"type": "http.response.start", "status": 500, "headers": []})
                    raise error
            broken = message["type"] == "http.disconnect"
            status = 500 if given == b'"failing"' else 499 if broken else TAKEN
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
        asking.headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], sent[1]["body"].decode(), len(given)

    asking.turns = turns
    return asking


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1", "", None, "["])
def test_only_its_own_names(ask, host):
    assert ask("/config", host=host)[0] == 403
    assert ask("/config", host="127.0.0.1:7860")[0] == ask("/config", host="a.localhost")[0] == TAKEN


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "file://", "http://127.0.0.1.evil.example"]
)
def test_only_its_own_pages(ask, origin):
    assert ask("/config", origin=origin)[0] == 403
    assert ask("/config", origin="http://localhost")[0] == TAKEN


def test_a_page_of_another_port_of_this_machine_is_another_programs(ask):
    for origin, status in (("http://localhost:7860", TAKEN), ("http://127.0.0.1:7860", TAKEN),
                           ("http://localhost:7861", 403), ("http://localhost", 403)):  # fmt: skip
        assert ask("/config", host="127.0.0.1:7860", origin=origin)[0] == status, origin
    proxied = Hosts("127.0.0.1", ["vit.example.org"])
    assert ask("/config", hosts=proxied, host="127.0.0.1:7860", origin="https://vit.example.org")[0] == TAKEN


@pytest.mark.parametrize("host", ["a, b", "localhost, evil.example", "a b", "a/b", "x@a"])
def test_a_list_of_names_is_none(ask, host):
    assert ask("/config", hosts=Hosts("0.0.0.0"), host=host)[0] == 403
    assert ask("/config", host=host)[0] == 403


def test_the_site_has_no_other_name_because_a_header_says_so(ask):
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


def test_nothing_is_taken_for_what_it_is_not_said_to_be_and_a_page_says_who_it_is(ask):
    for path in ("/gradio_api/file=/x.png", "/config", "/gradio_api/proxy=x"):
        ask(path)
        assert ask.headers["x-content-type-options"] == "nosniff" and "set-cookie" not in ask.headers
    ask("/")
    told = ask.headers["set-cookie"]
    assert told.startswith("vitviz=") and "HttpOnly; SameSite=Lax" in told
    assert "Secure" not in told and ask.headers["referrer-policy"] == "same-origin"
    ask("/", x_forwarded_proto="https")
    assert ask.headers["set-cookie"].endswith("SameSite=Lax; Secure")
    ask("/", cookie="vitviz=abc")
    assert "set-cookie" not in ask.headers


def test_page_has_a_policy_that_names_frame_ancestors_only_when_given(ask, monkeypatch):
    def policy(path: str = "/", **given) -> dict[str, str]:
        ask(path, hosts=Hosts("127.0.0.1", **given))
        told = ask.headers.get("content-security-policy", "").split("; ")
        return dict(one.partition(" ")[::2] for one in told)

    assert policy("/config") == {"": ""}
    usual = policy()
    assert usual["default-src"] == "'self'" and usual["object-src"] == "'none'" and "http" not in str(usual)
    assert "frame-ancestors" not in usual  # a Space embeds the page
    monkeypatch.setenv("SPACE_HOST", "a-b.hf.space")
    assert policy()["connect-src"].endswith(" https://huggingface.co")
    frames = policy(frame_ancestors=("'self'", "https://moodle.example.org"))
    assert frames["frame-ancestors"] == "'self' https://moodle.example.org"


def test_names_that_were_allowed_and_no_others(ask):
    only = Hosts("0.0.0.0", ["vit.example.org", "*.lab.example"])
    for host, status in (
        ("vit.example.org", TAKEN), ("a.lab.example", TAKEN), ("VIT.example.org.", TAKEN), ("localhost",
        TAKEN),
        ("evil.example", 403), ("evillab.example", 403), ("lab.example", 403),
    ):  # fmt: skip
        assert ask("/config", hosts=only, host=host)[0] == status, host
    assert ask("/config", hosts=Hosts("0.0.0.0"), host="any.example")[0] == TAKEN
    assert ask("/config", hosts=Hosts("127.0.0.1", share=True), host="a.gradio.live")[0] == TAKEN
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
def test_what_fetches_writes_or_calls_for_a_stranger_is_closed(ask, path):
    status, said, _ = ask(f"/gradio_api/{path}")
    assert status == 404 and "Not found" in said


@pytest.mark.parametrize("path", ["cancel", "reset", "reset/"])
def test_what_gradios_page_sends_to_end_a_listener_is_open(ask, path):
    """/reset does nothing in Gradio; a 404 would be an error in the browser's console."""
    assert ask(f"/gradio_api/{path}", b'{"event_id": "x"}')[0] == TAKEN


def test_a_question_is_bounded_however_it_arrives(ask):
    assert ask("/x", b'"' + b"a" * (LARGEST - 2) + b'"', parts=3)[0] == TAKEN
    status, _, given = ask("/x", b'"' + b"a" * LARGEST + b'"', parts=3)
    assert status == 413 and given == 0
    assert ask("/x", b"{")[0] == ask("/x", b"[" * 200_000)[0] == ask("/x", b"\xff")[0] == 400
    assert ask("/x", b'{"a": ["\\ud83d"]}')[0] == 400, "half a character, which no answer could quote"
    assert ask("/x", b'{"a": ["\\ud83d\\ude00"]}')[0] == TAKEN


def test_an_upload_is_bounded_by_its_length_and_by_what_arrives(ask):
    path = "/gradio_api/upload"
    assert ask(path, bytes(900), parts=3)[0] == TAKEN
    status, said, given = ask(path, b"", content_length="1001")
    assert status == 413 and given == 0 and "at once" in said
    assert ask(path, bytes(1100), parts=11, content_length="10")[::2] == (413, 1000), "the rest is not read"
    assert ask("/gradio_api/run/upload", b"not json")[0] == 400, "a listener of that name is no upload"


def test_an_upload_that_would_be_refused_its_answer_is_not_taken(ask):
    """Thirty uploads at once of one visitor cost the thread that speaks to all of them; a refusal nothing."""
    go, path, own = Event(), "/gradio_api/upload", {"cookie": "vitviz=mine"}

    def answer():
        with ask.turns.place(" mine"):
            assert go.wait(20)

    with ThreadPoolExecutor(UNDER_WAY + WAITING) as threads:
        assert ask(path, b"file", **own)[0] == TAKEN
        asked = [threads.submit(answer) for _ in range(UNDER_WAY + WAITING)]
        try:
            wait_until(lambda: ask.turns.full(" mine"))
            status, said, given = ask(path, b"file", **own, accept_language="ko")
            assert (status, given) == (429, 0) and "8개가 기다리고" in json.loads(said)["detail"]
            assert ask(path, b"file", cookie="vitviz=other")[0] == TAKEN
        finally:
            go.set()
        [one.result(20) for one in asked]
    assert ask(path, b"file", **own)[0] == TAKEN


def test_an_upload_over_which_the_app_fails_is_a_sentence_and_nothing_else_is_hidden(ask):
    status, said, _ = ask("/gradio_api/upload", b'"failing"')
    assert status == 400 and "plain file names" in json.loads(said)["detail"]
    assert ask("/gradio_api/other", b'"failing"')[:2] == (500, "{}")


def test_a_full_disk_is_named_and_room_is_made(ask, monkeypatch):
    made, known = [], uploads._parts
    monkeypatch.setattr(uploads.Quota, "make_room", lambda quota: made.append(known.get()))
    monkeypatch.setattr(uploads, "_free", lambda: 10**12)
    for body in (b'"no room"', b'"no room, 500"'):
        made.clear()
        status, said, _ = ask("/gradio_api/upload", body, accept_language="zh-CN")
        assert status == 507 and "磁盘已满" in json.loads(said)["detail"]
        assert made[-1] is None, "after its own parts have been removed"
    with pytest.raises(PermissionError):
        ask("/gradio_api/upload", b'"forbidden"')
    assert ask("/gradio_api/upload", b'"gone"')[0] == 400


def test_of_an_upload_nothing_stays_but_what_was_put_in_its_place(ask, monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    ask("/gradio_api/upload", b'"parts"')
    assert [path.name for path in tmp_path.iterdir()] == ["placed"] and not uploads._used


def test_room_is_made_as_uploads_arrive(ask, monkeypatch):
    made = []
    monkeypatch.setattr(uploads.Quota, "make_room", lambda quota: made.append(1))
    ask("/gradio_api/upload", bytes(900), parts=9)
    assert made


def test_a_call_by_name(ask):
    right = {"data": ["coffee", 5]}
    assert ask("/gradio_api/run/predict", right)[0] == ask("/gradio_api/call/predict/", right)[0] == TAKEN
    assert ask("/gradio_api/run/predict", {**right, "fn_index": 1})[0] == TAKEN
    for name in ("hidden", "nothing", ""):
        status, said, _ = ask(f"/gradio_api/run/{name}", right)
        assert status == 404 and "predict, other" in said
    for wrong in (
        [],
        3,
        "x",
        {"data": ["coffee"]},
        {"data": "ab"},
        {"data": {"a": 1, "b": 2}},
        {},
        {**right, "fn_index": 0},
    ):
        assert ask("/gradio_api/run/predict", wrong)[0] == 422, wrong
    for session in (3, ["x"], "x" * (LONGEST + 1)):
        assert ask("/gradio_api/run/predict", {**right, "session_hash": session})[0] == 422, session
    assert ask("/gradio_api/run/predict", {**right, "session_hash": "x" * LONGEST})[0] == TAKEN
    assert ask("/gradio_api/call/v2/predict", {"image": "coffee"})[0] == TAKEN
    for wrong in ({}, {"count": 3}, {"image": "coffee", "colour": 1}):
        assert ask("/gradio_api/call/v2/predict", wrong)[0] == 422, wrong


def test_a_call_by_number(ask):
    path = "/gradio_api/queue/join"
    assert ask(path, {"fn_index": 0, "data": [1, 2]})[0] == TAKEN
    for number in (99, -1, None, True, False, 0.0, "0", [0]):
        assert ask(path, {"fn_index": number, "data": [1, 2]})[0] == 404, number
    for data in ([], [1], None, "ab", {"a": 1, "b": 2}):
        assert ask(path, {"fn_index": 0, "data": data})[0] == 422, data


def test_what_stands_in_place_of_files_has_their_form(ask):
    mine = {"path": f"{uploads.get_upload_folder()}/mine.png", "meta": MARK}
    for data, status in (
        ([mine, None], TAKEN),
        ([None, [mine, mine]], TAKEN),
        ([mine["path"], None], 422),  # Gradio's answer to these four is "error: null"
        ([[mine], None], 422),
        ([None, mine["path"]], 422),
        ([None, {"a": [mine]}], 422),
    ):
        found, said, _ = ask("/gradio_api/queue/join", {"fn_index": 3, "data": data})
        assert found == status and (status == TAKEN or "uploaded here" in said), data


def test_no_file_is_named_that_was_not_uploaded_however_deep(ask):
    for path in ("/gradio_api/run/predict", "/gradio_api/queue/join", "/anything"):
        for given in (
            {"path": "/etc/passwd"},
            [{"path": "/etc/passwd"}],
            {"a": [{"b": {"path": "/etc/passwd"}}]},
            {"path": ["x"]},
            {"path": uploads.get_upload_folder()},
            {"path": 0},
        ):
            status, said, _ = ask(path, {"data": [given, 5], "fn_index": 1})
            assert status == 422 and "uploaded here" in str(json.loads(said)["detail"]), (path, given)
    inside = f"{uploads.get_upload_folder()}/mine.png"
    assert ask("/gradio_api/run/predict", {"data": [{"path": inside}, 5]})[0] == TAKEN
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
def test_a_refusal_is_said_in_the_visitors_language(ask, headers, language):
    body = {"data": [{"path": "/etc/passwd"}]}
    status, said, _ = ask("/gradio_api/call/other", body, **headers)
    expected = translate(uploads.NOT_UPLOADED, language)
    assert status == 422 and json.loads(said)["detail"] == expected
