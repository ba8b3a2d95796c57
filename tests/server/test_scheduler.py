"""Cheap ones never wait for expensive ones, no visitor's for another's, and who has left not at all."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import SimpleNamespace

import numpy as np
import pytest
from gradio.context import LocalContext

from tests.server.helpers import wait_until
from vitviz.errors import Stopped, TooMuch
from vitviz.server.options import Limits
from vitviz.server.security import request_context
from vitviz.server.security.scheduler import CHEAP, EXPENSIVE, READING, FairScheduler
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.server.services.cache import Cache, set_waiting_context
from vitviz.traces import cancellation


def _kind(expensive: bool) -> str:
    return EXPENSIVE if expensive else CHEAP


class Room:
    """Wishes that hold their turn until they are let go; `order` says who had one when."""

    def __init__(self, **given):
        self.turns, self.order, self.go = FairScheduler(**given), [], {}
        self.threads = ThreadPoolExecutor(20)

    def wish(self, name: str, expensive: bool, visitor: str):
        self.go[name] = threading.Event()

        def work():
            with self.turns.turn(_kind(expensive), visitor):
                self.order.append(name)
                assert self.go[name].wait(20)

        before = len(self.turns._lines[_kind(expensive)].waiting) + len(
            self.turns._lines[_kind(expensive)].computing
        )
        found = self.threads.submit(work)
        wait_until(
            lambda: (
                found.done()
                or len(self.turns._lines[_kind(expensive)].waiting)
                + len(self.turns._lines[_kind(expensive)].computing)
                > before
            )
        )
        return found


def test_a_cheap_one_computes_while_a_dear_one_does_and_others_wait():
    room = Room(cheap=1)
    for name in "abc":
        room.wish(name, True, name)
    cheap = room.wish("cheap", False, "d")
    room.go["cheap"].set()
    cheap.result(20)
    assert sorted(room.order) == ["a", "cheap"]
    for name in "abc":
        room.go[name].set()
    wait_until(lambda: sorted(room.order) == ["a", "b", "c", "cheap"])


def test_the_wishes_of_one_visitor_are_not_all_before_that_of_another():
    room = Room(cheap=1, waiting=9)
    for name in ("a1", "a2", "a3", "b1"):
        room.wish(name, True, name[0])
    for name in ("a1", "b1", "a2", "a3"):
        room.go[name].set()
    wait_until(lambda: len(room.order) == 4)
    assert room.order == ["a1", "b1", "a2", "a3"]


def test_a_full_line_refuses_at_once_and_whoever_left_gives_the_place_back():
    room, left = Room(waiting=1), threading.Event()
    room.wish("a", True, "a")

    def wait():
        with cancellation.when(left.is_set), room.turns.turn(EXPENSIVE, "b"):
            raise AssertionError("a turn of somebody who left")

    waiting = room.threads.submit(wait)
    wait_until(lambda: room.turns._lines[EXPENSIVE].waiting)
    with pytest.raises(TooMuch, match="Retry in a minute"), room.turns.turn(EXPENSIVE, "c"):
        pass
    left.set()
    with pytest.raises(Stopped):
        waiting.result(20)
    room.wish("d", True, "d")
    room.go["a"].set(), room.go["d"].set()
    wait_until(lambda: room.order == ["a", "d"])


def test_an_error_gives_the_turn_back_and_one_turn_within_another_is_the_same():
    turns = FairScheduler(cheap=1)
    with pytest.raises(ZeroDivisionError), turns.turn(EXPENSIVE, "a"), turns.turn(EXPENSIVE, "a"):
        1 / 0  # noqa: B018, raising is its purpose
    with turns.turn(EXPENSIVE, "a"), turns.turn(CHEAP, "a"):
        assert len(turns._lines[EXPENSIVE].computing) == 1 and not turns._lines[CHEAP].computing
    assert not turns._lines[EXPENSIVE].computing


def test_who_waits_for_what_another_makes_gives_the_turn_back():
    """The maker may need that very turn: both would wait for ever."""
    turns, cache, making, waits = FairScheduler(), Cache(10, len), threading.Event(), threading.Event()

    def make():
        making.set()
        assert waits.wait(20)
        with turns.turn(EXPENSIVE, "b"):
            return b"made"

    def wait():
        with turns.turn(EXPENSIVE, "a"), set_waiting_context(turns.given_back):
            waits.set()
            found = cache.get("x", lambda: b"never")
            assert [one.visitor for one in turns._lines[EXPENSIVE].computing] == ["a"], "and has it again"
            return found

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(cache.get, "x", make)
        assert making.wait(20)
        assert threads.submit(wait).result(20) == first.result(20) == b"made"


def test_what_reads_gives_its_turn_back_where_it_comes_to_compute():
    turns = FairScheduler()
    with turns.turn(READING, "a"):
        with turns.turn(CHEAP, "a"):
            assert not turns._lines[READING].computing and len(turns._lines[CHEAP].computing) == 1
        assert len(turns._lines[READING].computing) == 1 and not turns._lines[CHEAP].computing
    assert not turns._lines[READING].computing


def test_of_one_visitor_two_answers_are_under_way_and_eight_wait_and_the_next_is_told_how_long():
    turns, go, order = FairScheduler(), threading.Event(), []

    def answer(number: int):
        with turns.place("a"):
            order.append(number)
            assert go.wait(20)

    with ThreadPoolExecutor(10) as threads:
        asked = [threads.submit(answer, number) for number in range(10)]
        wait_until(lambda: len(order) == 2 and len(turns._answers["a"].waiting) == 8)
        with pytest.raises(TooMuch, match="2 requests running and 8 waiting.* about 1 seconds"):
            with turns.place("a"):
                raise AssertionError("an eleventh")
        with turns.place("b"), turns.place("a", at_once=True):
            pass  # another visitor, and what those under way may be waiting for
        go.set()
        [one.result(20) for one in asked]
    assert not turns._answers


def test_the_last_place_is_nobodys_who_has_one():
    room = Room(cheap=2)
    for name in ("a1", "a2", "b1"):
        room.wish(name, False, name[0])
    wait_until(lambda: len(room.order) == 2)
    assert sorted(room.order) == ["a1", "b1"]
    for name in ("a1", "b1", "a2"):
        room.go[name].set()
    wait_until(lambda: len(room.order) == 3)


def test_other_sessions_of_one_address_do_not_come_before_another_address():
    room = Room(cheap=1)
    for name, whose in (("1", "x s1"), ("2", "x s2"), ("3", "x s3"), ("4", "y s4")):
        room.wish(name, True, whose)
    for name in "1423":
        room.go[name].set()
    wait_until(lambda: len(room.order) == 4)
    assert room.order == ["1", "4", "2", "3"]


def test_all_that_compute_at_once_fit_into_the_memory_there_is():
    turns, inside = FairScheduler(budget=100), threading.Event()

    def big():
        with turns.turn(EXPENSIVE, "b", 60):
            inside.set()

    with ThreadPoolExecutor(1) as threads:
        with turns.turn(CHEAP, "a", 50):
            waiting = threads.submit(big)
            wait_until(lambda: turns._lines[EXPENSIVE].waiting)
            assert not inside.wait(0.5)
        waiting.result(20)
    with turns.turn(EXPENSIVE, "a", 1e9):
        assert inside.is_set(), "what is larger than all there is goes alone"


def test_what_is_dear_stands_back_between_two_steps_and_is_never_stopped_for_good():
    turns, stands, goes = FairScheduler(), threading.Event(), threading.Event()

    def expensive():
        with turns.turn(EXPENSIVE, "a"):
            stands.wait(20)
            time.sleep(0.5)
            before = time.monotonic()
            cancellation.check()
            goes.set()
            return time.monotonic() - before

    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(expensive)
        wait_until(lambda: turns._lines[EXPENSIVE].computing)
        with turns.turn(CHEAP, "b"):
            stands.set()
            assert not goes.wait(0.6), "it went on beside what is cheap"
            assert goes.wait(20), "it waits no longer than it has computed"
        assert 0.3 < found.result(20) < 3


def test_too_many_tokens_are_refused_before_with_a_size_that_would_do():
    service = AnalysisService(ServiceSettings(device="cpu", limits=Limits(tokens=400)))
    picture = service.pictures.sample("chelsea")
    inspector = service.checkpoints.inspector("vitviz-tiny")
    patch = inspector.grid().patch[0]
    with pytest.raises(TooMuch, match="this server allows 400") as refused:
        service.look(picture, "vitviz-tiny", (patch * 50, patch * 30))
    height, width = (
        int(n) for n in str(refused.value).split("400. Try ")[1].split(" pixels")[0].split(" x ")
    )
    assert inspector.demand((height, width)).tokens <= 400
    assert (patch * 50, patch * 30) not in inspector.placed.sizes
    assert service.look(picture, "vitviz-tiny", (height, width))


def test_time_that_is_over_ends_a_pass_with_a_sentence():
    service = AnalysisService(ServiceSettings(device="cpu", limits=Limits(seconds=1e-9)))
    with pytest.raises(TooMuch, match="longer than the limit of 1e-09 seconds"):
        service.look(service.pictures.sample("chelsea"), "vitviz-tiny")


def test_a_visitor_who_left_ends_the_pass_and_the_next_one_is_answered(monkeypatch):
    service = AnalysisService(ServiceSettings(device="cpu"))
    picture, left = service.pictures.sample("chelsea"), SimpleNamespace(alive=False)
    monkeypatch.setattr(request_context, "visitor_has_left", lambda: not left.alive)
    with pytest.raises(request_context.PageClosed):
        service.look(picture, "vitviz-tiny")
    left.alive = True
    assert service.look(picture, "vitviz-tiny")


def test_what_is_dear_has_a_line_of_its_own_and_what_is_cheap_to_read_has_none(monkeypatch):
    service = AnalysisService(ServiceSettings(device="cpu"))
    inspector, lines = service.checkpoints.inspector("vitviz-tiny"), service.work.turns._lines
    for size, expensive in ((None, False), ((1120, 1120), True)):
        with service.work.computing(inspector, size):
            assert len(lines[_kind(expensive)].computing) == 1 and not lines[_kind(not expensive)].computing
    for tokens, expensive in ((197, False), (5_000, True)):
        trace = SimpleNamespace(
            layers=[SimpleNamespace(heads=12)] * 12,
            grid=SimpleNamespace(tokens=tokens),
            tokens=[np.zeros((1, 768))],
        )
        with service.work.reading(SimpleNamespace(trace=trace)):
            assert (
                len(lines[EXPENSIVE if expensive else READING].computing) == 1 and not lines[CHEAP].computing
            )
    monkeypatch.setattr(request_context, "visitor_has_left", lambda: True)
    with pytest.raises(request_context.PageClosed), service.work.computing(inspector, None):
        cancellation.check()


def test_a_visitor_is_gone_when_the_event_or_the_connection_is(monkeypatch):
    def of_a_listener(alive: bool, since: float = 0) -> bool:
        began = time.monotonic() - since
        events = {"mine": SimpleNamespace(alive=alive, enqueue_time=began, session_hash="session")}
        LocalContext.blocks.set(SimpleNamespace(_queue=SimpleNamespace(event_ids_to_events=events)))
        LocalContext.event_id.set("mine")
        return request_context.visitor_has_left()

    assert copy_context().run(of_a_listener, False) and not copy_context().run(of_a_listener, True)
    assert not copy_context().run(of_a_listener, True, 9), "a slow browser may not listen yet"
    assert copy_context().run(of_a_listener, True, 16), "it was asked for and nobody listens for the answer"
    for name in ("session", "mine"):
        with request_context.register_stream(name):
            assert not copy_context().run(of_a_listener, True, 16)
    monkeypatch.setattr(request_context, "LOOKS", -1)
    for broken in (True, False):
        monkeypatch.setattr(request_context.anyio.from_thread, "run", lambda asked, broken=broken: broken)
        with request_context.bind_request(SimpleNamespace(is_disconnected=None)):
            assert request_context.visitor_has_left() is broken
    assert not request_context.visitor_has_left()


def test_a_whole_layer_of_a_large_input_is_refused_by_the_server():
    from vitviz.views.explorer import require_sendable

    require_sendable(SimpleNamespace(grid=SimpleNamespace(tokens=600)))
    with pytest.raises(TooMuch, match="up to 600 tokens, and this one has 601"):
        require_sendable(SimpleNamespace(grid=SimpleNamespace(tokens=601)))


def test_limits_come_from_options_the_environment_and_a_space(monkeypatch, capsys):
    from vitviz.server.options import parse_options

    for name in (
        "SPACE_ID",
        "SPACES_ZERO_GPU",
        "VITVIZ_MAX_TOKENS",
        "VITVIZ_MAX_SECONDS",
        "VITVIZ_MAX_PASSES",
    ):
        monkeypatch.delenv(name, raising=False)
    assert parse_options([]).settings.limits == Limits()
    monkeypatch.setenv("SPACE_ID", "somebody/vitviz")
    assert parse_options([]).settings.limits == Limits(2_500, 60)
    monkeypatch.setenv("VITVIZ_MAX_TOKENS", "900")
    assert (
        parse_options([]).settings.limits.tokens == 900
        and parse_options(["--max-tokens", "700"]).settings.limits.tokens == 700
    )
    for wrong in (["--max-tokens", "0"], ["--max-seconds", "nan"], ["--max-passes", "x"]):
        with pytest.raises(SystemExit):
            parse_options(wrong)
    monkeypatch.setenv("VITVIZ_MAX_TOKENS", "many")
    with pytest.raises(SystemExit):
        parse_options([])
