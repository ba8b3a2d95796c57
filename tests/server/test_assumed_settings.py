"""The form for settings that a weights file does not state: choices, predictions and saving."""

import io
import json
import zipfile
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import vitviz
from tests.engine.small_models import save_model, small_vit
from tests.shared import shared_file
from vitviz.errors import CheckpointError, VitvizError
from vitviz.server.api import lessons, links
from vitviz.server.options import ServiceSettings
from vitviz.server.page import assumed
from vitviz.server.page.build import build_page
from vitviz.server.services.analysis_service import AnalysisService


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    save_file(
        load_file(shared_file("weights/deit_tiny_patch16_224.safetensors")), folder / "mine.safetensors"
    )
    return folder


@pytest.fixture
def service(weights):
    return AnalysisService(ServiceSettings(device="cpu", weights=weights, keeps=True))


@pytest.fixture
def small_service(tmp_path):
    """Serve a small model; its passes take a fiftieth of the time."""
    save_model(small_vit(), tmp_path / "mine.safetensors")
    return AnalysisService(ServiceSettings(device="cpu", weights=tmp_path, keeps=True))


@pytest.mark.long
def test_each_choice_shows_the_prediction_it_gives(service):
    key = service.look(service.pictures.sample("chelsea"), "mine.safetensors")
    form = assumed.form_with_predictions(service, {"key": key})
    assert form["answered"] and form["keeps"] and form["said"] == ""
    items = {item["name"]: item for item in form["items"]}
    expected = ["pool", "block", "normalisation", "crop_pct", "interpolation", "activation", "epsilon"]
    assert list(items) == expected and items["pool"]["choices"][1]["known"] == "average of the patches"
    known = [choice["known"] for choice in items["normalisation"]["choices"]]
    assert known == ["ImageNet's", "0.5 ± 0.5", "CLIP's", "CIFAR-10's", "none"]
    half = items["normalisation"]["choices"][1]
    name = assumed.name_with("mine.safetensors", half["text"])
    trace = service.subject(service.look(service.pictures.sample("chelsea"), name)).trace
    assert half["answer"] == pytest.approx(trace.top(1)[0])
    assert items["normalisation"]["choices"][0]["answer"][1] > 0.4  # ImageNet's, with which DeiT was trained
    assert json.dumps(form)


@pytest.mark.long
def test_given_settings_leave_the_form_and_enter_link_and_zip(small_service):
    service = small_service
    name = assumed.name_with(
        "mine.safetensors", "heads=2&mean=0.485%2C0.456%2C0.406&std=0.229,0.224,0.225&epsilon=1e-6"
    )
    key = service.look(service.pictures.sample("coffee"), name)
    form = assumed.form_value(service.checkpoints.inspector(name), None, keeps=False)
    assert [item["name"] for item in form["items"]] == [
        "pool", "block", "crop_pct", "interpolation", "activation"
    ]  # fmt: skip
    assert not form["keeps"] and "epsilon=1e-06" in form["said"]
    assert links.parse_link({"checkpoint": name}).checkpoint == name
    archive = zipfile.ZipFile(io.BytesIO(lessons.lesson_zip(service, key, {})))
    about = json.loads(archive.read("settings.json"))["checkpoint"]
    assert about["name"] == name and about["assumed"] == [item["taken"] for item in form["items"]]
    rollout = np.load(io.BytesIO(archive.read("numbers/rollout.npz")))
    assert str(rollout["assumed"]) == " ".join(about["assumed"]) and str(rollout["checkpoint"]) == name


def test_assumptions_of_second_checkpoint_are_listed(service):
    form = assumed.form_value(
        service.checkpoints.inspector("mine.safetensors?heads=3"),
        service.checkpoints.inspector("mine.safetensors"),
        True,
    )
    assert {"name": "normalisation"} in form["second"]


@pytest.mark.parametrize("text", ["heads=5", "heads=-1", "colour=red", "mean=1e999", "heads=3&heads=6"])
def test_invalid_setting_in_checkpoint_name_is_rejected(service, text):
    with pytest.raises(VitvizError):
        service.look(service.pictures.sample("coffee"), assumed.name_with("mine.safetensors", text))


def test_settings_do_not_bypass_allowed_checkpoints(weights):
    service = AnalysisService(ServiceSettings(device="cpu", weights=weights, allowed=("other",)))
    with pytest.raises(CheckpointError, match="offers only other"):
        service.checkpoints.inspector("mine.safetensors?heads=3")


