"""Scheduling: cheap requests run beside expensive ones, clients alternate, and cancelled requests leave."""

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


class HeldTurns:
    """Runs requests that hold their turn until released. `order` lists the names in order of their turns."""

    def __init__(self, **given):
        self.turns, self.order, self.release = FairScheduler(**given), [], {}
        self.threads = ThreadPoolExecutor(20)

    def request(self, name: str, expensive: bool, visitor: str):
        self.release[name] = threading.Event()

        def work():
            with self.turns.turn(_kind(expensive), visitor):
                self.order.append(name)
                assert self.release[name].wait(20)

        before = len(self.turns._lines[_kind(expensive)].waiting) + len(
            self.turns._lines[_kind(expensive)].computing
        )
        future = self.threads.submit(work)
        wait_until(
            lambda: (
                future.done()
                or len(self.turns._lines[_kind(expensive)].waiting)
                + len(self.turns._lines[_kind(expensive)].computing)
                > before
            )
        )
        return future


def test_cheap_request_runs_beside_an_expensive_one():
    room = HeldTurns(cheap=1)
    for name in "abc":
        room.request(name, True, name)
    cheap = room.request("cheap", False, "d")
    room.release["cheap"].set()
    cheap.result(20)
    assert sorted(room.order) == ["a", "cheap"]
    for name in "abc":
        room.release[name].set()
    wait_until(lambda: sorted(room.order) == ["a", "b", "c", "cheap"])


def test_clients_alternate_in_the_queue():
    room = HeldTurns(cheap=1, waiting=9)
    for name in ("a1", "a2", "a3", "b1"):
        room.request(name, True, name[0])
    for name in ("a1", "b1", "a2", "a3"):
        room.release[name].set()
    wait_until(lambda: len(room.order) == 4)
    assert room.order == ["a1", "b1", "a2", "a3"]


def test_full_queue_rejects_and_cancelled_request_frees_its_place():
    room, client_left = HeldTurns(waiting=1), threading.Event()
    room.request("a", True, "a")

    def wait():
        with cancellation.when(client_left.is_set), room.turns.turn(EXPENSIVE, "b"):
            raise AssertionError("a cancelled request got a turn")

    waiting = room.threads.submit(wait)
    wait_until(lambda: room.turns._lines[EXPENSIVE].waiting)
    with pytest.raises(TooMuch, match="Retry in a minute"), room.turns.turn(EXPENSIVE, "c"):
        pass
    client_left.set()
    with pytest.raises(Stopped):
        waiting.result(20)
    room.request("d", True, "d")
    room.release["a"].set(), room.release["d"].set()
    wait_until(lambda: room.order == ["a", "d"])


def test_error_releases_the_turn_and_nested_turns_count_once():
    turns = FairScheduler(cheap=1)
    with pytest.raises(ZeroDivisionError), turns.turn(EXPENSIVE, "a"), turns.turn(EXPENSIVE, "a"):
        1 / 0  # noqa: B018, raises
    with turns.turn(EXPENSIVE, "a"), turns.turn(CHEAP, "a"):
        assert len(turns._lines[EXPENSIVE].computing) == 1 and not turns._lines[CHEAP].computing
    assert not turns._lines[EXPENSIVE].computing


def test_waiting_for_a_cache_entry_releases_the_turn():
    """Otherwise the computing request could wait for this turn: a deadlock."""
    turns, cache, making, waits = FairScheduler(), Cache(10, len), threading.Event(), threading.Event()

    def make():
        making.set()
        assert waits.wait(20)
        with turns.turn(EXPENSIVE, "b"):
            return b"made"

    def wait():
        with turns.turn(EXPENSIVE, "a"), set_waiting_context(turns.turn_released):
            waits.set()
            found = cache.get("x", lambda: b"never")
            assert [one.visitor for one in turns._lines[EXPENSIVE].computing] == ["a"], (
                "the turn is not taken again"
            )
            return found

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(cache.get, "x", make)
        assert making.wait(20)
        assert threads.submit(wait).result(20) == first.result(20) == b"made"


def test_reading_turn_is_released_while_computing():
    turns = FairScheduler()
    with turns.turn(READING, "a"):
        with turns.turn(CHEAP, "a"):
            assert not turns._lines[READING].computing and len(turns._lines[CHEAP].computing) == 1
        assert len(turns._lines[READING].computing) == 1 and not turns._lines[CHEAP].computing
    assert not turns._lines[READING].computing


def test_third_request_waits_and_eleventh_is_rejected():
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
                raise AssertionError("the eleventh request was accepted")
        with turns.place("b"), turns.place("a", at_once=True):
            pass  # another client, and a request that running ones may wait for
        go.set()
        [one.result(20) for one in asked]
    assert not turns._answers


