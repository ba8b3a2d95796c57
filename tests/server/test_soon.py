"""What can be known of a picture before its pass: the picture, its patches, and what weights alone show."""

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
SOON = ["patches", "filters", "positions"]


@pytest.fixture
def service():
    return AnalysisService(ServiceSettings(device="cpu"))


def known(service, size=SIZE) -> str:
    return service.runs.known(service.pictures.sample("coffee"), "vitviz-tiny", size)


def forbid(inspector, monkeypatch) -> None:
    def forward(*given, **named):
        raise AssertionError("a pass was made")

    monkeypatch.setattr(inspector.forward, "run", forward)


def figure(service, key, slug) -> dict:
    return figures_of(service.view(slug), service, {"key": key}, soon=True)[0]


def test_what_needs_no_attention_is_there_without_a_pass(service, monkeypatch):
    key = known(service)
    forbid(service.checkpoints.inspector("vitviz-tiny"), monkeypatch)
    assert figure_frame(service, key, "stage")["grid"]["rows"] == 28
    assert [view.slug for view in VIEWS if view.needs_no_pass] == SOON
    for view in VIEWS:
        shown = figure(service, key, view.slug)
        assert shown["grid"]["rows"] == shown["grid"]["cols"] == 28 and shown["key"] == key
        assert bool(shown.get("awaited")) == bool(shown["message"]) == (view.slug not in SOON)
    assert figure(service, key, "patches")["items"] == {}  # its norms come with the pass
    assert service.item(key, "filters", "variance", {}).size
    assert service.item(key, "positions", "similarity", {}).shape == (784, 784)
    picture = service.image(key, "input")
    monkeypatch.undo()
    service.subject(key)
    assert service.image(known(service), "input") == picture
    trace = service.subject(key).trace
    inspector, upload = (
        service.checkpoints.inspector("vitviz-tiny"),
        service.pictures.opened(service.runs.run(key).picture),
    )
    seen = inspector.view(upload, SIZE)
    np.testing.assert_array_equal(seen.picture, trace.view.picture)
    assert (seen.box, seen.upload) == (trace.view.box, trace.view.upload)


def test_what_stands_there_is_the_same_when_the_pass_is_made(service):
    key = known(service)
    before = {slug: figure(service, key, slug) for slug in SOON}
    similarity = service.item(key, "positions", "similarity", {})
    width = service.subject(key).trace.patch_embedding.shape[1]
    assert before["patches"]["summary"]["width"] == width
    for slug, shown in before.items():
        now = figures_of(service.view(slug), service, {"key": key})[0]
        same = set(shown) - {"items", "layers", "heads"}
        assert {name: now[name] for name in same} == {name: shown[name] for name in same}
    assert service.item(key, "positions", "similarity", {}) is similarity  # kept, not made again
    assert figure(service, key, "explorer")["message"] is None


def test_only_a_dear_pass_that_is_still_to_be_made_is_waited_for(service, monkeypatch):
    key = known(service)
    assert not service.long(key)
    monkeypatch.setattr(options, "EXPENSIVE", 1)
    assert service.long(key)
    service.subject(key)
    assert not service.long(key)


def test_a_size_that_does_not_fit_is_refused_before_anything_stands_there(service):
    with pytest.raises(VitvizError, match="does not divide"):
        service.before(known(service, (225, 224)))


def test_how_far_a_pass_is_can_be_asked_while_it_is_made_and_not_after(service, monkeypatch):
    key, told = known(service), []
    inspector = service.checkpoints.inspector("vitviz-tiny")
    assert service.far(key) == (0, 0)
    with inspector.hook("blocks.2.input", lambda tensor: told.append(service.far(key))):
        service.subject(key)
    assert told == [(2, 8)] and service.far(key) == (0, 0)


def test_a_picture_that_is_painted_over_is_shown_so_even_when_its_trace_was_put_out(service):
    painted = Ablation(patches=[0, 1], patches_as="black")
    key = service.runs.known(service.pictures.sample("coffee"), "vitviz-tiny", without=painted)
    assert service.image(key, "input") == encode_image(service.subject(key).trace.view.picture, ".png")
    assert service.image(key, "input") != service.image(known(service, None), "input")
