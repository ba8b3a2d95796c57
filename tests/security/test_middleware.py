"""What is refused before Gradio sees it: other names, questions that make no sense, and too much."""

from __future__ import annotations

import os
import socket

import pytest

from tests.browser.conftest import ROOT
from tests.security.stranger import answer
from vitviz.server.api.endpoints import views_with_endpoints
from vitviz.server.security.page_cache import FOLDER


def test_a_question_is_bounded_and_need_not_make_sense(http):
    deep = '{"data":' + "[" * 100_000 + "]" * 100_000 + "}"
    for content, status in (
        (deep, 400),
        ("{", 400),
        ("[]", 422),
        ("3", 422),
        ('{"data": "x"}', 422),
        (b"\xff" * 10, 400),
        ("[" + "1," * 3_000_000 + "1]", 413),
    ):
        found = http.post(
            "gradio_api/run/predict", content=content, headers={"content-type": "application/json"}
        )
        assert found.status_code == status and found.json()["detail"], content[:20]
    many = {"data": [[{"path": "x"}] * 2_000, "", 1]}
    assert http.post("gradio_api/run/predict", json=many).status_code == 422
    assert (
        http.post(
            "gradio_api/run/predict", json={"data": ["coffee", "", 1], "session_hash": "x" * 5_000}
        ).status_code
        == 422
    )


def test_missing_and_unknown_arguments_are_named(http, listeners):
    found = http.post("gradio_api/call/predict", json={"data": []})
    assert (
        found.status_code == 422
        and "image, checkpoint='', count=5" in found.json()["detail"]
        and "0 values" in found.json()["detail"]
    )
    assert "image" in http.post("gradio_api/call/v2/predict", json={}).json()["detail"]
    assert http.post("gradio_api/call/v2/predict", json={"image": "coffee", "colour": 3}).status_code == 422
    assert http.post("gradio_api/call/v2/nothing", json={}).status_code == 404
    for number in (10**6, -1, None, True, "1", 1.5):
        assert (
            http.post(
                "gradio_api/queue/join", json={"fn_index": number, "data": [], "session_hash": "x"}
            ).status_code
            == 404
        )
    number = next(number for number, count in listeners.items() if count > 1)
    assert answer(http, number, [])[0] == 422


def test_every_endpoint_that_is_told_of_is_there(http):
    """Those that are made of a view too, by each of the ways in which programs ask."""
    told = {
        name.strip("/"): one for name, one in http.get("gradio_api/info").json()["named_endpoints"].items()
    }
    assert {view.slug for view in views_with_endpoints()} < set(told)
    for name in told:
        for way in ("run", "call"):
            found = http.post(f"gradio_api/{way}/{name}", json={"data": [None] * 99})
            assert found.status_code == 422 and "was given 99 values" in found.json()["detail"], (way, name)
    for view in views_with_endpoints():
        given = [
            {"image": "coffee"}.get(one["parameter_name"], one.get("parameter_default"))
            for one in told[view.slug]["parameters"]
        ]
        found = http.post(f"gradio_api/run/{view.slug}", json={"data": given})
        assert found.status_code == 200 and found.json()["data"][0]["checkpoint"] == "vitviz-tiny", view.slug
        named = (
            {"image": "coffee"}
            if any(one["parameter_name"] == "image" for one in told[view.slug]["parameters"])
            else {}
        )
        assert http.post(f"gradio_api/call/v2/{view.slug}", json=named).status_code == 200, view.slug


def test_events_from_the_page_may_be_anything(http, listeners):
    for number, count in listeners.items():
        for event in (
            None,
            [],
            "x",
            3,
            {"index": -1},
            {"index": 10**9},
            {"index": [1, 2]},
            {"name": {}, "ticket": []},
        ):
            if count == 1:
                status, said = answer(http, number, [None], event_data=event)
                assert status == 200 and str(ROOT) not in said, said[:300]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:7860",
        "",
        "[",
        "localhost@evil.example",
        "2130706433",
    ],
)
def test_another_name_is_refused_before_anything_else(http, host):
    for method, path in (
        ("GET", ""),
        ("GET", "config"),
        ("POST", "gradio_api/upload"),
        ("OPTIONS", "gradio_api/queue/join"),
    ):
        asking = {"Host": host, "Origin": f"http://{host}", "Access-Control-Request-Method": "POST"}
        found = http.request(method, path, headers=asking)
        assert found.status_code == 403, (method, path, found.status_code)
        assert not [name for name in found.headers if name.startswith("access-control")]


