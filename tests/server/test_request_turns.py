"""Routes, endpoints and listeners take scheduler turns; camera frames compute views and items once."""

import base64
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import gradio as gr
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.security.hostile_calls import VALUES
from tests.server.helpers import jpeg, wait_until
from vitviz.errors import TooMuch, Unknown
from vitviz.server.api import endpoints, lessons
from vitviz.server.options import Limits
from vitviz.server.page import build, routes
from vitviz.server.page.page_renderer import PageRenderer
from vitviz.server.security import request_context, scheduler
from vitviz.server.security.scheduler import CHEAP, READERS, READING, UNDER_WAY, FairScheduler
from vitviz.server.services.work import WorkQueue
from vitviz.traces import cancellation
from vitviz.views import VIEWS

STATIC = {  # routes without computation
    "card.jpg", "modules/{version}/{path:path}", "plotly/{version}/plotly.min.js", "sample/{name}",
    "fonts/{version}/{file}", "{key}/progress", "{key}/{view}/film.progress",
}  # fmt: skip
PATH_PARAMETERS = {
    "view": "rollout",
    "name": "map",
    "which": "input",
    "version": "1",
    "path:path": "frontend/mount.js",
    "file": "newsreader-latin-wght-normal.woff2",
}


@pytest.fixture
def page(service):
    return TestClient(FastAPI(routes=routes.routes(service)))


@contextmanager
def occupied_readers(work: WorkQueue):
    """Occupy all turns for reading by other clients."""
    with ExitStack() as held:
        for number in range(READERS):
            done, there = threading.Event(), threading.Event()

            def read(number=number, done=done, there=there):
                with work.turns.turn(READING, f"other-{number}"):
                    there.set()
                    assert done.wait(60)

            thread = threading.Thread(target=read)
            thread.start()
            assert there.wait(60)
            held.callback(thread.join)
            held.callback(done.set)
        yield work.turns._lines[READING]


def test_only_computing_routes_wait_for_a_turn(page, service, key, monkeypatch):
    monkeypatch.setattr(lessons, "lesson_zip", lambda *given: b"zip")
    without_turn, answers = set(), {}
    with ThreadPoolExecutor(20) as threads:
        with occupied_readers(service.work) as line:
            for route in page.app.routes:
                path, before = route.path, len(line.waiting)
                if not path.startswith(routes.BASE):
                    continue
                path_given = path.replace("sample/{name}", "sample/coffee").replace("check/{name}", "check/0")
                address = re.sub(
                    r"\{([\w:]+)\}", lambda part: {"key": key, **PATH_PARAMETERS}[part[1]], path_given
                )
                (method,) = route.methods
                future = threads.submit(page.request, method, f"{address}?discard=0.123")
                wait_until(lambda future=future, before=before: future.done() or len(line.waiting) > before)
                answers[path] = future
                if future.done():
                    without_turn.add(path.removeprefix(f"{routes.BASE}/"))
        assert without_turn == STATIC
        assert {path: future.result(60).status_code for path, future in answers.items()} == {
            path: 422 if path.endswith("/video") else 200 for path in answers
        }


def test_endpoints_and_page_changes_take_a_turn(service, monkeypatch):
    turns_taken = []

    @contextmanager
    def turn():
        turns_taken.append(True)
        raise Unknown("a turn was asked for")
        yield

    monkeypatch.setattr(service.work, "request_turn", turn)
    demo = build.build_page(service)
    public = [fn for fn in demo.fns.values() if fn.api_visibility == "public"]
    assert len(public) == len(endpoints.PUBLIC) + len(endpoints.views_with_endpoints())
    for fn in public:
        with pytest.raises(gr.Error, match="a turn was asked for"):
            next(iter(fn.fn()))  # a stream takes a turn per result
    monkeypatch.setattr(PageRenderer, "unchanged", lambda page, more=0: [])
    renderer = object.__new__(PageRenderer)
    renderer.service = service
    count = len(turns_taken)
    assert "a turn was asked for" in str(renderer.attempt({}, lambda state: [state]))
    assert len(turns_taken) == count + 1


def test_repeated_views_and_items_of_a_frame_are_computed_once(page, service, key, monkeypatch):
    computed, figures, item = [], routes.figures_of, service.item
    monkeypatch.setattr(
        routes, "figures_of", lambda view, *given: computed.append(view.slug) or figures(view, *given)
    )
    monkeypatch.setattr(service, "item", lambda *given: computed.append(given[1:3]) or item(*given))
    frame = base64.b64encode(jpeg()).decode()
    body = {"frame": frame, "views": ["rollout", "tokens"] * 3, "items": ["rollout/map"] * 50}
    assert page.post(f"{routes.BASE}/{key}/live", json=body).status_code == 200
    assert sorted(computed, key=str) == [("rollout", "map"), "rollout", "tokens"]


