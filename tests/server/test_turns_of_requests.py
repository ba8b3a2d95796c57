"""Every route, endpoint and listener that computes holds a turn of its visitor's within one bound of time; of
a camera's frame each view and each item is made once.
"""

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

STATIC = {  # what computes nothing
    "card.jpg", "modules/{version}/{path:path}", "plotly/{version}/plotly.min.js", "sample/{name}",
    "{key}/progress", "{key}/{view}/film.progress",
}  # fmt: skip
GIVEN = {"view": "rollout", "name": "map", "which": "input", "version": "1", "path:path": "frontend/mount.js"}


@pytest.fixture
def page(service):
    return TestClient(FastAPI(routes=routes.routes(service)))


@contextmanager
def read_by_others(work: WorkQueue):
    """No place is left among those who read."""
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


def test_every_route_that_computes_waits_for_its_turn_and_what_is_static_for_nobody(
    page, service, key, monkeypatch
):
    monkeypatch.setattr(lessons, "lesson_zip", lambda *given: b"zip")
    without, answers = set(), {}
    with ThreadPoolExecutor(20) as threads:
        with read_by_others(service.work) as line:
            for route in page.app.routes:
                path, before = route.path, len(line.waiting)
                if not path.startswith(routes.BASE):
                    continue
                path_given = path.replace("sample/{name}", "sample/coffee").replace("check/{name}", "check/0")
                address = re.sub(r"\{([\w:]+)\}", lambda part: {"key": key, **GIVEN}[part[1]], path_given)
                (method,) = route.methods
                asked = threads.submit(page.request, method, f"{address}?discard=0.123")
                wait_until(lambda asked=asked, before=before: asked.done() or len(line.waiting) > before)
                answers[path] = asked
                if asked.done():
                    without.add(path.removeprefix(f"{routes.BASE}/"))
        assert without == STATIC
        assert {path: asked.result(60).status_code for path, asked in answers.items()} == {
            path: 422 if path.endswith("/video") else 200 for path in answers
        }


def test_every_endpoint_and_every_change_of_the_page_holds_a_turn(service, monkeypatch):
    held = []

    @contextmanager
    def turn():
        held.append(True)
        raise Unknown("a turn was asked for")
        yield

    monkeypatch.setattr(service.work, "request_turn", turn)
    demo = build.build_page(service)
    public = [fn for fn in demo.fns.values() if fn.api_visibility == "public"]
    assert len(public) == len(endpoints.PUBLIC) + len(endpoints.views_with_endpoints())
    for fn in public:
        with pytest.raises(gr.Error, match="a turn was asked for"):
            next(iter(fn.fn()))  # a stream asks for a turn with each result
    monkeypatch.setattr(PageRenderer, "unchanged", lambda page, more=0: [])
    shown = object.__new__(PageRenderer)
    shown.service = service
    count = len(held)
    assert "a turn was asked for" in str(shown.attempt({}, lambda state: [state]))
    assert len(held) == count + 1


def test_a_frames_views_and_items_are_made_once_however_often_they_are_named(page, service, key, monkeypatch):
    made, figures, item = [], routes.figures_of, service.item
    monkeypatch.setattr(
        routes, "figures_of", lambda view, *given: made.append(view.slug) or figures(view, *given)
    )
    monkeypatch.setattr(service, "item", lambda *given: made.append(given[1:3]) or item(*given))
    frame = base64.b64encode(jpeg()).decode()
    asked = {"frame": frame, "views": ["rollout", "tokens"] * 3, "items": ["rollout/map"] * 50}
    assert page.post(f"{routes.BASE}/{key}/live", json=asked).status_code == 200
    assert sorted(made, key=str) == [("rollout", "map"), "rollout", "tokens"]


def test_more_views_than_there_are_end_a_frame_before_its_pass(page, service, key, monkeypatch):
    monkeypatch.setattr(service.frames, "passing", None)
    frame, most = base64.b64encode(jpeg()).decode(), len(VIEWS)
    for views in (["rollout"] * (most + 1), [3] * 200_000):
        answer = page.post(f"{routes.BASE}/{key}/live", json={"frame": frame, "views": views})
        assert answer.status_code == 422
        assert answer.json()["text"] == f"Given {len(views)} views; expected each of at most {most} once."


