import inspect
import re
from pathlib import Path
from typing import get_args

import gradio as gr
import numpy as np
import pytest
from gradio.utils import get_upload_folder

import vitviz
from tests.browser.conftest import Server
from vitviz.errors import VitvizError
from vitviz.server.api.endpoints import (
    PUBLIC,
    Endpoints,
    _as_gradio_error,
    _documented,
    endpoint,
    views_with_endpoints,
)
from vitviz.server.page.build import build_page
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.views import VIEWS
from vitviz.views.rollout import RolloutView

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def endpoints(service):
    return Endpoints(service)


def test_only_documented_endpoints_are_public(service):
    info = build_page(service).get_api_info()
    derived = [view.slug for view in views_with_endpoints()]
    assert (
        set(info["named_endpoints"]) == {f"/{name}" for name in (*PUBLIC, *derived)}
        and info["unnamed_endpoints"] == {}
    )
    for name, info_of_endpoint in info["named_endpoints"].items():
        assert info_of_endpoint["description"], f"{name} has no description"
        assert all(
            parameter["parameter_has_default"]
            for parameter in info_of_endpoint["parameters"]
            if parameter["parameter_name"] not in ("image", "patch", "without")
        )


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_documents_every_parameter(endpoints, name):
    """Gradio describes the parameters to clients from these lines."""
    signature = inspect.signature(getattr(endpoints, name))
    lines = (
        inspect.getdoc(_documented(_as_gradio_error(getattr(endpoints, name))))
        .split("Returns:")[0]
        .split("Args:\n")[1:]
    )
    assert re.findall(r"^ {4}(\w+): ", "".join(lines), re.MULTILINE) == list(signature.parameters)


def test_endpoint_numbers_match_the_trace(endpoints, trace):
    assert {name: endpoints.predict("coffee")[name] for name in ("checkpoint", "dtype")} == {
        "checkpoint": "vitviz-tiny",
        "dtype": "float32",
    }
    top = endpoints.predict("coffee", count=3)["top"]
    assert [entry["label"] for entry in top] == [label for label, _ in trace.top(3)]
    assert np.allclose([entry["probability"] for entry in top], [p for _, p in trace.top(3)], rtol=1e-4)
    response = endpoints.rollout("coffee", query="3", fusion="max", discard=0.5, residual=0.25, layers="2-3")
    assert np.allclose(
        response["map"],
        vitviz.rollout(trace, query=3, fusion="max", discard=0.5, residual=0.25, layers=(1, 2)),
        rtol=1e-4,
    )
    assert response["box"] == list(trace.view.box)
    response = endpoints.attention_distance("coffee", renormalise=True)
    assert np.allclose(response["distance"], vitviz.attention_distance(trace, renormalise=True), rtol=1e-4)


@pytest.mark.parametrize(
    "given, expected", [("false", False), ("False", False), ("true", True), (False, False), (True, True)]
)
def test_boolean_words_are_parsed(endpoints, trace, given, expected):
    found = endpoints.attention_distance("coffee", renormalise=given)
    assert np.allclose(found["distance"], vitviz.attention_distance(trace, renormalise=expected), rtol=1e-4)


@pytest.mark.parametrize("given", ["maybe", "", 2, None, [True]])
def test_non_boolean_value_is_rejected(endpoints, given):
    with pytest.raises(ValueError, match="renormalise=.* is neither true nor false"):
        endpoints.attention_distance("coffee", renormalise=given)


def test_patch_attention_returns_row_or_column(endpoints, trace):
    grid, attention = trace.grid, trace.attention(1)[0]
    row = endpoints.patch_attention("coffee", layer=2, head=1, query="5")
    column = endpoints.patch_attention("coffee", layer=2, head=1, query="5", direction="attended by")
    token = grid.prefix + 5
    assert np.allclose(np.ravel(row["patches"]), attention[token, grid.prefix :], rtol=1e-4, atol=1e-7)
    assert np.allclose(np.ravel(column["patches"]), attention[grid.prefix :, token], rtol=1e-4, atol=1e-7)
    assert np.allclose(list(row["prefix"].values()), attention[token, : grid.prefix], rtol=1e-4) and list(
        row["prefix"]
    ) == list(grid.prefix_names)
    assert np.sum(row["patches"]) + sum(row["prefix"].values()) == pytest.approx(1, abs=1e-4)


def test_writers_and_score_account_sum_up(endpoints, trace):
    response = endpoints.writers("coffee", layer=8, head=2)
    assert sum(writer["logits"] for writer in response["writers"]) == pytest.approx(
        response["share"], abs=1e-3
    )
    assert {"kind": "mlp", "layer": 7, "head": None}.items() <= response["writers"][-1].items()
    deep = endpoints.writers("coffee", layer=5, head=1, via="8.2")["share"]
    line = {
        (writer["kind"], writer["layer"], writer["head"]): writer["logits"] for writer in response["writers"]
    }
    assert deep == pytest.approx(line["head", 5, 1], abs=1e-4)
    account = endpoints.score_account("coffee", layer=6, head=2, query="class", key="105")
    layer = trace.layers[5]
    own = float(layer.q[1, 0] @ layer.k[1, 106]) * layer.scale
    assert np.sum(account["matrix"]) == pytest.approx(own, abs=1e-3) and account["tokens"] == ["class", 105]
    assert np.sum(account["content_position"]) == pytest.approx(np.sum(account["relative"]), abs=1e-3)


