"""Attempts to read files that were not uploaded, by every listener and every form of a path."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from pathlib import Path

import pytest

from tests.browser.conftest import ROOT
from tests.security.client import MARK, file_forms, listener, picture, queue_response, upload
from tests.security.hostile_zips import lesson_description, write_zip
from vitviz.server.api.endpoints import PUBLIC
from vitviz.server.security.uploads import NOT_UPLOADED


def test_listeners_reject_files_that_were_not_uploaded(http, listeners, secret):
    assert len(listeners) > 10
    messages = set()
    for number, count in listeners.items():
        for given in (*file_forms(str(secret)), *file_forms("/dev/zero")):
            for value in (given, [given]):
                status, text = queue_response(http, number, [value] * count)
                if count:
                    assert status == 422, (number, value, text[:300])
                    messages.add(text)
    assert len(messages) == 1 and "uploaded here" in messages.pop(), "the response depends on the file"


@pytest.mark.parametrize("way", ["run", "api", "call"])
def test_private_listeners_are_not_callable_by_name(http, secret, way):
    for name in (
        "upload",
        "survey",
        "switch",
        "first",
        "lambda",
        "",
        "nothing",
        "%00",
        "a" * 3000,
    ):
        response = http.post(
            f"gradio_api/{way}/{name}", json={"data": [None, {"path": str(secret)}], "session_hash": "x"}
        )
        assert response.status_code == 404, (name, response.status_code, response.text)
    response = http.post(f"gradio_api/{way}/nothing", json={"data": []})
    assert all(name in response.json()["detail"] for name in PUBLIC)


@pytest.mark.parametrize("form", range(7))
def test_endpoints_reject_files_that_were_not_uploaded(http, secret, form):
    for path in (
        str(secret),
        "/dev/zero",
        "/etc/passwd",
        "app.py",
        "http://127.0.0.1:9/x.png",
        "file:///etc/passwd",
        "https://[::1]/x.png",
        "\0",
    ):
        given = file_forms(path)[form]
        assert http.post("gradio_api/run/predict", json={"data": [given, "", 5]}).status_code == 422
        assert http.post("gradio_api/call/predict", json={"data": [given, "", 5]}).status_code == 422
        assert http.post("gradio_api/call/v2/predict", json={"image": given}).status_code == 422


@pytest.mark.parametrize("name", ["predict", "rollout", "trial", "figure"])
def test_gradio_client_receives_the_rejection_of_urls(server, name):
    """gradio_client expects the detail of a 422 as a list; a string raises AttributeError."""
    from gradio_client import Client, handle_file
    from gradio_client.exceptions import ValidationError

    client = Client(server.url, verbose=False)
    try:
        for address in ("http://127.0.0.1:9/x.png", "https://example.org/photo.jpg"):
            with pytest.raises(ValidationError, match="This server does not fetch URLs. Download the image"):
                client.predict(handle_file(address), api_name=f"/{name}")
    finally:
        client.close()


def test_queue_rejection_has_the_form_that_gradio_expects(http, secret, listeners):
    number = next(number for number, count in listeners.items() if count > 1)
    for data in ([], [{"path": str(secret)}, *[None] * 30], [{"path": "ftp://x/y.png"}, *[None] * 30]):
        status, text = queue_response(http, number, data)
        (detail,) = json.loads(text)["detail"]
        assert status == 422 and detail["__type__"] == "validate" and detail["is_valid"] is False
        assert detail["message"].endswith(".")


def test_symlink_or_pipe_in_upload_folder_is_rejected(http, secret):
    uploaded = Path(upload(http, picture()))
    link, pipe = uploaded.with_name("link.png"), uploaded.with_name("pipe.png")
    link.symlink_to(secret)
    os.mkfifo(pipe)
    outside = (
        link,
        uploaded.parents[1],
        f"{uploaded.parent}/../../../secret.png",
    )  # rejected before the endpoint
    inside = (
        pipe,
        uploaded.parent,
        uploaded.with_name("nothing.png"),
    )  # rejected by the endpoint: Gradio returns 500
    for paths, status, field in ((outside, 422, "detail"), (inside, 500, "error")):
        for path in paths:
            response = http.post("gradio_api/run/predict", json={"data": [{"path": str(path)}, "", 5]})
            assert response.status_code == status and response.json()[field] == str(NOT_UPLOADED), (
                path,
                response.text,
            )


def test_uploaded_file_is_accepted_by_page_and_endpoints(http, listeners):
    path = upload(http, picture((9, 99, 199)))
    number = listener(http.get("config").json(), "vitviz-upload", "input")
    status, text = queue_response(http, number, [None, {"path": path, "meta": MARK}])
    assert status == 200 and json.loads(text)["success"] and '"view": "picture"' in text
    assert http.post("gradio_api/run/predict", json={"data": [{"path": path, "meta": MARK}, "", 3]}).json()[
        "data"
    ][0]["top"]


def test_names_in_a_lesson_zip_create_no_files(http, folder):
    name = f"vitviz-{uuid.uuid4().hex}"
    places = [f"{'../' * up}{name}" for up in range(6)] + [f"{tempfile.gettempdir()}/{name}", f"~/{name}"]
    files = [
        ("settings.json", lesson_description()),
        ("upload.jpg", picture()),
        *[(place, b"x") for place in places],
    ]
    path = upload(http, write_zip(files), "lesson.zip")
    number = listener(http.get("config").json(), "vitviz-lesson", "upload")
    status, text = queue_response(http, number, [None, {"path": path, "meta": MARK}])
    assert status == 200 and '"view": "picture"' in text, "the lesson does not open"
    nearby_files = [
        *Path(tempfile.gettempdir()).glob("*"),
        *folder.rglob("*"),
        *Path.home().glob("*"),
        *ROOT.glob("*"),
    ]
    assert not [one for one in nearby_files if one.name == name]


@pytest.mark.parametrize(
    "path, status",
    [
        ("file=/etc/passwd", 403),
        ("file=/etc/hostname", 403),
        ("file=app.py", 403),
        ("file=../app.py", 403),
        ("file=http://127.0.0.1:9/x", 404),
        ("file=%20http://example.org/", 404),
        ("file=HTTPS://example.org", 404),
        ("file/etc/passwd", 403),
        ("proxy=http://127.0.0.1:9/x", 404),
        ("deep_link?session_hash=x", 404),
        ("stream/a/b/1/playlist.m3u8", 404),
        ("custom_component/x/client/component/../../../../app.py", 404),
        ("file=\\\\example.org\\x", 403),
        ("file=/proc/self/environ", 403),
    ],
)
def test_routes_return_no_server_files_and_fetch_no_urls(http, path, status):
    response = http.get(f"gradio_api/{path}")
    assert response.status_code == status and "root:" not in response.text
