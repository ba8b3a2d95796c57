"""Figures before the forward pass: image, patches, filters and positions."""

import numpy as np
import pytest

from vitviz.charts.encode import encode_image
from vitviz.errors import VitvizError
from vitviz.server import options
from vitviz.server.page.figures import figure_frame, figures_of
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS

SIZE = (224, 224)
WITHOUT_PASS = ["patches", "filters", "positions"]


@pytest.fixture
def service():
    return AnalysisService(ServiceSettings(device="cpu"))


def run_key(service, size=SIZE) -> str:
    return service.runs.known(service.pictures.sample("coffee"), "vitviz-tiny", size)


def forbid_forward(inspector, monkeypatch) -> None:
    def forward(*given, **named):
        raise AssertionError("a forward pass ran")

    monkeypatch.setattr(inspector.forward, "run", forward)


def figure(service, key, slug) -> dict:
    return figures_of(service.view(slug), service, {"key": key}, soon=True)[0]


def test_views_without_attention_need_no_pass(service, monkeypatch):
    key = run_key(service)
    forbid_forward(service.checkpoints.inspector("vitviz-tiny"), monkeypatch)
    assert figure_frame(service, key, "stage")["grid"]["rows"] == 28
    assert [view.slug for view in VIEWS if view.scope.needs_no_pass] == WITHOUT_PASS
    for view in VIEWS:
        shown = figure(service, key, view.slug)
        assert shown["grid"]["rows"] == shown["grid"]["cols"] == 28 and shown["key"] == key
        assert bool(shown.get("awaited")) == bool(shown["message"]) == (view.slug not in WITHOUT_PASS)
    assert figure(service, key, "patches")["items"] == {}  # norms need the pass
    assert service.item(key, "filters", "variance", {}).size
    assert service.item(key, "positions", "similarity", {}).shape == (784, 784)
    picture = service.image(key, "input")
    monkeypatch.undo()
    service.subject(key)
    assert service.image(run_key(service), "input") == picture
    trace = service.subject(key).trace
    inspector, upload = (
        service.checkpoints.inspector("vitviz-tiny"),
        service.pictures.opened(service.runs.run(key).picture),
    )
    seen = inspector.view(upload, SIZE)
    np.testing.assert_array_equal(seen.picture, trace.view.picture)
    assert (seen.box, seen.upload) == (trace.view.box, trace.view.upload)


def test_figures_before_the_pass_equal_those_after(service):
    key = run_key(service)
    before = {slug: figure(service, key, slug) for slug in WITHOUT_PASS}
    similarity = service.item(key, "positions", "similarity", {})
    width = service.subject(key).trace.patch_embedding.shape[1]
    assert before["patches"]["summary"]["width"] == width
    for slug, shown in before.items():
        now = figures_of(service.view(slug), service, {"key": key})[0]
        same = set(shown) - {"items", "layers", "heads"}
        assert {name: now[name] for name in same} == {name: shown[name] for name in same}
    assert service.item(key, "positions", "similarity", {}) is similarity  # cached
    assert figure(service, key, "explorer")["message"] is None


def test_only_an_expensive_pending_pass_counts_as_long(service, monkeypatch):
    key = run_key(service)
    assert not service.has_long_pass(key)
    monkeypatch.setattr(options, "EXPENSIVE", 1)
    assert service.has_long_pass(key)
    service.subject(key)
    assert not service.has_long_pass(key)


def test_indivisible_size_is_rejected_before_the_pass(service):
    with pytest.raises(VitvizError, match="do not divide"):
        service.before(run_key(service, (225, 224)))


def test_progress_is_reported_during_the_pass_only(service, monkeypatch):
    key, progress = run_key(service), []
    inspector = service.checkpoints.inspector("vitviz-tiny")
    assert service.progress(key) == (0, 0)
    with inspector.hook("blocks.2.input", lambda tensor: progress.append(service.progress(key))):
        service.subject(key)
    assert progress == [(2, 8)] and service.progress(key) == (0, 0)


def test_painted_input_is_shown_before_the_trace_exists(service):
    painted = Ablation(patches=[0, 1], patches_as="black")
    key = service.runs.known(service.pictures.sample("coffee"), "vitviz-tiny", without=painted)
    assert service.image(key, "input") == encode_image(service.subject(key).trace.view.picture, ".png")
    assert service.image(key, "input") != service.image(run_key(service, None), "input")
