"""Every operation with forward passes takes a scheduler turn, and the time limit covers a whole request."""

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


OPERATIONS = {
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


LONG_TIMEOUT = 600  # s; must not depend on the speed of the machine


@sweep("operation", OPERATIONS, quick=["a map", "a print", "a program's trial"])
def test_operation_waits_for_a_turn(service, key, monkeypatch, operation):
    # few evaluations suffice, because only the turn is tested
    monkeypatch.setattr(
        compute, "evaluate_methods", partial(compute.evaluate_methods, shares=(0.0, 1.0), draws=2)
    )
    line = service.work.turns._lines["cheap"]
    with ThreadPoolExecutor(1) as threads:
        with service.work.computing(service.checkpoints.inspector("vitviz-tiny"), None):
            future = threads.submit(OPERATIONS[operation], service, key)
            wait_until(
                lambda: line.waiting or future.done(), seconds=LONG_TIMEOUT
            )  # a zip writes other files first
            assert not future.done(), future.exception() or "the operation finished without a turn"
        future.result(LONG_TIMEOUT)
    assert not line.computing and not line.waiting


@pytest.mark.parametrize(("source", "most"), [("local", scheduler.READERS), ("hub", 6)])
def test_local_checkpoints_load_in_turns_and_downloads_do_not(service, monkeypatch, source, most):
    checkpoint, loading = SimpleNamespace(source=source, on_disk=False, replaced=False), []
    within = threading.Semaphore(0)

    def load(name, **options):
        loading.append(name)
        assert within.acquire(timeout=LONG_TIMEOUT)
        return SimpleNamespace(checkpoint=checkpoint, model=torch.nn.Identity())

    monkeypatch.setattr(vitviz.engine, "find_checkpoint", lambda *given, **named: checkpoint)
    monkeypatch.setattr(vitviz.engine, "load", load)
    monkeypatch.setattr(vitviz.engine, "files_unchanged", lambda checkpoint: True)
    # each thread is another client
    monkeypatch.setattr(request_context, "visitor_name", lambda: threading.current_thread().name)
    with ThreadPoolExecutor(6) as threads:
        futures = [threads.submit(service.checkpoints.inspector, f"step-{number}") for number in range(6)]
        line = service.work.turns._lines["reading"]
        wait_until(lambda: len(loading) + len(line.waiting) == 6, seconds=LONG_TIMEOUT)
        reading = len(loading)
        within.release(6)
        assert reading == most
        [one.result(LONG_TIMEOUT) for one in futures]
    assert len(loading) == 6 and not line.computing and not line.waiting


def test_cached_result_needs_no_turn(service, key):
    known = service.item(key, "evidence", "map", {"method": "chefer"})
    with (
        ThreadPoolExecutor(1) as threads,
        service.work.computing(service.checkpoints.inspector("vitviz-tiny"), None),
    ):
        numbers = threads.submit(service.numbers, key, "evidence", {"method": "chefer"}).result(60)
    np.testing.assert_allclose(np.load(io.BytesIO(numbers))["map"], known, rtol=1e-6)


def test_cached_item_is_served_without_the_thread_pool(service, key, monkeypatch):
    page, address = (
        TestClient(FastAPI(routes=routes.routes(service))),
        f"/gradio_api/vitviz/{key}/rollout/map",
    )
    made = page.get(f"{address}?discard=0.3")
    monkeypatch.setattr(routes, "run_in_threadpool", None)
    again = page.get(f"{address}?discard=0.3")
    assert (again.content, again.headers) == (made.content, made.headers) and len(made.content) > 4
    for other in ("0.4", "much"):  # not cached, and invalid
        with pytest.raises(TypeError):
            page.get(f"{address}?discard={other}")


@pytest.mark.long
def test_ablation_of_all_layers_lets_other_requests_between(service, key, monkeypatch):
    """Both results equal those of the Python API."""
    visitor, order, layer_started, release = threading.local(), [], threading.Event(), threading.Event()
    effects, passes, line = Inspector.layer_effects, shared.passes_of, service.work.turns._lines["cheap"]

    def one_layer(self, image, layer, *given, **named):
        order.append(layer)
        layer_started.set()
        assert release.wait(60)
        return effects(self, image, layer, *given, **named)

    def of_a_map(*given, **named):
        order.append("map")
        return passes(*given, **named)

    def visiting(name, item, settings):
        visitor.name = name
        return service.item(key, "evidence", item, settings)

    monkeypatch.setattr(request_context, "visitor_name", lambda: getattr(visitor, "name", ""))
    monkeypatch.setattr(Inspector, "layer_effects", one_layer)
    monkeypatch.setattr(shared, "passes_of", of_a_map)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(visiting, "a", "agreement", {"target": "7"})
        assert layer_started.wait(60)
        second = threads.submit(visiting, "b", "map", {"method": "grad_cam"})
        wait_until(lambda: line.waiting)
        release.set()
        agreement, heatmap = first.result(120), second.result(120)
    assert order == [0, "map", *range(1, 8)]
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    trace = inspector.trace(vitviz.sample_image("coffee"))
    map_alone = vitviz.saliency(inspector, trace, int(trace.logits.argmax()), "grad_cam").map
    np.testing.assert_allclose(heatmap, map_alone, atol=1e-5)
    effects_alone = inspector.effects(trace.view, 7)
    expected = vitviz.analyses.agreement(effects_alone, vitviz.logit_attribution(inspector, trace, 7))
    np.testing.assert_allclose(agreement, expected, atol=1e-4)


def test_time_limit_adds_up_over_turns_without_waiting(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(scheduler, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def computes(seconds):
        with scheduler.time_limit(300), scheduler.time_limit(300):  # nested limits count once
            now[0] += seconds
            cancellation.check()

    for _ in range(3):
        computes(200)  # batches of a survey are separate requests
    with scheduler.as_one_request():
        computes(200)
        now[0] += 1000
        computes(99)
        with pytest.raises(TooMuch, match="longer than the limit of 300 seconds"):
            computes(2)
    computes(200)


def test_each_route_and_endpoint_call_is_one_request():
    requests = []

    def answer(*_):
        requests.append(scheduler._answer.get())
        raise Unknown("seen")

    request = SimpleNamespace(is_disconnected=None)
    assert routes.run_answer(answer, request).status_code == 404
    with pytest.raises(gr.Error, match="seen"):
        endpoints._as_gradio_error(answer)()
    assert None not in requests and requests[0] is not requests[1] and scheduler._answer.get() is None
