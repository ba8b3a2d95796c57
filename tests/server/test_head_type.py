"""Models with several labels, values or a single output: page, files and endpoints."""

import io
import json
import zipfile

import numpy as np
import pytest

from tests.engine.small_models import SMALL, save_model, small_vit
from vitviz.errors import WrongSetting
from vitviz.server.api import lessons
from vitviz.server.api.endpoints import Endpoints
from vitviz.server.options import ServiceSettings
from vitviz.server.page import facts
from vitviz.server.page.figures import figure_value
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.views.routes import parse_settings

OUTPUTS = {"labels": (3, "sigmoid"), "values": (3, "value"), "value": (1, "value"), "yes": (1, "sigmoid")}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    args = {name: one for name, one in SMALL.items() if name != "num_classes"}
    for name, (outputs, head_type) in {**OUTPUTS, "classes": (3, "softmax")}.items():
        (folder / name).mkdir()
        save_model(small_vit(num_classes=outputs), folder / name / "model.safetensors")
        labels = [f"{name} {number}" for number in range(outputs)]
        pictures = {"mean": [0.5] * 3, "std": [0.5] * 3, "num_classes": outputs, "label_names": labels}
        about = {"architecture": "vit_tiny_patch16_224", "num_classes": outputs, "model_args": args}
        about |= {"pretrained_cfg": pictures, "vitviz": {"head_type": head_type}}
        (folder / name / "config.json").write_text(json.dumps(about))
    return AnalysisService(ServiceSettings(device="cpu", weights=folder))


def key_of(service, name):
    return service.look(service.pictures.sample("chelsea"), name)


def shown_scores(logits, head_type):
    """Return the scores that a head shows, computed with NumPy."""
    if head_type == "value":
        return logits
    return 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize("name", OUTPUTS)
def test_prediction_shows_scores_of_the_head_type(service, name):
    outputs, head_type = OUTPUTS[name]
    key = key_of(service, name)
    subject = service.subject(key)
    prediction = facts.prediction_facts(subject, key, "chelsea")
    expected = sorted(shown_scores(subject.trace.logits.double().numpy(), head_type), reverse=True)
    assert [score for _, score in prediction["top"]] == pytest.approx(expected, abs=1e-6)
    assert prediction["head_type"] == head_type and (prediction["truth"] is None) == (name != "labels")
    (note,) = prediction["notes"]
    words = {"labels": "need not sum to 1", "yes": "probability of yes"}
    assert words.get(name, "no probabilities") in note["text"] and note["values"]["count"] == outputs


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("slug", ["evidence", "trial", "experiment", "tour"])
def test_views_offer_scores_of_the_head_type(service, slug, name):
    figure = figure_value(service, key_of(service, name), service.view(slug))
    assert figure["message"] is None and figure["head_type"] == OUTPUTS[name][1]
    offered = {one["name"]: one for one in figure["controls"]}
    if slug in ("trial", "experiment"):
        scores = [score for score, _ in offered["score"]["options"]]
        assert (scores == ["logit"]) == (OUTPUTS[name][1] == "value")
        assert offered["score"]["default"] == ("logit" if scores == ["logit"] else "probability")
    if slug == "evidence":
        assert [one for one, _ in offered["relative"]["options"]] == ["no"]
        shown = [one for one, _ in offered["show"]["options"]]
        assert ("smallest" in shown) == (OUTPUTS[name][1] != "value")


def read_json(array):
    return json.loads(array.tobytes())


@pytest.mark.parametrize("name", ["values", "value"])
def test_charts_of_value_heads_are_not_in_percent(service, name):
    key = key_of(service, name)
    forming = read_json(service.item(key, "evidence", "chart", {"show": "forming"}))
    curves = read_json(
        service.item(key, "experiment", "chart", {"kind": "grey", "known": "2", "score": "logit"})
    )
    assert not forming["percent"] and not curves["percent"]
    largest = service.subject(key).trace.logits.max().item()
    assert curves["series"][0]["y"][0] == pytest.approx(largest, rel=1e-5)
    assert forming["series"][0]["y"][-1] == pytest.approx(largest, rel=1e-4)
    for view, asked in (("trial", "score"), ("experiment", "score")):
        with pytest.raises(WrongSetting, match="gives values"):
            parse_settings(service.view(view), {asked: "probability"}, service.subject(key).about)


def test_endpoints_name_values_or_probabilities(service):
    endpoints = Endpoints(service)
    for name, (_, head_type) in OUTPUTS.items():
        response = endpoints.predict("chelsea", name)
        assert response["head_type"] == head_type
        quantity = "value" if head_type == "value" else "probability"
        assert all({*one} == {"label", quantity} for one in response["top"])
    evaluation = endpoints.trial("chelsea", "value", method="rollout")
    trace = service.subject(key_of(service, "value")).trace
    assert evaluation["curves"]["rollout"]["most"][0] == pytest.approx(trace.logits.item(), abs=1e-4)


@pytest.fixture(scope="module")
def lesson_zips(service):
    return {name: lessons.lesson_zip(service, key_of(service, name), {}) for name in ("value", "classes")}


def without_head_type(data):
    """Return the zip without the head type, as old versions wrote it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(buffer, "w") as old:
        for name in archive.namelist():
            content = archive.read(name)
            if name == lessons.TOLD:
                about = json.loads(content)
                assert about.pop("head_type")
                content = json.dumps(about)
            old.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.long
def test_lesson_names_head_type_and_outdated_lesson_warns(service, lesson_zips):
    about = json.loads(zipfile.ZipFile(io.BytesIO(lesson_zips["value"])).read(lessons.TOLD))
    assert about["head_type"] == "value" and {*about["prediction"][0]} == {"label", "value"}
    inspectors = {name: service.checkpoints.inspector(name) for name in lesson_zips}
    for name, data in lesson_zips.items():
        assert lessons.read_lesson(data).outdated(inspectors[name]) is None
    assert (
        lessons.read_lesson(without_head_type(lesson_zips["classes"])).outdated(inspectors["classes"]) is None
    )
    warning = lessons.read_lesson(without_head_type(lesson_zips["value"])).outdated(inspectors["value"])
    assert warning.startswith("The scores in this lesson’s files are wrong") and "value" in warning
