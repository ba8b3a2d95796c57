import re
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from gradio.utils import get_upload_folder

import vitviz
from tests.e2e.conftest import Server
from vitviz.errors import VitvizError
from vitviz.ui.endpoints import PUBLIC, Endpoints, _spoken
from vitviz.ui.page import build
from vitviz.ui.plain import plain, whole
from vitviz.ui.studio import Settings, Studio

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def studio():
    return Studio(Settings(device="cpu"))


@pytest.fixture(scope="module")
def endpoints(studio):
    return Endpoints(studio)


@pytest.fixture(scope="module")
def trace():
    return vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("coffee"))


def test_these_endpoints_are_public_and_no_others(studio):
    info = build(studio).get_api_info()
    assert set(info["named_endpoints"]) == {f"/{name}" for name in PUBLIC} and info["unnamed_endpoints"] == {}
    for name, endpoint in info["named_endpoints"].items():
        assert endpoint["description"], f"{name} says nothing of itself"
        assert all(
            parameter["parameter_has_default"]
            for parameter in endpoint["parameters"]
            if parameter["parameter_name"] not in ("image", "patch")
        )


def test_the_numbers_are_the_traces(endpoints, trace):
    assert {name: endpoints.predict("coffee")[name] for name in ("checkpoint", "dtype")} == {"checkpoint": "vitviz-tiny", "dtype": "float32"}
    top = endpoints.predict("coffee", count=3)["top"]
    assert [one["label"] for one in top] == [label for label, _ in trace.top(3)]
    assert np.allclose([one["probability"] for one in top], [p for _, p in trace.top(3)], rtol=1e-4)
    found = endpoints.rollout("coffee", query="3", fusion="max", discard=0.5, residual=0.25, layers="2-3")
    assert np.allclose(found["map"], vitviz.rollout(trace, query=3, fusion="max", discard=0.5, residual=0.25, layers=(1, 2)), rtol=1e-4)
    assert found["box"] == list(trace.view.box)
    found = endpoints.attention_distance("coffee", renormalise=True)
    assert np.allclose(found["distance"], vitviz.attention_distance(trace, renormalise=True), rtol=1e-4)


def test_the_attention_of_a_patch_is_a_row_or_a_column(endpoints, trace):
    grid, attention = trace.grid, trace.attention(1)[0]
    row = endpoints.patch_attention("coffee", layer=2, head=1, query="5")
    column = endpoints.patch_attention("coffee", layer=2, head=1, query="5", direction="attended by")
    token = grid.prefix + 5
    assert np.allclose(np.ravel(row["patches"]), attention[token, grid.prefix :], rtol=1e-4, atol=1e-7)
    assert np.allclose(np.ravel(column["patches"]), attention[grid.prefix :, token], rtol=1e-4, atol=1e-7)
    assert np.allclose(list(row["prefix"].values()), attention[token, : grid.prefix], rtol=1e-4) and list(row["prefix"]) == list(
        grid.prefix_names
    )
    assert np.sum(row["patches"]) + sum(row["prefix"].values()) == pytest.approx(1, abs=1e-4)


def test_what_the_weights_say(endpoints):
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    expected = vitviz.position_similarity(inspector).numpy()
    assert np.allclose(endpoints.position_similarity()["similarity"], expected, atol=1e-5)
    assert np.allclose(endpoints.position_similarity(patch=1)["similarity"], expected[0, 1], atol=1e-5)
    filters = vitviz.embedding_filters(inspector, 4)
    assert np.allclose(endpoints.filters(count=4)["pictures"], filters.pictures, atol=1e-5)
    assert np.allclose(endpoints.filters(count=4)["variance"], filters.variance, rtol=1e-4)


def test_checkpoints_are_listed_without_the_place_where_they_lie(endpoints):
    first, *_ = listed = endpoints.checkpoints()
    assert first["name"] == "vitviz-tiny" and first["on_disk"] and str(ROOT) not in str(listed)
    only = Endpoints(Studio(Settings(device="cpu", allowed=("vitviz-tiny",))))
    assert [one["name"] for one in only.checkpoints()] == ["vitviz-tiny"]
    with pytest.raises(VitvizError, match="offers only"):
        only.predict("coffee", "vit_base_patch16_224")


@pytest.mark.parametrize(
    "image",
    [
        "../../etc/passwd",
        "/etc/passwd",
        {"path": "/etc/passwd"},
        {"path": f"{get_upload_folder()}/../../etc/passwd"},
        {},
        None,
        3,
        ["chelsea"],
    ],
)
def test_no_file_of_the_server_can_be_asked_for(endpoints, image):
    with pytest.raises(VitvizError, match="sample"):
        endpoints.predict(image)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("predict", {"image": "coffee", "checkpoint": "../../etc/passwd"}, "no checkpoint"),
        ("predict", {"image": "coffee", "count": 0}, "count=0"),
        ("rollout", {"image": "coffee", "fusion": "<img>"}, "not one of mean, max, min"),
        ("rollout", {"image": "coffee", "residual": 1e9}, "from 0 to 1"),
        ("rollout", {"image": "coffee", "query": "nobody"}, "no query"),
        ("patch_attention", {"image": "coffee", "layer": 99}, "layer=99"),
        ("patch_attention", {"image": "coffee", "head": float("nan")}, "head=nan"),
        ("patch_attention", {"image": "coffee", "query": "100000"}, "no query"),
        ("patch_attention", {"image": "coffee", "direction": "sideways"}, "neither"),
        ("position_similarity", {"patch": -1}, "patch=-1"),
    ],
)
def test_a_refusal_is_a_sentence(endpoints, name, given, said):
    with pytest.raises(gr.Error, match=said):
        _spoken(getattr(endpoints, name))(**given)


def test_numbers_keep_six_significant_digits():
    assert plain([0.0, 1 / 3, 1234567.0, 1.23456789e-9, float("inf")]) == [0.0, 0.333333, 1234570.0, 1.23457e-09, None]
    assert plain(5e-324) == 0.0
    with pytest.raises(ValueError, match="True"):
        whole(True, "layer", 1, 3)


def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == len(PUBLIC) + 1 and all(f"## {name}\n" in text for name in PUBLIC)
    vitviz.sample_image("rocket").save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    server, names = Server(), {}
    try:
        for block in blocks:
            exec(block.replace("http://127.0.0.1:7860/", server.url), names)
        from gradio_client.exceptions import AppError

        with pytest.raises(AppError, match="no checkpoint"):
            names["client"].predict("coffee", checkpoint="nothing", api_name="/predict")
        with pytest.raises(Exception):  # noqa: B017, whichever way Gradio refuses it
            names["client"].predict(
                {"path": "/etc/hostname", "meta": {"_type": "gradio.FileData"}, "url": "http://127.0.0.1:9/x"}, api_name="/predict"
            )
        assert "vitviz-tiny" in names["ready"] and len(names["answer"]) > 1
    finally:
        server.stop()
        if "client" in names:
            names["client"].close()
    assert "vitviz-tiny" in capsys.readouterr().out