@pytest.mark.long
def test_a_posted_question_with_values_of_other_types_is_a_refusal(page, key):
    fields = ("frame", "second", "last", "views", "items", "at", "video", "heads", "flickers")
    rng, frame = random.Random(0), base64.b64encode(jpeg()).decode()
    known = [value for value in VALUES if value == value and value not in (float("inf"), "\ud83d")]
    for number in range(150):
        given = {"frame": frame, "views": ["rollout"]}
        given |= {name: rng.choice(known) for name in rng.sample(fields, rng.choice([1, 2]))}
        question = rng.choice(known) if number % 10 == 0 else given
        answer = page.post(f"{routes.BASE}/{key}/live", json=question)
        assert answer.status_code in (200, 404, 422), (question, answer.text)
        assert "x" * 201 not in answer.text
    for name, wrong in (("views", 3), ("views", [3]), ("views", "rollout"), ("second", ["x"]), ("last", {}),
                        ("video", 3)):  # fmt: skip
        answer = page.post(f"{routes.BASE}/{key}/live", json={"frame": frame, name: wrong})
        assert answer.status_code == 422 and f"Given {name}=" in answer.json()["text"], (name, wrong)
    for body in (b"{", b"\xff", b'["\\ud83d"]', b"[" * 100_000):
        assert page.post(f"{routes.BASE}/{key}/live", content=body).status_code == 422


def test_who_waits_for_a_place_gives_the_turn_of_reading_back():
    """Those of the same visitor who have places come back to it: all would wait for ever."""
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
        asked = [threads.submit(in_place, number == 0) for number in range(UNDER_WAY)]
        wait_until(lambda: places.get("a") and len(places["a"].computing) == UNDER_WAY)
        asked.append(threads.submit(third))
        wait_until(lambda: places["a"].waiting)
        waits.set()
        assert all(one.result(20) for one in asked)


def test_a_requests_time_is_what_it_computes_and_not_what_it_waits_within_its_turn(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(scheduler, "time", SimpleNamespace(monotonic=lambda: now[0]))
    work = WorkQueue(Limits(seconds=300))
    with scheduler.as_one_request(), work.request_turn():
        assert not scheduler.has_computed()  # what has computed nothing yet may still be refused
        now[0] += 200
        with work.turns.given_back():
            now[0] += 1_000
        with work.drawing(0):
            now[0] += 50
        assert scheduler.has_computed()
        cancellation.check()
        now[0] += 51
        with pytest.raises(TooMuch, match="longer than the limit of 300 seconds"):
            cancellation.check()


def test_the_cameras_of_one_visitor_take_one_place_and_another_visitor_the_next(
    page, service, key, monkeypatch
):
    """However many cameras a visitor has, the next frame's views wait while the first one's are made."""
    go, at_work = threading.Event(), []
    looked = routes._frame_answer

    def held(*given):
        at_work.append(request_context.visitor_name())
        assert go.wait(60)
        return looked(*given)

    monkeypatch.setattr(routes, "_frame_answer", held)
    monkeypatch.setattr(request_context, "listener_name", lambda request, page=None: request.headers["who"])
    line, frame = service.work.turns._lines[READING], base64.b64encode(jpeg()).decode()

    def camera(name: str):
        question = {"frame": frame, "views": ["rollout"]}
        return page.post(f"{routes.BASE}/{key}/live", json=question, headers={"who": name})

    with ThreadPoolExecutor(12) as threads:
        many = [threads.submit(camera, "many") for _ in range(10)]
        wait_until(lambda: len(line.waiting) == 9 and at_work == ["many"])
        other = threads.submit(camera, "other")
        wait_until(lambda: at_work == ["many", "other"])
        go.set()
        assert {one.result(60).status_code for one in many} <= {200, 404, 422}  # too many
        assert other.result().status_code == 200
