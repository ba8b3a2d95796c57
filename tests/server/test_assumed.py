"""The page's form for what a file does not say: its questions, its answers on the picture, what it keeps."""

import io
import json
import zipfile
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import vitviz
from tests.engine.small import saved, small
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
    """The same of a file whose passes take a fiftieth."""
    saved(small(), tmp_path / "mine.safetensors")
    return AnalysisService(ServiceSettings(device="cpu", weights=tmp_path, keeps=True))


@pytest.mark.long
def test_every_choice_has_the_answer_that_it_would_give(service):
    key = service.look(service.pictures.sample("chelsea"), "mine.safetensors")
    form = assumed.form_with_predictions(service, {"key": key})
    assert form["answered"] and form["keeps"] and form["said"] == ""
    items = {item["name"]: item for item in form["items"]}
    asked = ["pool", "block", "normalisation", "crop_pct", "interpolation", "activation", "epsilon"]
    assert list(items) == asked and items["pool"]["choices"][1]["known"] == "average of the patches"
    known = [choice["known"] for choice in items["normalisation"]["choices"]]
    assert known == ["ImageNet's", "one half", "CLIP's", "CIFAR-10's", "none"]
    half = items["normalisation"]["choices"][1]
    name = assumed.name_with("mine.safetensors", half["text"])
    trace = service.subject(service.look(service.pictures.sample("chelsea"), name)).trace
    assert half["answer"] == pytest.approx(trace.top(1)[0])
    assert items["normalisation"]["choices"][0]["answer"][1] > 0.4  # ImageNet's, which are DeiT's own
    assert json.dumps(form)


@pytest.mark.long
def test_what_is_said_is_asked_no_more_and_stands_in_link_and_files(small_service):
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


def test_one_checkpoint_marks_the_page_that_shows_two(service):
    form = assumed.form_value(
        service.checkpoints.inspector("mine.safetensors?heads=3"),
        service.checkpoints.inspector("mine.safetensors"),
        True,
    )
    assert {"name": "normalisation"} in form["second"]


@pytest.mark.parametrize("text", ["heads=5", "heads=-1", "colour=red", "mean=1e999", "heads=3&heads=6"])
def test_what_a_stranger_says_is_checked(service, text):
    with pytest.raises(VitvizError):
        service.look(service.pictures.sample("coffee"), assumed.name_with("mine.safetensors", text))


def test_a_site_that_offers_few_checkpoints_offers_no_others_by_a_question_mark(weights):
    service = AnalysisService(ServiceSettings(device="cpu", weights=weights, allowed=("other",)))
    with pytest.raises(CheckpointError, match="offers only other"):
        service.checkpoints.inspector("mine.safetensors?heads=3")


@pytest.fixture
def cifar(tmp_path):
    """A bare file of a ViT that is 96 wide and has ten classes without names."""
    saved(small(embed_dim=96, num_heads=6, num_classes=10), tmp_path / "cifar.safetensors")
    return AnalysisService(ServiceSettings(device="cpu", weights=tmp_path, keeps=True))


def test_heads_that_64_does_not_tell_are_asked_with_the_answer_of_each(cifar):
    key = cifar.look(cifar.pictures.sample("coffee"), "cifar.safetensors")
    form = assumed.form_with_predictions(cifar, {"key": key})
    (heads,) = [item for item in form["items"] if item["name"] == "heads"]
    assert heads["taken"] == "heads=3" and form["classes"] == 10
    for choice in heads["choices"]:
        name = assumed.name_with("cifar.safetensors", choice["text"])
        trace = cifar.subject(cifar.look(cifar.pictures.sample("coffee"), name)).trace
        assert choice["answer"] == pytest.approx(trace.top(1)[0]), choice["text"]
    assert len({choice["answer"] for choice in heads["choices"]}) == 4, "each has an answer of its own"


def test_names_of_the_classes_are_kept_with_the_answers(cifar, tmp_path):
    name, names = "cifar.safetensors?heads=6", [f"thing {i}" for i in range(10)]
    with pytest.raises(CheckpointError, match="10 classes, and 9 names"):
        assumed.save_settings(cifar, name, "\n".join(names[:9]))
    assert not (tmp_path / "cifar.config.json").exists(), "nothing is kept of what was refused"
    assert assumed.save_settings(cifar, name, "\n".join(names)) == "cifar.safetensors"
    kept = json.loads((tmp_path / "cifar.config.json").read_text())
    assert kept["pretrained_cfg"]["label_names"] == names and kept["model_args"]["num_heads"] == 6
    again = cifar.checkpoints.inspector("cifar.safetensors")
    assert again.labels == tuple(names) and again.model.blocks[0].attn.num_heads == 6


def test_a_shared_site_asks_for_no_names_that_it_would_not_keep(cifar):
    inspector = cifar.checkpoints.inspector("cifar.safetensors")
    assert assumed.form_value(inspector, None, keeps=False)["classes"] == 0
    shipped = AnalysisService(ServiceSettings(device="cpu")).checkpoints.inspector("vitviz-tiny")
    assert assumed.form_value(shipped, None, keeps=True)["classes"] == 0, "what is shipped is not written to"


def test_an_answer_is_kept_on_ones_own_machine_alone(weights, tmp_path):
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


def test_answers_to_an_older_form_do_not_ask_again_what_was_answered_meanwhile(small_service, monkeypatch):
    service = small_service
    listeners = {one.api_name: one.fn for one in build_page(service).fns.values()}
    asked = gr.Request(query_params={"checkpoint": "mine.safetensors"}, headers={})
    state = listeners["first"]({}, {}, asked)[0]
    real = assumed.form_with_predictions

    def meanwhile(*given):
        form = real(*given)
        said = SimpleNamespace(_data={"said": "epsilon=1e-6"})
        assert listeners["assume"](state, said)[0]["checkpoint"] == "mine.safetensors?epsilon=1e-06"
        return form

    monkeypatch.setattr(assumed, "form_with_predictions", meanwhile)
    assert listeners["answers"](state) == gr.skip()
    monkeypatch.setattr(assumed, "form_with_predictions", real)
    form = listeners["answers"](state)
    assert form["answered"] and form["said"] == "epsilon=1e-06"