def test_last_free_turn_goes_to_another_client():
    room = HeldTurns(cheap=2)
    for name in ("a1", "a2", "b1"):
        room.request(name, False, name[0])
    wait_until(lambda: len(room.order) == 2)
    assert sorted(room.order) == ["a1", "b1"]
    for name in ("a1", "b1", "a2"):
        room.release[name].set()
    wait_until(lambda: len(room.order) == 3)


def test_sessions_of_one_address_share_its_priority():
    room = HeldTurns(cheap=1)
    for name, visitor in (("1", "x s1"), ("2", "x s2"), ("3", "x s3"), ("4", "y s4")):
        room.request(name, True, visitor)
    for name in "1423":
        room.release[name].set()
    wait_until(lambda: len(room.order) == 4)
    assert room.order == ["1", "4", "2", "3"]


def test_concurrent_turns_fit_the_memory_budget():
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
        assert inside.is_set(), "a request above the budget does not run alone"


def test_expensive_request_pauses_for_cheap_ones_for_a_limited_time():
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
            assert not goes.wait(0.6), "the expensive request did not pause"
            assert goes.wait(20), "the pause exceeds the computing time"
        assert 0.3 < found.result(20) < 3


def test_too_many_tokens_are_rejected_with_a_suitable_size():
    service = AnalysisService(ServiceSettings(device="cpu", limits=Limits(tokens=400)))
    picture = service.pictures.sample("chelsea")
    inspector = service.checkpoints.inspector("vitviz-tiny")
    patch = inspector.grid().patch[0]
    with pytest.raises(TooMuch, match="this server allows 400") as error:
        service.look(picture, "vitviz-tiny", (patch * 50, patch * 30))
    height, width = (int(n) for n in str(error.value).split("400. Try ")[1].split(" pixels")[0].split(" x "))
    assert inspector.demand((height, width)).tokens <= 400
    assert (patch * 50, patch * 30) not in inspector.placed.sizes
    assert service.look(picture, "vitviz-tiny", (height, width))


def test_time_limit_ends_a_pass_with_message():
    service = AnalysisService(ServiceSettings(device="cpu", limits=Limits(seconds=1e-9)))
    with pytest.raises(TooMuch, match="longer than the limit of 1e-09 seconds"):
        service.look(service.pictures.sample("chelsea"), "vitviz-tiny")


def test_disconnected_client_cancels_pass_and_next_request_runs(monkeypatch):
    service = AnalysisService(ServiceSettings(device="cpu"))
    picture, client = service.pictures.sample("chelsea"), SimpleNamespace(alive=False)
    monkeypatch.setattr(request_context, "visitor_has_left", lambda: not client.alive)
    with pytest.raises(request_context.PageClosed):
        service.look(picture, "vitviz-tiny")
    client.alive = True
    assert service.look(picture, "vitviz-tiny")


def test_requests_are_queued_by_cost(monkeypatch):
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


def test_client_has_left_if_event_or_connection_ended(monkeypatch):
    def client_has_left(alive: bool, since: float = 0) -> bool:
        began = time.monotonic() - since
        events = {"mine": SimpleNamespace(alive=alive, enqueue_time=began, session_hash="session")}
        LocalContext.blocks.set(SimpleNamespace(_queue=SimpleNamespace(event_ids_to_events=events)))
        LocalContext.event_id.set("mine")
        return request_context.visitor_has_left()

    assert copy_context().run(client_has_left, False) and not copy_context().run(client_has_left, True)
    assert not copy_context().run(client_has_left, True, 9), "a slow browser counts as gone"
    assert copy_context().run(client_has_left, True, 16), "a client without a stream counts as present"
    for name in ("session", "mine"):
        with request_context.register_stream(name):
            assert not copy_context().run(client_has_left, True, 16)
    monkeypatch.setattr(request_context, "LOOKS", -1)
    for broken in (True, False):
        monkeypatch.setattr(request_context.anyio.from_thread, "run", lambda asked, broken=broken: broken)
        with request_context.bind_request(SimpleNamespace(is_disconnected=None)):
            assert request_context.visitor_has_left() is broken
    assert not request_context.visitor_has_left()


def test_attention_layer_above_600_tokens_is_rejected():
    from vitviz.views.explorer import require_sendable

    require_sendable(SimpleNamespace(grid=SimpleNamespace(tokens=600)))
    with pytest.raises(TooMuch, match="up to 600 tokens, and this one has 601"):
        require_sendable(SimpleNamespace(grid=SimpleNamespace(tokens=601)))


def test_limits_come_from_options_environment_and_space(monkeypatch, capsys):
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
