"""Actions that overlap: none takes another's back."""

import threading

import pytest

from tests.server.conftest import event_data
from vitviz.server.page.over_a_set import ImageSetPanel
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.server.services.sessions import Sessions
from vitviz.views import VIEWS


def test_a_slow_action_is_made_once_more_from_what_a_quick_one_has_left():
    sessions = Sessions()
    start = sessions.settled(
        sessions.with_session({"picture": "coffee", "checkpoint": "old"}), lambda state: [state]
    )[0]
    made = []

    def slow(state):
        made.append(state["picture"])
        if len(made) == 1:  # meanwhile a sample is clicked, from the same start
            sessions.settled(start, lambda state: [{**state, "picture": "chelsea"}])
        return [{**state, "checkpoint": "new"}, "drawn of " + state["picture"]]

    state, drawn = sessions.settled(start, slow)
    assert made == ["coffee", "chelsea"] and drawn == "drawn of chelsea"
    assert (state["picture"], state["checkpoint"]) == ("chelsea", "new")
    assert sessions.newest(start) == state


def test_one_that_begins_with_an_old_state_goes_on_from_the_newest():
    sessions = Sessions()
    start = sessions.settled(sessions.with_session({"size": "own"}), lambda state: [state])[0]
    sessions.settled(start, lambda state: [{**state, "size": "64"}])
    assert sessions.settled(start, lambda state: [{**state, "second": "x"}])[0]["size"] == "64"


def test_what_an_unsettled_answer_has_added_is_kept():
    sessions = Sessions()
    start = sessions.settled(sessions.with_session({}), lambda state: [state])[0]
    averaged = {**start, "survey": "mean"}  # as a survey hands on, settled by nobody
    assert sessions.settled(averaged, lambda state: [{**state, "form": "sorted"}])[0]["survey"] == "mean"


def test_visitors_do_not_meet_and_the_oldest_are_forgotten():
    sessions = Sessions(most=2)
    states = [
        sessions.settled(sessions.with_session({"who": who}), lambda state: [state])[0] for who in range(3)
    ]
    assert len({state["session"] for state in states}) == 3
    changed = [sessions.settled(state, lambda state: [{**state, "n": 1}])[0]["who"] for state in states]
    assert changed == [0, 1, 2] and len(sessions._newest) == 2


def test_what_is_refused_leaves_no_trace():
    sessions = Sessions()
    start = sessions.settled(sessions.with_session({}), lambda state: [state])[0]
    with pytest.raises(ValueError):
        sessions.settled(start, lambda state: (_ for _ in ()).throw(ValueError))
    assert sessions.newest(start) == start


def test_many_at_once_all_count():
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


@pytest.mark.parametrize("view", [view for view in VIEWS if view.averages], ids=lambda view: view.slug)
def test_the_way_back_from_an_average_does_not_bring_the_old_picture_back(view):
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
