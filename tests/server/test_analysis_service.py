"""AnalysisService and the routes of the server, without a browser."""

import io

import numpy as np
import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.tiers import sweep
from vitviz.server.api.serialization import UNEXPECTED
from vitviz.server.page.figures import figure_value, figures_of
from vitviz.server.page.routes import routes
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.views import VIEWS

QUICK = [view for view in VIEWS if view.slug in ("rollout", "distance")]


@pytest.fixture(scope="module")
def key(service):
    return service.look(service.pictures.sample("chelsea"), "vitviz-tiny")


@pytest.fixture(scope="module")
def client(service):
    app = FastAPI()
    app.router.routes.extend(routes(service))
    return TestClient(app)


def array(response) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.frombuffer(response.content, response.headers["x-dtype"]).reshape(
        [int(n) for n in response.headers["x-shape"].split(",")]
    )


def test_attention_routes_return_values_of_the_trace(service, client, key):
    trace = service.subject(key).trace
    attention = array(client.get(f"/gradio_api/vitviz/{key}/explorer/layer?layer=2"))
    assert attention.dtype == np.float16
    expected = trace.attention(1)
    error = (torch.from_numpy(attention.astype(np.float32)) - expected).abs() / expected.amax(
        -1, keepdim=True
    )
    assert error.max() < 1e-3
    row = array(client.get(f"/gradio_api/vitviz/{key}/explorer/line?layer=2&head=3&token=7"))
    np.testing.assert_allclose(row, expected[2, 7].numpy(), rtol=1e-5)
    column = array(
        client.get(f"/gradio_api/vitviz/{key}/explorer/line?layer=2&head=3&token=7&direction=column")
    )
    np.testing.assert_allclose(column, expected[2, :, 7].numpy(), rtol=1e-5)


def test_head_wall_is_scaled_by_its_reported_maximum(service, client, key):
    trace = service.subject(key).trace
    wall = array(client.get(f"/gradio_api/vitviz/{key}/explorer/wall?token=5&direction=column"))
    maxima = array(client.get(f"/gradio_api/vitviz/{key}/explorer/wallmax?token=5&direction=column"))
    assert wall.dtype == np.uint8 and wall.max() == 255
    expected = trace.attention(3)[1, trace.grid.prefix :, 5].numpy()
    np.testing.assert_allclose(wall[3, 1] / 255 * maxima[3, 1], expected, atol=maxima[3, 1] / 400)


@sweep("view", VIEWS, quick=QUICK, ids=lambda view: view.slug)
def test_npz_contains_settings_and_checkpoint(client, key, view, fast_faithfulness):
    response = client.get(f"/gradio_api/vitviz/{key}/{view.slug}/numbers.npz")
    assert response.status_code == 200 and "attachment" in response.headers["content-disposition"]
    with np.load(io.BytesIO(response.content)) as file:
        assert str(file["checkpoint"]) == "vitviz-tiny" and str(file["view"]) == view.slug
        for control in view.controls:
            assert f"setting_{control.name}" in file


def test_rollout_npz_equals_the_map(client, key):
    settings = "fusion=max&discard=0.5&residual=0.25&layers=2-5&query=9"
    shown = array(client.get(f"/gradio_api/vitviz/{key}/rollout/map?{settings}"))
    with np.load(
        io.BytesIO(client.get(f"/gradio_api/vitviz/{key}/rollout/numbers.npz?{settings}").content)
    ) as file:
        np.testing.assert_array_equal(file["rollout"], shown)


