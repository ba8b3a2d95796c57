"""Whatever makes passes of its own takes turns, by whichever way it was asked for, and one answer's time is
bounded over all of them.
"""

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient

import vitviz
from tests.server.helpers import wait_until
from tests.tiers import sweep
from vitviz.engine.inspector import Inspector
from vitviz.errors import TooMuch, Unknown
from vitviz.server.api import endpoints, figures, lessons
from vitviz.server.options import Limits
from vitviz.server.page import routes
from vitviz.server.security import request_context, scheduler
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.traces import cancellation
from vitviz.views import VIEWS, shared
from vitviz.views.trial import compute

EVIDENCE = next(view for view in VIEWS if view.slug == "evidence")


def _program(service, **given):
    ask = endpoints.Endpoints(service)
    return endpoints.endpoint(EVIDENCE, ask)("coffee", **given)


WAYS = {
    "a map": lambda service, key: service.item(key, "evidence", "map", {"method": "grad_cam"}),
    "its sum": lambda service, key: service.item(key, "evidence", "explained", {"method": "frozen"}),
    "a layer's effects": lambda service, key: service.item(key, "evidence", "effects", {"layer": "3"}),
    "a map's numbers": lambda service, key: service.numbers(key, "evidence", {"method": "chefer"}),
    "all effects' numbers": lambda service, key: service.numbers(key, "evidence", {"show": "effects"}),
    "the zip": lambda service, key: lessons.lesson_zip(service, key, {"evidence.method": "gradient_rollout"}),
    "a print": lambda service, key: figures.figure(service, key, "evidence", {"method": "hires_cam"}),
    "a program's map": lambda service, key: _program(service, method="attention_gradient"),
    "a program's trial": lambda service, key: endpoints.Endpoints(service).trial("coffee", method="random"),
    "a trial": lambda service, key: service.item(key, "trial", "tried", {"method": "centre"}),
    "a trial's other class": lambda service, key: service.item(key, "trial", "agreement", {}),
    "shuffled patches": lambda service, key: service.item(key, "tour", "experiment", {"seed": "7"}),
    "a head taken out": lambda service, key: service.item(key, "tour", "without", {}),
}


@pytest.fixture
def service():
    return AnalysisService(ServiceSettings(device="cpu", limits=Limits(passes=1)))


@pytest.fixture
def key(service):
    return service.look(service.pictures.sample("coffee"), "vitviz-tiny")


FOR_EVER = 600  # s after which nothing comes any more: how fast a machine is must not matter


@sweep("way", WAYS, quick=["a map", "a print", "a program's trial"])
def test_passes_wait_while_another_visitor_has_the_turn(service, key, monkeypatch, way):
    # who waits for a turn is what counts, and not how much is done with it
    monkeypatch.setattr(
        compute, "evaluate_methods", partial(compute.evaluate_methods, shares=(0.0, 1.0), draws=2)
    )
    line = service.work.turns._lines["cheap"]
    with ThreadPoolExecutor(1) as threads:
        with service.work.computing(service.checkpoints.inspector("vitviz-tiny"), None):
            asked = threads.submit(WAYS[way], service, key)
            wait_until(lambda: line.waiting or asked.done(), seconds=FOR_EVER)  # a zip has other files first
            assert not asked.done(), asked.exception() or "it was answered without a turn"
        asked.result(FOR_EVER)
    assert not line.computing and not line.waiting


@pytest.mark.parametrize(("source", "most"), [("local", scheduler.READERS), ("hub", 6)])
def test_checkpoints_are_read_in_turns_and_only_what_is_on_its_way_here_holds_none(
    service, monkeypatch, source, most
):
    found, at_once = SimpleNamespace(source=source, on_disk=False, replaced=False), []
    within = threading.Semaphore(0)

    def load(name, **options):
        at_once.append(name)
        assert within.acquire(timeout=FOR_EVER)
        return SimpleNamespace(checkpoint=found, model=torch.nn.Identity())

    monkeypatch.setattr(vitviz.engine, "find_checkpoint", lambda *given, **named: found)
    monkeypatch.setattr(vitviz.engine, "load", load)
    monkeypatch.setattr(vitviz.engine, "files_unchanged", lambda checkpoint: True)
    # six visitors
    monkeypatch.setattr(request_context, "visitor_name", lambda: threading.current_thread().name)
    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(service.checkpoints.inspector, f"step-{number}") for number in range(6)]
        line = service.work.turns._lines["reading"]
        wait_until(lambda: len(at_once) + len(line.waiting) == 6, seconds=FOR_EVER)
        reading = len(at_once)
        within.release(6)
        assert reading == most
        [one.result(FOR_EVER) for one in asked]
    assert len(at_once) == 6 and not line.computing and not line.waiting


