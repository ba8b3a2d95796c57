"""A camera's frame on the server: looked at as the photograph is, bounded, and gone without a trace."""

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


def ask(service, key: str, data: bytes | None = None, **more) -> dict:
    frame = {} if data is None else {"frame": base64.b64encode(data).decode()}
    return live_page(service, key, {"views": ["rollout"], **frame, **more})


def held(service) -> list[list]:
    """What every memory of the server holds, by its keys."""
    caches = (
        service._traces, service._drawn, service._abouts, service._counts, service.runs._runs,
        service.runs._pairs,
        service.pictures._pictures, service.pictures._pixels,
    )  # fmt: skip
    return [sorted(map(repr, cache._entries)) for cache in caches]


def test_a_frame_is_seen_as_an_upload_of_it_would_be(service, key):
    run = service.runs.run(key)
    photo = service.look(run.picture, "vitviz-tiny", without=WITHOUT)
    told = ask(service, photo, jpeg(), views=[view.slug for view in VIEWS])
    kept = service.look(service.pictures.keep_bytes(jpeg()), "vitviz-tiny", without=WITHOUT)
    assert told["key"] != kept and told["size"] == [112, 112]
    seen, upload = service.subject(told["key"]).trace, service.subject(kept).trace
    assert (seen.logits == upload.logits).all() and seen.without == WITHOUT
    assert told["answers"][0]["top"][0][0] == upload.top(1)[0][0]
    assert set(told["figures"]) == {view.slug for view in VIEWS}
    ask(service, photo, last=told["key"])


def test_nothing_is_left_of_a_frame_once_the_next_stands(service, key):
    views, last = ["rollout", "evidence", "tokens", "positions"], ""
    for shade in range(2):  # what is of the weights alone stays
        last = ask(service, key, jpeg(shade), views=views, last=last, second=key)["key"]
        service.item(last, "rollout", "map", {})
        service.image(last, "input")
    before = held(service)
    for shade in range(2, 8):
        last = ask(service, key, jpeg(shade), views=views, last=last, second=key)["key"]
        service.item(last, "rollout", "map", {})
        service.image(last, "input")
        assert [len(one) for one in held(service)] == [len(one) for one in before]
    ask(service, key, last=last)
    assert not any(last in name for names in held(service) for name in names)
    with pytest.raises(Unknown):
        service.item(last, "rollout", "map", {})
    assert service.subject(key).trace is not None  # the photograph's is where it was


def test_what_is_made_of_a_frame_that_was_forgotten_meanwhile_is_forgotten_too(service, key):
    told = ask(service, key, jpeg())["key"]
    with service.frames.looked_at(told) as passing:
        assert passing
        ask(service, key, last=told)
        service._drawn.get((told, "rollout", "map", ()), lambda: np.zeros(3))
    assert not any(told in name for names in held(service) for name in names)


def test_what_was_drawn_of_the_frame_before_comes_with_the_next(service, key):
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
    asked = {"views": ["rollout"], "frame": frame, "items": items}
    body = client.post(f"/gradio_api/vitviz/{key}/live", json=asked).content
    end = 4 + int.from_bytes(body[:4], "little")
    told, rest = json.loads(body[4:end]), body[end:]
    assert [name for name, *_ in told["arrays"]] == items[:3] and set(told["figures"]) == {"rollout"}
    for name, shape, kind, size in told["arrays"]:
        sent, rest = np.frombuffer(rest[:size], kind).reshape(shape), rest[size:]
        slug, item = name.partition("?")[0].split("/")
        given = {"chosen": "2.1"} if "chosen" in name else {}
        np.testing.assert_array_equal(sent, service.item(told["key"], slug, item, given))
    assert not rest
    for wrong in (None, 3, {"a": 1}, [[1]]):
        got = client.post(
            f"/gradio_api/vitviz/{key}/live", json={**asked, "items": wrong, "last": told["key"]}
        )
        told = json.loads(got.content[4 : 4 + int.from_bytes(got.content[:4], "little")])
        assert got.status_code == 200 and told["arrays"] == []
    assert client.post(f"/gradio_api/vitviz/{key}/live", json={"last": told["key"]}).json() == {}
    assert not any(told["key"] in name for names in held(service) for name in names)


def test_no_photograph_is_forgotten_in_place_of_a_frame(service, key):
    ask(service, key, last=key)
    assert service.subject(key).trace is not None


def test_of_one_visitor_only_the_last_frames_stand_and_old_ones_go(service, key, monkeypatch):
    monkeypatch.setattr(frames, "LASTS", 1e6)  # however slow the machine is
    each = [ask(service, key, jpeg(shade))["key"] for shade in range(frames.MOST + 2)]
    standing = [one for one in each if service.frames.picture(one)]
    assert standing == each[2:]
    monkeypatch.setattr(frames, "LASTS", -1)
    with service.frames.looked_at(each[-1]):
        service.frames._sweep()
        assert [one for one in each if service.frames.picture(one)] == [each[-1]]
    service.frames._sweep()
    assert not service.frames._standing


@pytest.mark.parametrize("frame", ["no base64!", base64.b64encode(b"no picture").decode(), 3, [1]])
def test_what_is_no_frame_is_a_sentence_and_leaves_nothing(service, key, frame):
    before = held(service)
    with pytest.raises(ImageError):
        live_page(service, key, {"frame": frame})
    assert held(service) == before and not service.frames._standing


def test_a_frame_is_computed_on_half_of_the_cores_and_what_comes_beside_it_on_all(service, key, monkeypatch):
    """Though torch gives a thread that it has not met yet as many as it was given last, in any thread."""
    trace, figures, on, beside = Inspector.trace, live.figures_of, [], []
    monkeypatch.setattr(service.work, "_threads", 4)
    before, inspector = torch.get_num_threads(), service.checkpoints.inspector("vitviz-tiny")

    def another() -> None:
        with service.work.reading(service.subject(key)):
            beside.append(torch.get_num_threads())

    def looked(*given, **named):
        on.append(torch.get_num_threads())
        (thread := threading.Thread(target=another)).start()
        thread.join()
        return trace(*given, **named)

    def drawn(*given):
        on.append(torch.get_num_threads())
        return figures(*given)

    monkeypatch.setattr(Inspector, "trace", looked)
    monkeypatch.setattr(live, "figures_of", drawn)  # which waits for no turn
    asked = {"frame": base64.b64encode(jpeg()).decode(), "views": ["rollout"]}
    told = TestClient(FastAPI(routes=routes(service))).post(f"/gradio_api/vitviz/{key}/live", json=asked)
    assert told.json()["figures"]["rollout"]
    assert (on, beside) == ([2, 2], [4])
    with service.work.computing(inspector, None):
        assert torch.get_num_threads() == 4
    assert torch.get_num_threads() == before
