"""Request floods, values of wrong types and lone surrogates against a running app."""

from __future__ import annotations

import base64
import io
import json
import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.helpers import SURROGATE, npz_bytes, safetensors_bytes
from tests.security.client import MARK, listener, upload
from tests.security.hostile_calls import VALUES
from tests.security.hostile_zips import write_zip

FIELDS = ("frame", "second", "last", "views", "items", "at", "video", "heads", "flickers")


@pytest.fixture(scope="module")
def config(http):
    return http.get("config").json()


def call_listener(http, session: str, number: int, data: list) -> str:
    """Return the final message of a listener for one page."""
    body = {"fn_index": number, "data": data, "session_hash": session}
    assert http.post("gradio_api/queue/join", json=body).status_code == 200
    with http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as events:
        for line in events.iter_lines():
            if "process_completed" in line:
                return json.dumps(json.loads(line.removeprefix("data:")))
    raise AssertionError("the stream ended early")


@pytest.fixture(scope="module")
def open_page(http, config):
    """Return a function that opens a page and returns its session and the response."""
    load = next(
        one
        for one in config["dependencies"]
        if one["backend_fn"] and any(event == "load" for _, event in one["targets"])
    )

    def load_page() -> tuple[str, str]:
        session = uuid.uuid4().hex
        return session, call_listener(http, session, load["id"], [None] * len(load["inputs"]))

    return load_page


@pytest.fixture(scope="module")
def key(open_page):
    return re.search(r'"key": ?"([0-9a-f]{40})"', open_page()[1])[1]


def frame(seed: int = 0) -> str:
    file = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 255, (112, 112, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "JPEG")
    return base64.b64encode(file.getvalue()).decode()


def test_200_000_views_are_rejected_before_computing(http, key):
    def seconds(count: int, seed: int, status: int) -> float:
        start = time.monotonic()
        question = {"frame": frame(seed), "views": ["rollout"] * count}
        assert http.post(f"gradio_api/vitviz/{key}/live", json=question).status_code == status
        return time.monotonic() - start

    few = min(seconds(2, seed, 200) for seed in range(4))
    many = min(seconds(200_000, 10 + seed, 422) for seed in range(3))
    assert many < 10 * few + 1, "the rejection takes time per view"


def test_frame_route_rejects_values_of_any_type(http, key):
    values = [
        value for value in VALUES if value != SURROGATE and value == value and absolute(value) < float("inf")
    ]
    for name in FIELDS:
        for value in values:
            question = {"frame": frame(), "views": ["rollout"], name: value}
            response = http.post(f"gradio_api/vitviz/{key}/live", json=question)
            assert response.status_code in (200, 404, 422), (name, str(value)[:80], response.text[:200])
            assert "x" * 201 not in response.text and "vitviz hit an error" not in response.text


def absolute(value: object) -> float:
    return abs(value) if isinstance(value, float) else 0


def test_cameras_of_one_client_do_not_starve_another(server, key):
    """Ten cameras of one client take turns, and another client is served in between."""

    def camera(name: str, frames: int) -> list[int]:
        with httpx.Client(base_url=server.url, timeout=120, cookies={"vitviz": name}) as http:
            question = {"frame": frame(), "views": ["rollout"]}
            asked = [http.post(f"gradio_api/vitviz/{key}/live", json=question) for _ in range(frames)]
            order.extend(name for one in asked[:1] if one.status_code == 200)
            return [one.status_code for one in asked]

    order: list[str] = []
    with ThreadPoolExecutor(11) as threads:
        many = [threads.submit(camera, "many", 5) for _ in range(10)]
        other = threads.submit(camera, "other", 3)
        assert other.result() == [200] * 3
        assert {status for one in many for status in one.result()} <= {200, 404, 422}


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (npz_bytes(["cat", f"a {SURROGATE}"]), "mine.npz"),
        (safetensors_bytes(["cat", SURROGATE]), "mine.safetensors"),
        (write_zip([("settings.json", json.dumps({"lesson": {
            "checkpoint": "vitviz-tiny", "sample": "coffee", "settings": {},
            "without": f"at=1 other={SURROGATE}",
        }}).encode())]), "lesson.zip"),
    ],
)  # fmt: skip
def test_lone_surrogate_is_reported_and_pages_stay_usable(http, config, open_page, data, name):
    session, _ = open_page()
    number, path = listener(config, "vitviz-lesson", "upload"), upload(http, data, name)
    result = call_listener(http, session, number, [None, {"path": path, "meta": MARK}])
    assert '"success": true' in result and re.search("half a character|not a lesson", result), result[-900:]
    assert '"success": true' in call_listener(
        http, session, listener(config, "vitviz-size", "input"), [None, "own"]
    )
    assert '"view": "picture"' in open_page()[1], "the page of another client does not open"


def test_rejection_message_truncates_long_values(http):
    for name in (f"x{uuid.uuid4().hex}", "a/"):
        long = name + "x" * 5_000
        for given in ([long, "", 5], ["coffee", long, 5], ["coffee", "", long]):
            response = http.post("gradio_api/run/predict", json={"data": given})
            assert response.status_code >= 400 and "x" * 201 not in response.text, response.text[:300]
