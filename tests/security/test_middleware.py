"""Requests that are rejected before Gradio: foreign hosts, invalid calls and excessive sizes."""

from __future__ import annotations

import os
import socket

import pytest

from tests.browser.conftest import ROOT
from tests.security.client import queue_response
from vitviz.server.api.endpoints import views_with_endpoints
from vitviz.server.security.page_cache import FOLDER


def test_malformed_or_oversized_call_is_rejected(http):
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
        response = http.post(
            "gradio_api/run/predict", content=content, headers={"content-type": "application/json"}
        )
        assert response.status_code == status and response.json()["detail"], content[:20]
    many = {"data": [[{"path": "x"}] * 2_000, "", 1]}
    assert http.post("gradio_api/run/predict", json=many).status_code == 422
    assert (
        http.post(
            "gradio_api/run/predict", json={"data": ["coffee", "", 1], "session_hash": "x" * 5_000}
        ).status_code
        == 422
    )


def test_missing_or_unknown_arguments_are_reported(http, listeners):
    response = http.post("gradio_api/call/predict", json={"data": []})
    assert (
        response.status_code == 422
        and "image, checkpoint='', count=5" in response.json()["detail"]
        and "0 values" in response.json()["detail"]
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
    assert queue_response(http, number, [])[0] == 422


def test_every_listed_endpoint_responds(http):
    """Endpoints derived from views are included, by each way of calling."""
    endpoints = {
        name.strip("/"): one for name, one in http.get("gradio_api/info").json()["named_endpoints"].items()
    }
    assert {view.slug for view in views_with_endpoints()} < set(endpoints)
    for name in endpoints:
        for way in ("run", "call"):
            response = http.post(f"gradio_api/{way}/{name}", json={"data": [None] * 99})
            assert response.status_code == 422 and "was given 99 values" in response.json()["detail"], (
                way,
                name,
            )
    for view in views_with_endpoints():
        given = [
            {"image": "coffee"}.get(one["parameter_name"], one.get("parameter_default"))
            for one in endpoints[view.slug]["parameters"]
        ]
        response = http.post(f"gradio_api/run/{view.slug}", json={"data": given})
        assert response.status_code == 200 and response.json()["data"][0]["checkpoint"] == "vitviz-tiny", (
            view.slug
        )
        named = (
            {"image": "coffee"}
            if any(one["parameter_name"] == "image" for one in endpoints[view.slug]["parameters"])
            else {}
        )
        assert http.post(f"gradio_api/call/v2/{view.slug}", json=named).status_code == 200, view.slug


def test_arbitrary_event_data_causes_no_error(http, listeners):
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
                status, text = queue_response(http, number, [None], event_data=event)
                assert status == 200 and str(ROOT) not in text, text[:300]


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
def test_foreign_host_is_rejected_on_every_route(http, host):
    for method, path in (
        ("GET", ""),
        ("GET", "config"),
        ("POST", "gradio_api/upload"),
        ("OPTIONS", "gradio_api/queue/join"),
    ):
        headers = {"Host": host, "Origin": f"http://{host}", "Access-Control-Request-Method": "POST"}
        response = http.request(method, path, headers=headers)
        assert response.status_code == 403, (method, path, response.status_code)
        assert not [name for name in response.headers if name.startswith("access-control")]


def test_foreign_origin_is_rejected(http):
    for origin in ("http://evil.example", "null", "http://localhost.evil.example", "file://"):
        response = http.post("gradio_api/run/checkpoints", json={"data": []}, headers={"Origin": origin})
        assert (
            response.status_code == 403
            and "--allowed-host" in response.json()["detail"]
            and "access-control-allow-origin" not in response.headers
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


def test_uploads_are_limited_on_disk_and_per_request(http, folder):
    def disk_usage() -> int:
        return sum(file.stat().st_size for file in folder.glob("sent/*/uploads/**/*") if file.is_file())

    for number in range(12):
        assert (
            http.post(
                "gradio_api/upload",
                files={"files": ("noise.bin", number.to_bytes(1, "big") + os.urandom(8_000_000))},
            ).status_code
            == 200
        )
    assert disk_usage() < 60_000_000, "uploads exceed 40 MB plus the arriving one"
    too_much = [("files", (f"{number}.bin", os.urandom(4_000_000))) for number in range(3)]
    assert http.post("gradio_api/upload", files=too_much).status_code == 413, (
        "one request may exceed a quarter of the quota"
    )


def test_malformed_upload_form_causes_no_server_error(http):
    for name, status in (("..", 400), (".", 200), ("\0", 200), ("a" * 5_000, 413)):
        part = (
            f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\nabc\r\n--x--\r\n'
        )
        response = http.post(
            "gradio_api/upload",
            content=part.encode(),
            headers={"content-type": "multipart/form-data; boundary=x"},
        )
        assert response.status_code == status and "Server Error" not in response.text, (
            name,
            response.text,
        )


def test_chunked_upload_ends_at_the_size_limit(http, server):
    port = int(server.url.split(":")[2].strip("/"))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = (
            "POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
        )
        connection.sendall(head.encode())
        part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        connection.settimeout(10)
        arrived = 0
        try:
            for chunk in (part, *[b"\r\n" + part + bytes(1_000_000)] * 200):
                connection.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                arrived += len(chunk)
            connection.recv(100)
        except OSError:
            pass
    assert http.get("config").status_code == 200
    assert arrived < 150_000_000, "the whole upload was read"


def test_page_hides_upload_folder_and_serves_samples(http, folder):
    for path in ("", "config", "config/", "?checkpoint=x"):
        for _ in range(2):
            response = http.get(path)
            assert response.status_code == 200 and str(folder) not in response.text
    plain = http.get("config", headers={"accept-encoding": "identity"})
    assert plain.content == http.get("config").content and "content-encoding" not in plain.headers
    for name in ("coffee", "chelsea"):
        answer = http.get(f"gradio_api/vitviz/sample/{name}")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("image/")
    away = http.get(f"gradio_api/file={FOLDER}/../../../../etc/passwd")
    assert away.status_code == 404


def test_forwarded_host_header_does_not_enter_the_page(http):
    for name in ("X-Forwarded-Host", "X-Gradio-Server"):
        for path in ("", "config"):
            assert "evil.example" not in http.get(path, headers={name: "https://evil.example"}).text


def test_unknown_session_gets_message_without_traceback(http, server):
    before = len(server.output())  # other tests on this server may have logged tracebacks
    for path in ("queue/data?session_hash=nobody", "queue/data?session_hash=", "call/predict/nobody"):
        text = http.get(f"gradio_api/{path}").text
        assert "session_not_found" in text or "No such event" in text, path
    assert "Traceback" not in server.output()[before:]