@pytest.mark.parametrize(
    "path, status, message",
    [
        ("nokey/rollout/map", 404, "no longer has this image"),
        ("{key}/noview/map", 404, "There is no view 'noview'; there are tour, patches,"),
        ("{key}/rollout/nomap", 404, "Rollout has no numbers called 'nomap'"),
        ("{key}/picture/secret", 404, "There is no image 'secret'; there are upload, original and input"),
        (
            "{key}/rollout/map?discard=1.5",
            422,
            "discard='1.5' is not valid; expected a number from 0 to 0.99",
        ),
        (
            "{key}/rollout/map?discard=nan",
            422,
            "discard='nan' is not valid; expected a number from 0 to 0.99",
        ),
        (
            "{key}/rollout/map?fusion=median",
            422,
            "fusion='median' is not valid; expected one of mean, max, min",
        ),
        ("{key}/rollout/map?colour=red", 422, "Rollout has no setting 'colour'; it has query, fusion"),
        (
            "{key}/rollout/map?query=<img onerror>",
            422,
            "query='<img onerror>' is not valid; expected one of auto, mean, class, or a",
        ),
        (
            "{key}/rollout/map?query=99999",
            422,
            "query='99999' is not valid; expected a patch's number from 0 to 195",
        ),
        (
            "{key}/rollout/map?layers=1-99",
            422,
            "layers='1-99' is not valid; expected first and last layer from 1 to 8",
        ),
        (
            "{key}/rollout/map?layers=0-3",
            422,
            "layers='0-3' is not valid; expected first and last layer from 1 to 8",
        ),
        ("{key}/rollout/map?alone=9", 422, "alone='9' is not valid; expected a whole number from 0 to 8"),
        (
            "{key}/explorer/layer?layer=99",
            422,
            "layer='99' is not valid; expected a whole number from 1 to 8",
        ),
        ("{key}/explorer/layer?layer=0", 422, "layer='0' is not valid; expected a whole number from 1 to 8"),
        (
            "{key}/explorer/line?layer=1&head=4&token=0",
            422,
            "head='4' is not valid; expected a whole number from 1 to 3",
        ),
        (
            "{key}/explorer/line?layer=1&head=1&token=99999",
            422,
            "token='99999' is not valid; expected a whole number from 0 to 196",
        ),
        (
            "{key}/explorer/pinned?pins=1.197",
            422,
            "pins='1.197' is not valid; expected up to 16 whole numbers from 0 to 196",
        ),
        (
            "{key}/tour/filter?number=192",
            422,
            "number=192 is not valid; expected a whole number from 0 to 191",
        ),
        ("{key}/tour/worked?layer=9", 422, "layer='9' is not valid; expected a whole number from 1 to 8"),
        ("{key}/tour/experiment?seed=0", 422, "seed=0 is not valid; expected a whole number from 1 to 999"),
    ],
)
def test_invalid_request_is_rejected_with_message(client, key, path, status, message):
    response = client.get(f"/gradio_api/vitviz/{path.format(key=key)}")
    assert response.status_code == status
    assert message.lower() in response.json()["detail"].lower()


@sweep("view", VIEWS, quick=QUICK, ids=lambda view: view.slug)
@pytest.mark.parametrize(
    "bug", [KeyError("head"), ValueError("not a sentence"), IndexError("list index"), RuntimeError]
)
def test_internal_error_is_logged_and_returned_as_500(
    client, service, view, bug, monkeypatch, caplog, fast_faithfulness
):
    """The error is logged with traceback, and the next request for the image succeeds."""
    fresh = service.look(service.pictures.sample("coffee"), "vitviz-tiny", (64 + 8 * VIEWS.index(view), 64))

    def broken(*given):
        raise bug

    with monkeypatch.context() as patch:
        patch.setattr(type(view), "item", broken)
        patch.setattr(type(view), "numbers", broken)
        patch.setattr(type(view), "chart", broken)
        for name in (*(item.name for item in view.items), "numbers.npz"):
            caplog.clear()
            response = client.get(f"/gradio_api/vitviz/{fresh}/{view.slug}/{name}")
            assert response.status_code == 500 and response.json()["detail"] == UNEXPECTED, name
            (record,) = [record for record in caplog.records if record.name == "vitviz"]
            assert record.exc_info and "broken" in record.exc_text
    assert client.get(f"/gradio_api/vitviz/{fresh}/{view.slug}/numbers.npz").status_code == 200


def test_item_of_undeclared_type_is_an_internal_error(client, key, monkeypatch):
    (view,) = [view for view in VIEWS if view.slug == "rollout"]
    monkeypatch.setattr(type(view), "item", lambda *given: np.zeros((3, 4)))
    response = client.get(f"/gradio_api/vitviz/{key}/rollout/map?residual=0.35")
    assert response.status_code == 500 and response.json()["detail"] == UNEXPECTED