@pytest.fixture
def cifar_service(tmp_path):
    """Serve a bare weights file of width 96 with ten unnamed classes."""
    save_model(small_vit(embed_dim=96, num_heads=6, num_classes=10), tmp_path / "cifar.safetensors")
    return AnalysisService(ServiceSettings(device="cpu", weights=tmp_path, keeps=True))


def test_ambiguous_head_count_offers_predictions_of_each(cifar_service):
    key = cifar_service.look(cifar_service.pictures.sample("coffee"), "cifar.safetensors")
    form = assumed.form_with_predictions(cifar_service, {"key": key})
    (heads,) = [item for item in form["items"] if item["name"] == "heads"]
    assert heads["taken"] == "heads=3" and form["classes"] == 10
    for choice in heads["choices"]:
        name = assumed.name_with("cifar.safetensors", choice["text"])
        trace = cifar_service.subject(cifar_service.look(cifar_service.pictures.sample("coffee"), name)).trace
        assert choice["answer"] == pytest.approx(trace.top(1)[0]), choice["text"]
    assert len({choice["answer"] for choice in heads["choices"]}) == 4, (
        "two head counts give the same prediction"
    )


def test_class_names_are_saved_with_settings(cifar_service, tmp_path):
    name, names = "cifar.safetensors?heads=6", [f"thing {i}" for i in range(10)]
    with pytest.raises(CheckpointError, match="10 classes, but 9 names"):
        assumed.save_settings(cifar_service, name, "\n".join(names[:9]))
    assert not (tmp_path / "cifar.config.json").exists(), "rejected names were saved"
    assert assumed.save_settings(cifar_service, name, "\n".join(names)) == "cifar.safetensors"
    config = json.loads((tmp_path / "cifar.config.json").read_text())
    assert config["pretrained_cfg"]["label_names"] == names and config["model_args"]["num_heads"] == 6
    again = cifar_service.checkpoints.inspector("cifar.safetensors")
    assert again.labels == tuple(names) and again.model.blocks[0].attn.num_heads == 6


def test_shared_server_asks_for_no_class_names(cifar_service):
    inspector = cifar_service.checkpoints.inspector("cifar.safetensors")
    assert assumed.form_value(inspector, None, keeps=False)["classes"] == 0
    shipped = AnalysisService(ServiceSettings(device="cpu")).checkpoints.inspector("vitviz-tiny")
    assert assumed.form_value(shipped, None, keeps=True)["classes"] == 0, (
        "the shipped checkpoint offers saving"
    )


def test_settings_are_saved_only_on_a_local_server(weights, tmp_path):
    path = tmp_path / "mine.safetensors"
    path.write_bytes((weights / "mine.safetensors").read_bytes())
    shared_site = AnalysisService(ServiceSettings(device="cpu", weights=tmp_path))
    with pytest.raises(CheckpointError, match="server is shared"):
        assumed.save_settings(shared_site, "mine.safetensors?heads=3")
    service = AnalysisService(ServiceSettings(device="cpu", weights=tmp_path, keeps=True))
    assert service.checkpoints.inspector("mine.safetensors").checkpoint.assumed
    assert (
        assumed.save_settings(service, "mine.safetensors?mean=0.5,0.5,0.5&std=0.5,0.5,0.5")
        == "mine.safetensors"
    )
    again = service.checkpoints.inspector("mine.safetensors")
    assert again.checkpoint.assumed == () and not again.checkpoint.replaced
    assert again.preprocessing.mean == (0.5, 0.5, 0.5) and again.labels[285] == "Egyptian cat"
    assert vitviz.load(path, device="cpu").preprocessing == again.preprocessing


def test_outdated_form_predictions_are_discarded(small_service, monkeypatch):
    service = small_service
    listeners = {listener.api_name: listener.fn for listener in build_page(service).fns.values()}
    request = gr.Request(query_params={"checkpoint": "mine.safetensors"}, headers={})
    state = listeners["first"]({}, {}, request)[0]
    original = assumed.form_with_predictions

    def answer_during_computation(*given):
        form = original(*given)
        said = SimpleNamespace(_data={"said": "epsilon=1e-6"})
        assert listeners["assume"](state, said)[0]["checkpoint"] == "mine.safetensors?epsilon=1e-06"
        return form

    monkeypatch.setattr(assumed, "form_with_predictions", answer_during_computation)
    assert listeners["answers"](state) == gr.skip()
    monkeypatch.setattr(assumed, "form_with_predictions", original)
    form = listeners["answers"](state)
    assert form["answered"] and form["said"] == "epsilon=1e-06"
