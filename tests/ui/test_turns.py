"""Cheap ones never wait for dear ones, no visitor's for another's, and who has left not at all."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import SimpleNamespace

import numpy as np
import pytest
from gradio.context import LocalContext

from vitviz import stopping
from vitviz.errors import Stopped, TooMuch
from vitviz.ui.serving import visitor
from vitviz.ui.serving.limits import Limits
from vitviz.ui.serving.studio import Settings, Studio
from vitviz.ui.serving.turns import Turns


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


class Room:
    """Wishes that hold their turn until they are let go; `order` says who had one when."""

    def __init__(self, **given):
        self.turns, self.order, self.go = Turns(**given), [], {}
        self.threads = ThreadPoolExecutor(20)

    def wish(self, name: str, dear: bool, visitor: str):
        self.go[name] = threading.Event()

        def work():
            with self.turns.turn(dear, visitor):
                self.order.append(name)
                assert self.go[name].wait(20)

        before = len(self.turns._lines[dear].waiting) + len(self.turns._lines[dear].computing)
        found = self.threads.submit(work)
        until(
            lambda: (
                found.done()
                or len(self.turns._lines[dear].waiting) + len(self.turns._lines[dear].computing) > before
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
    until(lambda: sorted(room.order) == ["a", "b", "c", "cheap"])


def test_the_wishes_of_one_visitor_are_not_all_before_that_of_another():
    room = Room(cheap=1, waiting=9)
    for name in ("a1", "a2", "a3", "b1"):
        room.wish(name, True, name[0])
    for name in ("a1", "b1", "a2", "a3"):
        room.go[name].set()
    until(lambda: len(room.order) == 4)
    assert room.order == ["a1", "b1", "a2", "a3"]


def test_a_full_line_refuses_at_once_and_whoever_left_gives_the_place_back():
    room, left = Room(waiting=1), threading.Event()
    room.wish("a", True, "a")

    def wait():
        with stopping.when(left.is_set), room.turns.turn(True, "b"):
            raise AssertionError("a turn of somebody who left")

    waiting = room.threads.submit(wait)
    until(lambda: room.turns._lines[True].waiting)
    with pytest.raises(TooMuch, match="Try again in a minute"), room.turns.turn(True, "c"):
        pass
    left.set()
    with pytest.raises(Stopped):
        waiting.result(20)
    room.wish("d", True, "d")
    room.go["a"].set(), room.go["d"].set()
    until(lambda: room.order == ["a", "d"])


def test_an_error_gives_the_turn_back_and_one_turn_within_another_is_the_same():
    turns = Turns(cheap=1)
    with pytest.raises(ZeroDivisionError), turns.turn(True, "a"), turns.turn(True, "a"):
        1 / 0  # noqa: B018, raising is its purpose
    with turns.turn(True, "a"), turns.turn(False, "a"):
        assert turns._lines[True].computing == ["a"] and not turns._lines[False].computing
    assert not turns._lines[True].computing


def test_too_many_tokens_are_refused_before_with_a_size_that_would_do():
    studio = Studio(Settings(device="cpu", limits=Limits(tokens=400)))
    picture = studio.keep_sample("chelsea")
    inspector = studio.inspector("vitviz-tiny")
    patch = inspector.grid().patch[0]
    with pytest.raises(TooMuch, match="this server computes at most 400") as refused:
        studio.look(picture, "vitviz-tiny", (patch * 50, patch * 30))
    height, width = (int(n) for n in str(refused.value).split("400. ")[1].split(" pixels")[0].split(" x "))
    assert (
        inspector.demand((height, width)).tokens <= 400 and (patch * 50, patch * 30) not in inspector._sizes
    )
    assert studio.look(picture, "vitviz-tiny", (height, width))


def test_time_that_is_over_ends_a_pass_with_a_sentence():
    studio = Studio(Settings(device="cpu", limits=Limits(seconds=1e-9)))
    with pytest.raises(TooMuch, match="longer than the 1e-09 seconds"):
        studio.look(studio.keep_sample("chelsea"), "vitviz-tiny")


def test_a_visitor_who_left_ends_the_pass_and_the_next_one_is_answered(monkeypatch):
    studio = Studio(Settings(device="cpu"))
    picture, left = studio.keep_sample("chelsea"), SimpleNamespace(alive=False)
    monkeypatch.setattr(visitor, "gone", lambda: not left.alive)
    with pytest.raises(visitor.Gone):
        studio.look(picture, "vitviz-tiny")
    left.alive = True
    assert studio.look(picture, "vitviz-tiny")


def test_what_is_dear_has_a_line_of_its_own_and_what_is_cheap_to_read_has_none(monkeypatch):
    studio = Studio(Settings(device="cpu"))
    inspector, lines = studio.inspector("vitviz-tiny"), studio._turns._lines
    for size, dear in ((None, False), ((1120, 1120), True)):
        with studio.computing(inspector, size):
            assert len(lines[dear].computing) == 1 and not lines[not dear].computing
    for tokens, dear in ((197, False), (5_000, True)):
        trace = SimpleNamespace(
            layers=range(12), grid=SimpleNamespace(tokens=tokens), tokens=[np.zeros((1, 768))]
        )
        with studio.reading(SimpleNamespace(trace=trace)):
            assert len(lines[True].computing) == dear and not lines[False].computing
    monkeypatch.setattr(visitor, "gone", lambda: True)
    with pytest.raises(visitor.Gone), studio.computing(inspector, None):
        stopping.check()


def test_a_visitor_is_gone_when_the_event_or_the_connection_is(monkeypatch):
    def of_a_listener(alive: bool) -> bool:
        events = {"mine": SimpleNamespace(alive=alive)}
        LocalContext.blocks.set(SimpleNamespace(_queue=SimpleNamespace(event_ids_to_events=events)))
        LocalContext.event_id.set("mine")
        return visitor.gone()

    assert copy_context().run(of_a_listener, False) and not copy_context().run(of_a_listener, True)
    monkeypatch.setattr(visitor, "LOOKS", -1)
    for broken in (True, False):
        monkeypatch.setattr(visitor.anyio.from_thread, "run", lambda asked, broken=broken: broken)
        with visitor.asking(SimpleNamespace(is_disconnected=None)):
            assert visitor.gone() is broken
    assert not visitor.gone()


def test_a_whole_layer_of_a_large_input_is_refused_by_the_server():
    from vitviz.views.explorer import require_whole

    require_whole(SimpleNamespace(grid=SimpleNamespace(tokens=600)))
    with pytest.raises(TooMuch, match="up to 600 tokens, and this one has 601"):
        require_whole(SimpleNamespace(grid=SimpleNamespace(tokens=601)))


def test_limits_come_from_options_the_environment_and_a_space(monkeypatch, capsys):
    from vitviz.ui.options import parse

    for name in (
        "SPACE_ID",
        "SPACES_ZERO_GPU",
        "VITVIZ_MAX_TOKENS",
        "VITVIZ_MAX_SECONDS",
        "VITVIZ_MAX_PASSES",
    ):
        monkeypatch.delenv(name, raising=False)
    assert parse([]).settings.limits == Limits()
    monkeypatch.setenv("SPACE_ID", "somebody/vitviz")
    assert parse([]).settings.limits == Limits(2_500, 60)
    monkeypatch.setenv("VITVIZ_MAX_TOKENS", "900")
    assert (
        parse([]).settings.limits.tokens == 900
        and parse(["--max-tokens", "700"]).settings.limits.tokens == 700
    )
    for wrong in (["--max-tokens", "0"], ["--max-seconds", "nan"], ["--max-passes", "x"]):
        with pytest.raises(SystemExit):
            parse(wrong)
    monkeypatch.setenv("VITVIZ_MAX_TOKENS", "many")
    with pytest.raises(SystemExit):
        parse([])
