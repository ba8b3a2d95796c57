"""A stranger floods the routes, sends values of other types, and half characters that others would see."""

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
from tests.security.hostile_calls import VALUES
from tests.security.hostile_zips import zipped
from tests.security.stranger import MARK, listener, sent

FIELDS = ("frame", "second", "last", "views", "items", "at", "video", "heads", "flickers")


@pytest.fixture(scope="module")
def config(http):
    return http.get("config").json()


def said(http, session: str, number: int, data: list) -> str:
    """What one page is told by a listener."""
    asked = {"fn_index": number, "data": data, "session_hash": session}
    assert http.post("gradio_api/queue/join", json=asked).status_code == 200
    with http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as events:
        for line in events.iter_lines():
            if "process_completed" in line:
                return json.dumps(json.loads(line.removeprefix("data:")))
    raise AssertionError("the stream broke off")


@pytest.fixture(scope="module")
def opened(http, config):
    """A page that has just been opened: its name, and what it was told."""
    load = next(
        one
        for one in config["dependencies"]
        if one["backend_fn"] and any(event == "load" for _, event in one["targets"])
    )

    def of() -> tuple[str, str]:
        session = uuid.uuid4().hex
        return session, said(http, session, load["id"], [None] * len(load["inputs"]))

    return of


@pytest.fixture(scope="module")
def key(opened):
    return re.search(r'"key": ?"([0-9a-f]{40})"', opened()[1])[1]


def frame(seed: int = 0) -> str:
    file = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 255, (112, 112, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "JPEG")
    return base64.b64encode(file.getvalue()).decode()


def test_200_000_views_are_refused_before_anything_is_computed(http, key):
    def seconds(count: int, seed: int, status: int) -> float:
        start = time.monotonic()
        question = {"frame": frame(seed), "views": ["rollout"] * count}
        assert http.post(f"gradio_api/vitviz/{key}/live", json=question).status_code == status
        return time.monotonic() - start

    few = min(seconds(2, seed, 200) for seed in range(4))
    many = min(seconds(200_000, 10 + seed, 422) for seed in range(3))
    assert many < 10 * few + 1, "before, each name cost a tenth of a millisecond"


def test_values_of_any_type_are_refused_by_the_route_of_frames(http, key):
    values = [
        value for value in VALUES if value != SURROGATE and value == value and abs_(value) < float("inf")
    ]
    for name in FIELDS:
        for value in values:
            question = {"frame": frame(), "views": ["rollout"], name: value}
            found = http.post(f"gradio_api/vitviz/{key}/live", json=question)
            assert found.status_code in (200, 404, 422), (name, str(value)[:80], found.text[:200])
            assert "x" * 201 not in found.text and "vitviz hit an error" not in found.text


def abs_(value: object) -> float:
    return abs(value) if isinstance(value, float) else 0


def test_many_cameras_of_one_visitor_do_not_end_anothers_turn(server, key):
    """Whoever has ten is answered one after the other; who comes beside them is answered in between."""

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
        (zipped([("settings.json", json.dumps({"lesson": {
            "checkpoint": "vitviz-tiny", "sample": "coffee", "settings": {},
            "without": f"at=1 other={SURROGATE}",
        }}).encode())]), "lesson.zip"),
    ],
)  # fmt: skip
def test_half_a_character_ends_in_a_sentence_and_no_page_breaks(http, config, opened, data, name):
    session, _ = opened()
    number, path = listener(config, "vitviz-lesson", "upload"), sent(http, data, name)
    told = said(http, session, number, [None, {"path": path, "meta": MARK}])
    assert '"success": true' in told and re.search("half a character|not a lesson", told), told[-900:]
    assert '"success": true' in said(http, session, listener(config, "vitviz-size", "input"), [None, "own"])
    assert '"view": "picture"' in opened()[1], "a stranger's page opens"


def test_no_refusal_of_an_endpoint_repeats_all_that_was_given(http):
    for name in (f"x{uuid.uuid4().hex}", "a/"):
        long = name + "x" * 5_000
        for given in ([long, "", 5], ["coffee", long, 5], ["coffee", "", long]):
            found = http.post("gradio_api/run/predict", json={"data": given})
            assert found.status_code >= 400 and "x" * 201 not in found.text, found.text[:300]
