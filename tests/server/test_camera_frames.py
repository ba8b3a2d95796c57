"""Camera frames on the server: computed like uploads, limited in number and deleted afterwards."""

import base64
import json
import threading

import numpy as np
import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.server.helpers import jpeg
from vitviz.engine.inspector import Inspector
from vitviz.errors import ImageError, Unknown
from vitviz.server.page import routes as live
from vitviz.server.page.routes import live_page, routes
from vitviz.server.services import frames
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS

WITHOUT = Ablation(heads=[(1, 1)])


def send_frame(service, key: str, data: bytes | None = None, **more) -> dict:
    frame = {} if data is None else {"frame": base64.b64encode(data).decode()}
    return live_page(service, key, {"views": ["rollout"], **frame, **more})


def cached_keys(service) -> list[list]:
    """Return the keys of all caches of the server."""
    caches = (
        service._traces, service._drawn, service._abouts, service._counts, service.runs._runs,
        service.runs._pairs,
        service.pictures._pictures, service.pictures._pixels,
    )  # fmt: skip
    return [sorted(map(repr, cache._entries)) for cache in caches]


def test_frame_gives_the_trace_of_an_upload(service, key):
    run = service.runs.run(key)
    photo = service.look(run.picture, "vitviz-tiny", without=WITHOUT)
    response = send_frame(service, photo, jpeg(), views=[view.slug for view in VIEWS])
    upload_key = service.look(service.pictures.keep_bytes(jpeg()), "vitviz-tiny", without=WITHOUT)
    assert response["key"] != upload_key and response["size"] == [112, 112]
    frame, upload = service.subject(response["key"]).trace, service.subject(upload_key).trace
    assert (frame.logits == upload.logits).all() and frame.without == WITHOUT
    assert response["answers"][0]["top"][0][0] == upload.top(1)[0][0]
    assert set(response["figures"]) == {view.slug for view in VIEWS}
    send_frame(service, photo, last=response["key"])


def test_next_frame_removes_the_previous_from_caches(service, key):
    views, last = ["rollout", "evidence", "tokens", "positions"], ""
    for shade in range(2):  # fills the caches that depend on weights only
        last = send_frame(service, key, jpeg(shade), views=views, last=last, second=key)["key"]
        service.item(last, "rollout", "map", {})
        service.image(last, "input")
    before = cached_keys(service)
    for shade in range(2, 8):
        last = send_frame(service, key, jpeg(shade), views=views, last=last, second=key)["key"]
        service.item(last, "rollout", "map", {})
        service.image(last, "input")
        assert [len(one) for one in cached_keys(service)] == [len(one) for one in before]
    send_frame(service, key, last=last)
    assert not any(last in name for names in cached_keys(service) for name in names)
    with pytest.raises(Unknown):
        service.item(last, "rollout", "map", {})
    assert service.subject(key).trace is not None  # the trace of the image is kept


def test_results_of_a_deleted_frame_are_deleted(service, key):
    frame_key = send_frame(service, key, jpeg())["key"]
    with service.frames.in_use(frame_key) as passing:
        assert passing
        send_frame(service, key, last=frame_key)
        service._drawn.get((frame_key, "rollout", "map", ()), lambda: np.zeros(3))
    assert not any(frame_key in name for names in cached_keys(service) for name in names)


def test_response_contains_requested_items(service, key):
    client = TestClient(FastAPI(routes=routes(service)))
    items = [
        "evidence/map?chosen=2.1",
        "rollout/map",
        "evidence/classes?",
        "tokens/nothing",
        "?",
        "evidence/map?chosen=99",
    ]
    frame = base64.b64encode(jpeg()).decode()
    body_json = {"views": ["rollout"], "frame": frame, "items": items}
    body = client.post(f"/gradio_api/vitviz/{key}/live", json=body_json).content
    end = 4 + int.from_bytes(body[:4], "little")
    header, rest = json.loads(body[4:end]), body[end:]
    assert [name for name, *_ in header["arrays"]] == items[:3] and set(header["figures"]) == {"rollout"}
    for name, shape, kind, size in header["arrays"]:
        array, rest = np.frombuffer(rest[:size], kind).reshape(shape), rest[size:]
        slug, item = name.partition("?")[0].split("/")
        given = {"chosen": "2.1"} if "chosen" in name else {}
        np.testing.assert_array_equal(array, service.item(header["key"], slug, item, given))
    assert not rest
    for wrong in (None, 3, {"a": 1}, [[1]]):
        response = client.post(
            f"/gradio_api/vitviz/{key}/live", json={**body_json, "items": wrong, "last": header["key"]}
        )
        header = json.loads(response.content[4 : 4 + int.from_bytes(response.content[:4], "little")])
        assert response.status_code == 200 and header["arrays"] == []
    assert client.post(f"/gradio_api/vitviz/{key}/live", json={"last": header["key"]}).json() == {}
    assert not any(header["key"] in name for names in cached_keys(service) for name in names)


def test_image_key_is_not_deleted_as_a_frame(service, key):
    send_frame(service, key, last=key)
    assert service.subject(key).trace is not None


def test_oldest_frames_are_deleted_and_expired_frames_swept(service, key, monkeypatch):
    monkeypatch.setattr(frames, "LASTS", 1e6)  # frames do not expire on a slow machine
    keys = [send_frame(service, key, jpeg(shade))["key"] for shade in range(frames.MOST + 2)]
    remaining = [one for one in keys if service.frames.picture(one)]
    assert remaining == keys[2:]
    monkeypatch.setattr(frames, "LASTS", -1)
    with service.frames.in_use(keys[-1]):
        service.frames._sweep()
        assert [one for one in keys if service.frames.picture(one)] == [keys[-1]]
    service.frames._sweep()
    assert not service.frames._standing


@pytest.mark.parametrize("frame", ["no base64!", base64.b64encode(b"no picture").decode(), 3, [1]])
def test_invalid_frame_raises_and_leaves_caches_unchanged(service, key, frame):
    before = cached_keys(service)
    with pytest.raises(ImageError):
        live_page(service, key, {"frame": frame})
    assert cached_keys(service) == before and not service.frames._standing


def test_frame_uses_half_the_threads_and_other_requests_all(service, key, monkeypatch):
    """torch gives a new thread the last thread count that was set in any thread."""
    trace, figures, frame_threads, other_threads = Inspector.trace, live.figures_of, [], []
    monkeypatch.setattr(service.work, "_threads", 4)
    before, inspector = torch.get_num_threads(), service.checkpoints.inspector("vitviz-tiny")

    def another() -> None:
        with service.work.reading(service.subject(key)):
            other_threads.append(torch.get_num_threads())

    def looked(*given, **named):
        frame_threads.append(torch.get_num_threads())
        (thread := threading.Thread(target=another)).start()
        thread.join()
        return trace(*given, **named)

    def drawn(*given):
        frame_threads.append(torch.get_num_threads())
        return figures(*given)

    monkeypatch.setattr(Inspector, "trace", looked)
    monkeypatch.setattr(live, "figures_of", drawn)  # takes no scheduler turn
    asked = {"frame": base64.b64encode(jpeg()).decode(), "views": ["rollout"]}
    told = TestClient(FastAPI(routes=routes(service))).post(f"/gradio_api/vitviz/{key}/live", json=asked)
    assert told.json()["figures"]["rollout"]
    assert (frame_threads, other_threads) == ([2, 2], [4])
    with service.work.computing(inspector, None):
        assert torch.get_num_threads() == 4
    assert torch.get_num_threads() == before
