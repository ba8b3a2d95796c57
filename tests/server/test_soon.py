"""What can be known of a picture before its pass: the picture, its patches, and what weights alone show."""

import numpy as np
import pytest

from vitviz.charts.encode import encoded
from vitviz.errors import VitvizError
from vitviz.server import options
from vitviz.server.page.figures import figures_of, framed
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS

SIZE = (224, 224)
SOON = ["patches", "filters", "positions"]


@pytest.fixture
def studio():
    return AnalysisService(ServiceSettings(device="cpu"))


def known(studio, size=SIZE) -> str:
    return studio.runs.known(studio.pictures.sample("coffee"), "vitviz-tiny", size)


def forbid(inspector, monkeypatch) -> None:
    def forward(*given, **named):
        raise AssertionError("a pass was made")

    monkeypatch.setattr(inspector.forward, "run", forward)


def figure(studio, key, slug) -> dict:
    return figures_of(studio.view(slug), studio, {"key": key}, soon=True)[0]


def test_what_needs_no_attention_is_there_without_a_pass(studio, monkeypatch):
    key = known(studio)
    forbid(studio.checkpoints.inspector("vitviz-tiny"), monkeypatch)
    assert framed(studio, key, "stage")["grid"]["rows"] == 28
    assert [view.slug for view in VIEWS if view.needs_no_pass] == SOON
    for view in VIEWS:
        shown = figure(studio, key, view.slug)
        assert shown["grid"]["rows"] == shown["grid"]["cols"] == 28 and shown["key"] == key
        assert bool(shown.get("awaited")) == bool(shown["message"]) == (view.slug not in SOON)
    assert figure(studio, key, "patches")["items"] == {}  # its norms come with the pass
    assert studio.item(key, "filters", "variance", {}).size
    assert studio.item(key, "positions", "similarity", {}).shape == (784, 784)
    picture = studio.image(key, "input")
    monkeypatch.undo()
    studio.subject(key)
    assert studio.image(known(studio), "input") == picture
    trace = studio.subject(key).trace
    inspector, upload = (
        studio.checkpoints.inspector("vitviz-tiny"),
        studio.pictures.opened(studio.runs.run(key).picture),
    )
    seen = inspector.view(upload, SIZE)
    np.testing.assert_array_equal(seen.picture, trace.view.picture)
    assert (seen.box, seen.upload) == (trace.view.box, trace.view.upload)


def test_what_stands_there_is_the_same_when_the_pass_is_made(studio):
    key = known(studio)
    before = {slug: figure(studio, key, slug) for slug in SOON}
    similarity = studio.item(key, "positions", "similarity", {})
    width = studio.subject(key).trace.patch_embedding.shape[1]
    assert before["patches"]["summary"]["width"] == width
    for slug, shown in before.items():
        now = figures_of(studio.view(slug), studio, {"key": key})[0]
        same = set(shown) - {"items", "layers", "heads"}
        assert {name: now[name] for name in same} == {name: shown[name] for name in same}
    assert studio.item(key, "positions", "similarity", {}) is similarity  # kept, not made again
    assert figure(studio, key, "explorer")["message"] is None


def test_only_a_dear_pass_that_is_still_to_be_made_is_waited_for(studio, monkeypatch):
    key = known(studio)
    assert not studio.long(key)
    monkeypatch.setattr(options, "DEAR", 1)
    assert studio.long(key)
    studio.subject(key)
    assert not studio.long(key)


def test_a_size_that_does_not_fit_is_refused_before_anything_stands_there(studio):
    with pytest.raises(VitvizError, match="does not divide"):
        studio.before(known(studio, (225, 224)))


def test_how_far_a_pass_is_can_be_asked_while_it_is_made_and_not_after(studio, monkeypatch):
    key, told = known(studio), []
    inspector = studio.checkpoints.inspector("vitviz-tiny")
    assert studio.far(key) == (0, 0)
    with inspector.hook("blocks.2.input", lambda tensor: told.append(studio.far(key))):
        studio.subject(key)
    assert told == [(2, 8)] and studio.far(key) == (0, 0)


def test_a_picture_that_is_painted_over_is_shown_so_even_when_its_trace_was_put_out(studio):
    painted = Ablation(patches=[0, 1], patches_as="black")
    key = studio.runs.known(studio.pictures.sample("coffee"), "vitviz-tiny", without=painted)
    assert studio.image(key, "input") == encoded(studio.subject(key).trace.view.picture, ".png")
    assert studio.image(key, "input") != studio.image(known(studio, None), "input")
