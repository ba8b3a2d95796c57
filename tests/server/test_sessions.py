"""Sessions: overlapping actions do not overwrite one another."""

import threading

import pytest

from tests.server.conftest import event_data
from vitviz.server.page.over_a_set import ImageSetPanel
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.server.services.sessions import Sessions
from vitviz.views import VIEWS


def test_slow_action_is_repeated_on_a_newer_state():
    sessions = Sessions()
    start = sessions.settled(
        sessions.with_session({"picture": "coffee", "checkpoint": "old"}), lambda state: [state]
    )[0]
    images = []

    def slow(state):
        images.append(state["picture"])
        if len(images) == 1:  # a quick action from the same state
            sessions.settled(start, lambda state: [{**state, "picture": "chelsea"}])
        return [{**state, "checkpoint": "new"}, "drawn of " + state["picture"]]

    state, drawn = sessions.settled(start, slow)
    assert images == ["coffee", "chelsea"] and drawn == "drawn of chelsea"
    assert (state["picture"], state["checkpoint"]) == ("chelsea", "new")
    assert sessions.newest(start) == state


def test_action_on_an_old_state_uses_the_newest():
    sessions = Sessions()
    start = sessions.settled(sessions.with_session({"size": "own"}), lambda state: [state])[0]
    sessions.settled(start, lambda state: [{**state, "size": "64"}])
    assert sessions.settled(start, lambda state: [{**state, "second": "x"}])[0]["size"] == "64"


def test_additions_of_an_unsettled_state_are_kept():
    sessions = Sessions()
    start = sessions.settled(sessions.with_session({}), lambda state: [state])[0]
    averaged = {**start, "survey": "mean"}  # as streamed by a survey, not settled
    assert sessions.settled(averaged, lambda state: [{**state, "form": "sorted"}])[0]["survey"] == "mean"


def test_sessions_are_separate_and_oldest_are_evicted():
    sessions = Sessions(most=2)
    states = [
        sessions.settled(sessions.with_session({"who": who}), lambda state: [state])[0] for who in range(3)
    ]
    assert len({state["session"] for state in states}) == 3
    changed = [sessions.settled(state, lambda state: [{**state, "n": 1}])[0]["who"] for state in states]
    assert changed == [0, 1, 2] and len(sessions._newest) == 2


def test_failed_action_leaves_state_unchanged():
    sessions = Sessions()
    start = sessions.settled(sessions.with_session({}), lambda state: [state])[0]
    with pytest.raises(ValueError):
        sessions.settled(start, lambda state: (_ for _ in ()).throw(ValueError))
    assert sessions.newest(start) == start


def test_concurrent_actions_are_all_applied():
    sessions = Sessions()
    start = sessions.settled(sessions.with_session({}), lambda state: [state])[0]
    threads = [
        threading.Thread(
            target=lambda n=n: [
                sessions.settled(start, lambda state, i=i: [{**state, f"{n}.{i}": 1}]) for i in range(20)
            ]
        )
        for n in range(4)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(sessions.newest(start)) == 2 + 80


@pytest.mark.parametrize("view", [view for view in VIEWS if view.scope.averages], ids=lambda view: view.slug)
def test_leaving_an_average_keeps_the_newest_image(view):
    service = AnalysisService(ServiceSettings(device="cpu"))
    keys = [service.look(service.pictures.sample(name), "vitviz-tiny") for name in ("coffee", "chelsea")]
    start = service.sessions.settled(service.sessions.with_session({"key": keys[0]}), lambda state: [state])[
        0
    ]
    service.sessions.settled(
        start, lambda state: [{**state, "key": keys[1], "surveys": {view.slug: "mine", "other": "theirs"}}]
    )
    state, *drawn, panel = ImageSetPanel(service).single(start, event_data(view=view.slug))
    assert state["key"] == keys[1] and state["surveys"] == {"other": "theirs"}
    assert panel["told"] == {"text": ""} and panel["over"] == {}
    assert any(isinstance(value, dict) and value.get("key") == keys[1] for value in drawn)