def test_position_and_filter_endpoints_match_python(endpoints, inspector):
    expected = vitviz.position_similarity(inspector).numpy()
    assert np.allclose(endpoints.position_similarity()["similarity"], expected, atol=1e-5)
    assert np.allclose(endpoints.position_similarity(patch=1)["similarity"], expected[0, 1], atol=1e-5)
    filters = vitviz.embedding_filters(inspector, 4)
    assert np.allclose(endpoints.filters(count=4)["pictures"], filters.pictures, atol=1e-5)
    assert np.allclose(endpoints.filters(count=4)["variance"], filters.variance, rtol=1e-4)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_every_exported_view_has_an_endpoint(endpoints, view):
    assert (
        view.export.endpoint in PUBLIC
        or view in views_with_endpoints()
        or not any(item.in_export for item in view.items)
    )


def test_internal_error_is_reported_generically_and_logged(endpoints, monkeypatch, caplog):
    def broken(*given):
        raise KeyError("a bug")

    monkeypatch.setattr(RolloutView, "item", broken)
    with pytest.raises(gr.Error, match="vitviz hit an error"), caplog.at_level("ERROR", "vitviz"):
        _as_gradio_error(endpoints.rollout)("coffee")
    assert "a bug" in caplog.text, "the log lacks the traceback"


def test_endpoint_is_derived_from_view_settings_and_items(endpoints, trace):
    distance = next(view for view in VIEWS if view.slug == "distance")
    ask = endpoint(distance, endpoints)
    parameters = inspect.signature(ask).parameters
    assert list(parameters) == [
        "image",
        "checkpoint",
        "rows",
        "without",
    ], "a setting that changes no number is a parameter"
    assert parameters["rows"].default == "plain" and get_args(parameters["rows"].annotation) == (
        "plain",
        "renormalised",
    )
    response = ask("coffee", rows="renormalised")
    assert np.allclose(response["distance"], vitviz.attention_distance(trace, renormalise=True), rtol=1e-4)
    assert (
        set(response) == {"checkpoint", "dtype", "distance", "prefix_mass", "grid"}
        and response["checkpoint"] == "vitviz-tiny"
    )
    assert (
        distance.words.what in ask.__doc__
        and "distance: layer x head, mean attention distance" in ask.__doc__
    )
    with pytest.raises(VitvizError, match="rows='x' is not valid; expected one of plain, renormalised"):
        ask("coffee", rows="x")
    weights = endpoint(next(view for view in VIEWS if view.slug == "filters"), endpoints)
    assert list(inspect.signature(weights).parameters) == ["checkpoint"] and "variance" in weights()


def test_checkpoint_list_reveals_no_paths(endpoints):
    listed = endpoints.checkpoints()
    shipped = {path.parent.name for path in (ROOT / "weights").glob("*/model.safetensors")}
    first = listed[: len(shipped)]  # local checkpoints come first
    assert {entry["name"] for entry in first} == shipped >= {"vitviz-tiny"} and all(
        entry["on_disk"] for entry in first
    )
    assert str(ROOT) not in str(listed)
    only = Endpoints(AnalysisService(ServiceSettings(device="cpu", allowed=("vitviz-tiny",))))
    assert [entry["name"] for entry in only.checkpoints()] == ["vitviz-tiny"]
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
def test_server_files_are_not_accepted_as_images(endpoints, image):
    with pytest.raises(VitvizError, match="sample"):
        endpoints.predict(image)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("predict", {"image": "coffee", "checkpoint": "../../etc/passwd"}, "no checkpoint"),
        ("predict", {"image": "coffee", "count": 0}, "count=0"),
        ("rollout", {"image": "coffee", "fusion": "<img>"}, "fusion=.*expected one of mean, max, min"),
        ("rollout", {"image": "coffee", "residual": 1e9}, "from 0 to 1"),
        (
            "rollout",
            {"image": "coffee", "query": "nobody"},
            "query='nobody' is not valid; expected one of auto, mean, class, or",
        ),
        ("predict", {"image": "\ud83d"}, "no sample"),
        ("patch_attention", {"image": "coffee", "layer": 99}, "layer=99"),
        ("patch_attention", {"image": "coffee", "layer": 10**400}, "no whole number from 1 to 8"),
        ("patch_attention", {"image": "coffee", "query": "9" * 5_000}, "query=.* is not valid"),
        ("patch_attention", {"image": "coffee", "query": "²"}, "query=.* is not valid"),
        ("attention_distance", {"image": "coffee", "renormalise": "maybe"}, "neither true nor false"),
        ("patch_attention", {"image": "coffee", "head": float("nan")}, "head=nan"),
        ("patch_attention", {"image": "coffee", "query": "100000"}, "query=.* is not valid"),
        ("patch_attention", {"image": "coffee", "direction": "sideways"}, "neither"),
        ("position_similarity", {"patch": -1}, "patch=-1"),
    ],
)
def test_invalid_endpoint_argument_is_rejected_with_message(endpoints, name, given, message):
    with pytest.raises(gr.Error, match=message):
        _as_gradio_error(getattr(endpoints, name))(**given)


@pytest.mark.processes
def test_documentation_examples_run(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    documented = re.findall(r"^## (\w+)$", text, re.M)
    assert len(blocks) == len(documented) + 1 and set(PUBLIC) <= set(documented)
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
            elsewhere = {
                "path": "/etc/hostname",
                "meta": {"_type": "gradio.FileData"},
                "url": "http://127.0.0.1:9/x",
            }
            names["client"].predict(elsewhere, api_name="/predict")
        assert "vitviz-tiny" in names["ready"] and len(names["answer"]) > 1
    finally:
        server.stop()
        if "client" in names:
            names["client"].close()
    assert "vitviz-tiny" in capsys.readouterr().out