@sweep("view", VIEWS, quick=QUICK, ids=lambda view: view.slug)
def test_failing_view_does_not_affect_others(service, key, view, monkeypatch, caplog):
    def broken(*given):
        raise KeyError("a bug")

    for method in ("summary", "unsupported"):
        fresh = service.look(
            service.pictures.sample("rocket"),
            "vitviz-tiny",
            (64 + 8 * VIEWS.index(view), 64 if method == "summary" else 96),
        )
        with monkeypatch.context() as patch:
            patch.setattr(type(view), method, broken)
            caplog.clear()
            drawn = {other.slug: figures_of(other, service, {"key": fresh})[0]["message"] for other in VIEWS}
        assert drawn.pop(view.slug) == {"text": UNEXPECTED, "values": {}}
        assert set(drawn.values()) == {None}
        (record,) = [record for record in caplog.records if record.name == "vitviz"]
        assert record.exc_info and view.slug in record.getMessage()


def test_attention_layer_above_600_tokens_is_rejected(service, client):
    many = service.look(
        service.pictures.sample("coffee"), "vitviz-tiny", (200, 200)
    )  # 25 x 25 patches and the class token
    response = client.get(f"/gradio_api/vitviz/{many}/explorer/layer?layer=1")
    assert (
        response.status_code == 422 and "up to 600 tokens, and this one has 626" in response.json()["detail"]
    )
    assert len(response.content) < 1_000
    line = array(client.get(f"/gradio_api/vitviz/{many}/explorer/line?layer=1&head=2&token=3"))
    np.testing.assert_allclose(line, service.subject(many).trace.attention(0)[1, 3].numpy(), rtol=1e-5)


def test_weight_analyses_are_computed_once_for_all_images(client, monkeypatch):
    from vitviz import analyses

    service, calls = AnalysisService(ServiceSettings(device="cpu")), []
    for name in ("principal_filters", "position_similarity"):
        true = getattr(analyses, name)
        monkeypatch.setattr(
            analyses, name, lambda *given, name=name, true=true: calls.append(name) or true(*given)
        )
    keys, counts = (
        [service.look(service.pictures.sample(name), "vitviz-tiny") for name in ("coffee", "chelsea")],
        [],
    )
    for key in keys:
        for slug in ("filters", "positions"):
            for item in service.view(slug).items:
                service.item(key, slug, item.name, {})
            service.numbers(key, slug, {})
            service.summary(key, service.view(slug))
        counts.append(len(calls))
    assert counts[0] == counts[1], "a second image repeats weight analyses"
    steps = len(
        list(service.checkpoints.inspector("vitviz-tiny").position_tables((112, 112)))
    )  # colour limits over training snapshots
    assert calls.count("principal_filters") == 1 and calls.count("position_similarity") == 1 + steps


def test_image_routes_return_upload_and_model_input(service, client, key):
    from PIL import Image

    upload = Image.open(io.BytesIO(client.get(f"/gradio_api/vitviz/{key}/picture/upload").content))
    model = Image.open(io.BytesIO(client.get(f"/gradio_api/vitviz/{key}/picture/input").content))
    assert upload.size == (451, 300)
    np.testing.assert_array_equal(np.asarray(model), service.subject(key).trace.view.picture)


def test_evicted_trace_is_recomputed(key, service):
    small = AnalysisService(ServiceSettings(device="cpu", trace_cache=1))
    first = small.look(small.pictures.sample("chelsea"), "vitviz-tiny")
    small.look(small.pictures.sample("coffee"), "vitviz-tiny")
    again = small.subject(first).trace
    torch.testing.assert_close(again.logits, service.subject(key).trace.logits)


def test_numbers_differ_between_images(service, key):
    other = service.look(service.pictures.sample("rocket"), "vitviz-tiny")
    for slug, name in (
        ("rollout", "map"),
        ("explorer", "wall"),
        ("distance", "distance"),
        ("patches", "norms"),
    ):
        assert not np.array_equal(service.item(key, slug, name, {}), service.item(other, slug, name, {})), (
            slug
        )


def test_page_loads_no_other_training_snapshots(monkeypatch):
    service, loaded = AnalysisService(ServiceSettings(device="cpu")), []
    load = service.checkpoints.inspector
    monkeypatch.setattr(
        service.checkpoints, "inspector", lambda name, *more: (loaded.append(name), load(name, *more))[1]
    )
    key = service.look(service.pictures.sample("coffee"), "vitviz-tiny")
    for view in VIEWS:
        figure_value(service, key, view)
    assert set(loaded) == {"vitviz-tiny"}