def test_a_page_of_another_origin_may_ask_nothing(http):
    for origin in ("http://evil.example", "null", "http://localhost.evil.example", "file://"):
        found = http.post("gradio_api/run/checkpoints", json={"data": []}, headers={"Origin": origin})
        assert (
            found.status_code == 403
            and "--allowed-host" in found.json()["detail"]
            and "access-control-allow-origin" not in found.headers
        )
    for host in ("localhost:1", "127.0.0.1", "[::1]:7860", "a.localhost"):
        assert (
            http.post(
                "gradio_api/run/checkpoints",
                json={"data": []},
                headers={"Host": host, "Origin": f"http://{host}"},
            ).status_code
            == 200
        )


def test_what_uploads_take_on_the_disk_is_bounded(http, folder):
    def held() -> int:
        return sum(file.stat().st_size for file in folder.glob("sent/*/uploads/**/*") if file.is_file())

    for number in range(12):
        assert (
            http.post(
                "gradio_api/upload",
                files={"files": ("noise.bin", number.to_bytes(1, "big") + os.urandom(8_000_000))},
            ).status_code
            == 200
        )
    assert held() < 60_000_000, "40 MB are allowed, and the one that arrives"
    too_much = [("files", (f"{number}.bin", os.urandom(4_000_000))) for number in range(3)]
    assert http.post("gradio_api/upload", files=too_much).status_code == 413, "a quarter at once"


def test_an_upload_that_is_no_form_is_a_sentence(http):
    for name, status in (("..", 400), (".", 200), ("\0", 200), ("a" * 5_000, 413)):
        part = (
            f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\nabc\r\n--x--\r\n'
        )
        found = http.post(
            "gradio_api/upload",
            content=part.encode(),
            headers={"content-type": "multipart/form-data; boundary=x"},
        )
        assert found.status_code == status and "Server Error" not in found.text, (
            name,
            found.text,
        )


def test_an_upload_without_a_length_ends_at_the_same_bound(http, server):
    port = int(server.url.split(":")[2].strip("/"))
    with socket.create_connection(("127.0.0.1", port)) as line:
        head = (
            "POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
        )
        line.sendall(head.encode())
        part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        line.settimeout(10)
        arrived = 0
        try:
            for chunk in (part, *[b"\r\n" + part + bytes(1_000_000)] * 200):
                line.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                arrived += len(chunk)
            line.recv(100)
        except OSError:
            pass
    assert http.get("config").status_code == 200
    assert arrived < 150_000_000, "it was read to its end"


def test_nothing_says_where_uploads_lie_and_its_own_pictures_are_there(http, folder):
    for path in ("", "config", "config/", "?checkpoint=x"):
        for _ in range(2):
            found = http.get(path)
            assert found.status_code == 200 and str(folder) not in found.text
    plain = http.get("config", headers={"accept-encoding": "identity"})
    assert plain.content == http.get("config").content and "content-encoding" not in plain.headers
    for name in ("coffee", "chelsea"):
        answer = http.get(f"gradio_api/vitviz/sample/{name}")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("image/")
    away = http.get(f"gradio_api/file={FOLDER}/../../../../etc/passwd")
    assert away.status_code == 404


def test_a_header_gives_the_page_no_other_address(http):
    for name in ("X-Forwarded-Host", "X-Gradio-Server"):
        for path in ("", "config"):
            assert "evil.example" not in http.get(path, headers={name: "https://evil.example"}).text


def test_answers_to_a_session_that_nobody_has_are_a_message_and_no_trace_back(http, server):
    before = len(server.output())  # others' attacks on the same server may have left theirs
    for path in ("queue/data?session_hash=nobody", "queue/data?session_hash=", "call/predict/nobody"):
        said = http.get(f"gradio_api/{path}").text
        assert "session_not_found" in said or "No such event" in said, path
    assert "Traceback" not in server.output()[before:]