def test_frame_with_too_many_views_is_rejected_before_its_pass(page, service, key, monkeypatch):
    monkeypatch.setattr(service.frames, "passing", None)
    frame, most = base64.b64encode(jpeg()).decode(), len(VIEWS)
    for views in (["rollout"] * (most + 1), [3] * 200_000):
        response = page.post(f"{routes.BASE}/{key}/live", json={"frame": frame, "views": views})
        assert response.status_code == 422
        assert (
            response.json()["text"]
            == f"{len(views)} views are not valid; expected each of at most {most} once."
        )


@pytest.mark.long
def test_frame_request_with_wrong_types_is_rejected(page, key):
    fields = ("frame", "second", "last", "views", "items", "at", "video", "heads", "flickers")
    rng, frame = random.Random(0), base64.b64encode(jpeg()).decode()
    known = [value for value in VALUES if value == value and value not in (float("inf"), "\ud83d")]
    for number in range(150):
        given = {"frame": frame, "views": ["rollout"]}
        given |= {name: rng.choice(known) for name in rng.sample(fields, rng.choice([1, 2]))}
        body_json = rng.choice(known) if number % 10 == 0 else given
        response = page.post(f"{routes.BASE}/{key}/live", json=body_json)
        assert response.status_code in (200, 404, 422), (body_json, response.text)
        assert "x" * 201 not in response.text
    for name, wrong in (("views", 3), ("views", [3]), ("views", "rollout"), ("second", ["x"]), ("last", {}),
                        ("video", 3)):  # fmt: skip
        response = page.post(f"{routes.BASE}/{key}/live", json={"frame": frame, name: wrong})
        assert response.status_code == 422 and f"{name}=" in response.json()["text"], (name, wrong)
    for body in (b"{", b"\xff", b'["\\ud83d"]', b"[" * 100_000):
        assert page.post(f"{routes.BASE}/{key}/live", content=body).status_code == 422


def test_waiting_for_a_place_releases_the_reading_turn():
    """Running requests of the same client return to that turn: otherwise a deadlock."""
    scheduler, waits, computed = FairScheduler(), threading.Event(), threading.Event()
    places = scheduler._answers

    def in_place(first: bool):
        with scheduler.turn(READING, "a"), scheduler.place("a"):
            with scheduler.turn(CHEAP, "a"):
                computed.set() if first else None
                assert waits.wait(20)
            return True

    def third():
        with scheduler.turn(READING, "a"), scheduler.place("a"):
            return True

    with ThreadPoolExecutor(UNDER_WAY + 1) as threads:
        futures = [threads.submit(in_place, number == 0) for number in range(UNDER_WAY)]
        wait_until(lambda: places.get("a") and len(places["a"].computing) == UNDER_WAY)
        futures.append(threads.submit(third))
        wait_until(lambda: places["a"].waiting)
        waits.set()
        assert all(one.result(20) for one in futures)


def test_request_time_limit_excludes_waiting(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(scheduler, "time", SimpleNamespace(monotonic=lambda: now[0]))
    work = WorkQueue(Limits(seconds=300))
    with scheduler.as_one_request(), work.request_turn():
        assert not scheduler.has_computed()  # may still be rejected
        now[0] += 200
        with work.turns.turn_released():
            now[0] += 1_000
        with work.drawing(0):
            now[0] += 50
        assert scheduler.has_computed()
        cancellation.check()
        now[0] += 51
        with pytest.raises(TooMuch, match="longer than the limit of 300 seconds"):
            cancellation.check()


def test_cameras_of_one_client_do_not_block_another(page, service, key, monkeypatch):
    """Frames of one client wait for one another, however many cameras it has."""
    go, computing_clients = threading.Event(), []
    original = routes._frame_answer

    def held(*given):
        computing_clients.append(request_context.visitor_name())
        assert go.wait(60)
        return original(*given)

    monkeypatch.setattr(routes, "_frame_answer", held)
    monkeypatch.setattr(request_context, "listener_name", lambda request, page=None: request.headers["who"])
    line, frame = service.work.turns._lines[READING], base64.b64encode(jpeg()).decode()

    def camera(name: str):
        body = {"frame": frame, "views": ["rollout"]}
        return page.post(f"{routes.BASE}/{key}/live", json=body, headers={"who": name})

    with ThreadPoolExecutor(12) as threads:
        many = [threads.submit(camera, "many") for _ in range(10)]
        wait_until(lambda: len(line.waiting) == 9 and computing_clients == ["many"])
        other = threads.submit(camera, "other")
        wait_until(lambda: computing_clients == ["many", "other"])
        go.set()
        assert {one.result(60).status_code for one in many} <= {200, 404, 422}  # some frames are rejected
        assert other.result().status_code == 200
