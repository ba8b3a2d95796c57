"""A stranger asks a running app for what is not theirs: by every listener and every form of a path."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from pathlib import Path

import pytest

from tests.browser.conftest import ROOT
from tests.security.hostile_zips import said, zipped
from tests.security.stranger import MARK, answer, forms, listener, picture, sent
from vitviz.server.api.endpoints import PUBLIC
from vitviz.server.security.uploads import NOT_UPLOADED


def test_no_listener_opens_a_file_that_was_not_uploaded(http, listeners, secret):
    assert len(listeners) > 10
    told = set()
    for number, count in listeners.items():
        for given in (*forms(str(secret)), *forms("/dev/zero")):
            for value in (given, [given]):
                status, said = answer(http, number, [value] * count)
                if count:
                    assert status == 422, (number, value, said[:300])
                    told.add(said)
    assert len(told) == 1 and "uploaded here" in told.pop(), "the answer is the same whatever lies there"


@pytest.mark.parametrize("way", ["run", "api", "call"])
def test_the_pages_own_listeners_have_no_name_for_strangers(http, secret, way):
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
        found = http.post(
            f"gradio_api/{way}/{name}", json={"data": [None, {"path": str(secret)}], "session_hash": "x"}
        )
        assert found.status_code == 404, (name, found.status_code, found.text)
    found = http.post(f"gradio_api/{way}/nothing", json={"data": []})
    assert all(name in found.json()["detail"] for name in PUBLIC)


@pytest.mark.parametrize("form", range(7))
def test_no_endpoint_opens_a_file_that_was_not_uploaded(http, secret, form):
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
        given = forms(path)[form]
        assert http.post("gradio_api/run/predict", json={"data": [given, "", 5]}).status_code == 422
        assert http.post("gradio_api/call/predict", json={"data": [given, "", 5]}).status_code == 422
        assert http.post("gradio_api/call/v2/predict", json={"image": given}).status_code == 422


@pytest.mark.parametrize("name", ["predict", "rollout", "trial", "figure"])
def test_gradio_client_is_told_that_no_address_is_fetched(server, name):
    """The client takes the detail of a 422 for a list; of a plain text it dies by an AttributeError."""
    from gradio_client import Client, handle_file
    from gradio_client.exceptions import ValidationError

    client = Client(server.url, verbose=False)
    try:
        for address in ("http://127.0.0.1:9/x.png", "https://example.org/photo.jpg"):
            with pytest.raises(ValidationError, match="This server does not fetch URLs. Download the image"):
                client.predict(handle_file(address), api_name=f"/{name}")
    finally:
        client.close()


def test_a_refusal_at_the_queue_has_the_shape_that_gradio_reads(http, secret, listeners):
    number = next(number for number, count in listeners.items() if count > 1)
    for data in ([], [{"path": str(secret)}, *[None] * 30], [{"path": "ftp://x/y.png"}, *[None] * 30]):
        status, said = answer(http, number, data)
        (one,) = json.loads(said)["detail"]
        assert status == 422 and one["__type__"] == "validate" and one["is_valid"] is False
        assert one["message"].endswith(".")


def test_a_link_in_the_upload_folder_leads_nowhere(http, secret):
    own = Path(sent(http, picture()))
    link, pipe = own.with_name("link.png"), own.with_name("pipe.png")
    link.symlink_to(secret)
    os.mkfifo(pipe)
    outside = (link, own.parents[1], f"{own.parent}/../../../secret.png")  # refused before the endpoint
    inside = (pipe, own.parent, own.with_name("nothing.png"))  # by it: Gradio says that with 500
    for paths, status, field in ((outside, 422, "detail"), (inside, 500, "error")):
        for path in paths:
            found = http.post("gradio_api/run/predict", json={"data": [{"path": str(path)}, "", 5]})
            assert found.status_code == status and found.json()[field] == str(NOT_UPLOADED), (
                path,
                found.text,
            )


def test_ones_own_upload_is_answered_by_page_and_endpoints(http, listeners):
    path = sent(http, picture((9, 99, 199)))
    number = listener(http.get("config").json(), "vitviz-upload", "input")
    status, said = answer(http, number, [None, {"path": path, "meta": MARK}])
    assert status == 200 and json.loads(said)["success"] and '"view": "picture"' in said
    assert http.post("gradio_api/run/predict", json={"data": [{"path": path, "meta": MARK}, "", 3]}).json()[
        "data"
    ][0]["top"]


def test_no_name_in_a_lesson_becomes_a_path(http, folder):
    name = f"vitviz-{uuid.uuid4().hex}"
    places = [f"{'../' * up}{name}" for up in range(6)] + [f"{tempfile.gettempdir()}/{name}", f"~/{name}"]
    files = [("settings.json", said()), ("upload.jpg", picture()), *[(place, b"x") for place in places]]
    path = sent(http, zipped(files), "lesson.zip")
    number = listener(http.get("config").json(), "vitviz-lesson", "upload")
    status, told = answer(http, number, [None, {"path": path, "meta": MARK}])
    assert status == 200 and '"view": "picture"' in told, "the lesson itself is opened"
    near = [
        *Path(tempfile.gettempdir()).glob("*"),
        *folder.rglob("*"),
        *Path.home().glob("*"),
        *ROOT.glob("*"),
    ]
    assert not [one for one in near if one.name == name]


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
def test_no_route_hands_out_a_file_or_fetches_an_address(http, path, status):
    found = http.get(f"gradio_api/{path}")
    assert found.status_code == status and "root:" not in found.text
