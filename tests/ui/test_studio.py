"""The server's memory and its routes, without a browser."""

import io

import numpy as np
import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient

from vitviz.errors import CheckpointError, ImageError
from vitviz.panels import PANELS
from vitviz.ui.routes import routes
from vitviz.ui.studio import Settings, Studio


@pytest.fixture(scope="module")
def studio():
    return Studio(Settings(device="cpu"))


@pytest.fixture(scope="module")
def key(studio):
    return studio.look(studio.keep_sample("chelsea"), "vitviz-tiny")


@pytest.fixture(scope="module")
def client(studio):
    app = FastAPI()
    app.router.routes.extend(routes(studio))
    return TestClient(app)


def array(response) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.frombuffer(response.content, response.headers["x-dtype"]).reshape([int(n) for n in response.headers["x-shape"].split(",")])


def test_the_page_gets_the_traces_own_numbers(studio, client, key):
    trace = studio.subject(key).trace
    attention = array(client.get(f"/gradio_api/vitviz/{key}/explorer/layer?layer=2"))
    assert attention.dtype == np.float16
    expected = trace.attention(1)
    error = (torch.from_numpy(attention.astype(np.float32)) - expected).abs() / expected.amax(-1, keepdim=True)
    assert error.max() < 1e-3
    row = array(client.get(f"/gradio_api/vitviz/{key}/explorer/row?layer=2&head=3&token=7"))
    np.testing.assert_allclose(row, expected[2, 7].numpy(), rtol=1e-5)
    column = array(client.get(f"/gradio_api/vitviz/{key}/explorer/column?layer=2&head=3&token=7"))
    np.testing.assert_allclose(column, expected[2, :, 7].numpy(), rtol=1e-5)


def test_the_wall_is_scaled_alone_and_says_by_what(studio, client, key):
    trace = studio.subject(key).trace
    wall = array(client.get(f"/gradio_api/vitviz/{key}/explorer/wall?token=5&direction=column"))
    most = array(client.get(f"/gradio_api/vitviz/{key}/explorer/wallmax?token=5&direction=column"))
    assert wall.dtype == np.uint8 and wall.max() == 255
    expected = trace.attention(3)[1, trace.grid.prefix :, 5].numpy()
    np.testing.assert_allclose(wall[3, 1] / 255 * most[3, 1], expected, atol=most[3, 1] / 400)


@pytest.mark.parametrize("panel", [panel for panel in PANELS], ids=lambda panel: panel.slug)
def test_numbers_come_with_settings_and_the_checkpoints_name(client, key, panel):
    response = client.get(f"/gradio_api/vitviz/{key}/{panel.slug}/numbers.npz")
    assert response.status_code == 200 and "attachment" in response.headers["content-disposition"]
    with np.load(io.BytesIO(response.content)) as file:
        assert str(file["checkpoint"]) == "vitviz-tiny" and str(file["view"]) == panel.slug
        for control in panel.controls:
            assert f"setting_{control.name}" in file


def test_rollout_numbers_are_those_of_the_map(client, key):
    settings = "fusion=max&discard=0.5&residual=0.25&layers=2-5&query=9"
    shown = array(client.get(f"/gradio_api/vitviz/{key}/rollout/map?{settings}"))
    with np.load(io.BytesIO(client.get(f"/gradio_api/vitviz/{key}/rollout/numbers.npz?{settings}").content)) as file:
        np.testing.assert_array_equal(file["rollout"], shown)


@pytest.mark.parametrize(
    "path, status, said",
    [
        ("nokey/rollout/map", 404, "no longer knows"),
        ("{key}/nopanel/map", 404, "no longer knows"),
        ("{key}/rollout/nomap", 404, "no longer knows"),
        ("{key}/picture/secret", 404, "no longer knows"),
        ("{key}/rollout/map?discard=1.5", 422, "no number from 0"),
        ("{key}/rollout/map?discard=nan", 422, "no number from 0"),
        ("{key}/rollout/map?fusion=median", 422, "not one of mean, max, min"),
        ("{key}/rollout/map?colour=red", 422, "no setting 'colour'"),
        ("{key}/rollout/map?query=<img onerror>", 422, "query"),
        ("{key}/rollout/map?query=99999", 422, "99999"),
        ("{key}/rollout/map?layers=1-99", 422, "layer"),
        ("{key}/explorer/layer?layer=99", 422, "Layer"),
        ("{key}/explorer/row?layer=1&head=99&token=0", 422, "Head 99"),
        ("{key}/explorer/row?layer=1&head=1&token=99999", 422, "99999"),
    ],
)
def test_a_wrong_question_gets_a_sentence(client, key, path, status, said):
    response = client.get(f"/gradio_api/vitviz/{path.format(key=key)}")
    assert response.status_code == status
    assert said.lower() in response.json()["detail"].lower()