def test_what_is_known_waits_for_nobody(service, key):
    known = service.item(key, "evidence", "map", {"method": "chefer"})
    with (
        ThreadPoolExecutor(1) as threads,
        service.work.computing(service.checkpoints.inspector("vitviz-tiny"), None),
    ):
        numbers = threads.submit(service.numbers, key, "evidence", {"method": "chefer"}).result(60)
    np.testing.assert_allclose(np.load(io.BytesIO(numbers))["map"], known, rtol=1e-6)


def test_what_is_at_hand_is_answered_without_a_change_of_threads(service, key, monkeypatch):
    page, address = (
        TestClient(FastAPI(routes=routes.routes(service))),
        f"/gradio_api/vitviz/{key}/rollout/map",
    )
    made = page.get(f"{address}?discard=0.3")
    monkeypatch.setattr(routes, "run_in_threadpool", None)
    again = page.get(f"{address}?discard=0.3")
    assert (again.content, again.headers) == (made.content, made.headers) and len(made.content) > 4
    for other in ("0.4", "much"):  # what is still to be made, or to be refused
        with pytest.raises(TypeError):
            page.get(f"{address}?discard={other}")


@pytest.mark.long
def test_a_visitor_who_asks_for_all_effects_lets_another_in_between(service, key, monkeypatch):
    """Both get what Python gets alone."""
    who, order, held, go = threading.local(), [], threading.Event(), threading.Event()
    effects, passes, line = Inspector.layer_effects, shared.passes_of, service.work.turns._lines["cheap"]

    def one_layer(self, image, layer, *given, **named):
        order.append(layer)
        held.set()
        assert go.wait(60)
        return effects(self, image, layer, *given, **named)

    def of_a_map(*given, **named):
        order.append("map")
        return passes(*given, **named)

    def visiting(name, item, settings):
        who.name = name
        return service.item(key, "evidence", item, settings)

    monkeypatch.setattr(request_context, "visitor_name", lambda: getattr(who, "name", ""))
    monkeypatch.setattr(Inspector, "layer_effects", one_layer)
    monkeypatch.setattr(shared, "passes_of", of_a_map)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(visiting, "a", "agreement", {"target": "7"})
        assert held.wait(60)
        second = threads.submit(visiting, "b", "map", {"method": "grad_cam"})
        wait_until(lambda: line.waiting)
        go.set()
        alike, found = first.result(120), second.result(120)
    assert order == [0, "map", *range(1, 8)]
    alone = vitviz.load("vitviz-tiny", device="cpu")
    trace = alone.trace(vitviz.sample_image("coffee"))
    map_alone = vitviz.saliency(alone, trace, int(trace.logits.argmax()), "grad_cam").map
    np.testing.assert_allclose(found, map_alone, atol=1e-5)
    effects_alone = alone.effects(trace.view, 7)
    expected = vitviz.analyses.agreement(effects_alone, vitviz.logit_attribution(alone, trace, 7))
    np.testing.assert_allclose(alike, expected, atol=1e-4)


def test_the_time_of_one_answer_adds_up_over_its_turns_and_waiting_is_none(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(scheduler, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def computes(seconds):
        with scheduler.time_limit(300), scheduler.time_limit(300):  # one turn within another is the same
            now[0] += seconds
            cancellation.check()

    for _ in range(3):
        computes(200)  # a survey's batches are not one answer
    with scheduler.as_one_request():
        computes(200)
        now[0] += 1000
        computes(99)
        with pytest.raises(TooMuch, match="longer than the limit of 300 seconds"):
            computes(2)
    computes(200)


def test_what_the_routes_and_the_endpoints_answer_is_one_answer():
    told = []

    def answer(*_):
        told.append(scheduler._answer.get())
        raise Unknown("seen")

    request = SimpleNamespace(is_disconnected=None)
    assert routes.run_answer(answer, request).status_code == 404
    with pytest.raises(gr.Error, match="seen"):
        endpoints._as_gradio_error(answer)()
    assert None not in told and told[0] is not told[1] and scheduler._answer.get() is None