def test_pictures_come_at_the_uploads_own_and_at_the_models_size(studio, client, key):
    from PIL import Image

    upload = Image.open(io.BytesIO(client.get(f"/gradio_api/vitviz/{key}/picture/upload").content))
    model = Image.open(io.BytesIO(client.get(f"/gradio_api/vitviz/{key}/picture/input").content))
    assert upload.size == (451, 300)
    np.testing.assert_array_equal(np.asarray(model), studio.subject(key).trace.view.picture)


def test_a_trace_that_was_put_out_is_made_again(key, studio):
    small = Studio(Settings(device="cpu", trace_cache=1))
    first = small.look(small.keep_sample("chelsea"), "vitviz-tiny")
    small.look(small.keep_sample("coffee"), "vitviz-tiny")
    again = small.subject(first).trace
    torch.testing.assert_close(again.logits, studio.subject(key).trace.logits)


def test_a_picture_that_was_put_out_is_asked_for_again():
    small = Studio(Settings(device="cpu", trace_cache=1, picture_cache=1))
    first = small.look(small.keep_sample("chelsea"), "vitviz-tiny")
    small.look(small.keep_sample("coffee"), "vitviz-tiny")
    with pytest.raises(ImageError, match="Drop it in once more"):
        small.subject(first)


def test_keys_differ_between_servers_and_cannot_be_computed_from_the_picture(studio):
    assert Studio(Settings()).keep_sample("chelsea") != studio.keep_sample("chelsea")


def test_a_checkpoint_is_loaded_once(studio):
    assert studio.inspector("vitviz-tiny") is studio.inspector("vitviz-tiny")


@pytest.mark.parametrize("name", ["../weights/vitviz-tiny", "/etc", "no-such-model", "weights/vitviz-tiny/model.safetensors", ""])
def test_only_listed_checkpoints_can_be_named_from_the_page(studio, name):
    with pytest.raises(CheckpointError):
        studio.inspector(name)


def test_a_public_space_offers_only_what_it_is_told_to():
    closed = Studio(Settings(device="cpu", allowed=("vitviz-tiny",)))
    assert closed.names() == ["vitviz-tiny"]
    with pytest.raises(CheckpointError, match="offers only vitviz-tiny"):
        closed.inspector("vit_tiny_patch16_224.augreg_in21k")
    assert closed.inspector("vitviz-tiny@0").checkpoint.name == "vitviz-tiny@0", "the film of what is allowed is allowed"
    assert closed.film("vitviz-tiny@0")["frames"][-1]["name"] == "vitviz-tiny"
    with pytest.raises(CheckpointError, match="no snapshot of step 7"):
        closed.inspector("vitviz-tiny@7")


def test_the_picker_says_of_each_checkpoint_what_one_has_to_know(studio):
    lines = {name: line for line, name in studio.choices()}
    assert lines["vitviz-tiny"] == "vitviz-tiny · 3.67 M"
    assert lines["vit_base_patch16_224.augreg_in21k"] == "vit_base_patch16_224.augreg_in21k · ≈ 86.6 M parameters · ImageNet-21k · apache-2.0 · to be downloaded"
    assert len(lines) > 400


def test_the_pairs_that_teach_exist(studio):
    from vitviz.ui.handlers import PAIRS

    names = {name for _, pair in PAIRS for name in pair.split("|")}
    assert {name for name in names if "@" not in name} <= set(studio.names())
    assert all(studio.inspector(name) for name in names if "@" in name)
