"""What a page, its files and endpoints make of a head of several labels, of values, of a single output."""

import io
import json
import zipfile

import numpy as np
import pytest

from tests.engine.small import SMALL, saved, small
from vitviz.errors import WrongSetting
from vitviz.server.api import lessons
from vitviz.server.api.endpoints import Endpoints
from vitviz.server.options import ServiceSettings
from vitviz.server.page import facts
from vitviz.server.page.figures import figure_value
from vitviz.server.services.analysis_service import AnalysisService

OUTPUTS = {"labels": (3, "sigmoid"), "values": (3, "value"), "value": (1, "value"), "yes": (1, "sigmoid")}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    args = {name: one for name, one in SMALL.items() if name != "num_classes"}
    for name, (outputs, head_type) in {**OUTPUTS, "classes": (3, "softmax")}.items():
        (folder / name).mkdir()
        saved(small(num_classes=outputs), folder / name / "model.safetensors")
        labels = [f"{name} {number}" for number in range(outputs)]
        pictures = {"mean": [0.5] * 3, "std": [0.5] * 3, "num_classes": outputs, "label_names": labels}
        about = {"architecture": "vit_tiny_patch16_224", "num_classes": outputs, "model_args": args}
        about |= {"pretrained_cfg": pictures, "vitviz": {"head_type": head_type}}
        (folder / name / "config.json").write_text(json.dumps(about))
    return AnalysisService(ServiceSettings(device="cpu", weights=folder))


def key_of(service, name):
    return service.look(service.pictures.sample("chelsea"), name)


def shown_of(logits, head_type):
    """By NumPy alone."""
    if head_type == "value":
        return logits
    return 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_prediction_on_the_page_is_what_its_head_gives(service, name):
    outputs, head_type = OUTPUTS[name]
    key = key_of(service, name)
    subject = service.subject(key)
    told = facts.prediction_facts(subject, key, "chelsea")
    expected = sorted(shown_of(subject.trace.logits.double().numpy(), head_type), reverse=True)
    assert [score for _, score in told["top"]] == pytest.approx(expected, abs=1e-6)
    assert told["head_type"] == head_type and (told["truth"] is None) == (name != "labels")
    (note,) = told["notes"]
    words = {"labels": "need not sum to 1", "yes": "probability of yes"}
    assert words.get(name, "no probabilities") in note["text"] and note["values"]["count"] == outputs


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("slug", ["evidence", "trial", "experiment", "tour"])
def test_every_view_is_told_the_head_and_offers_what_it_has(service, slug, name):
    told = figure_value(service, key_of(service, name), service.view(slug))
    assert told["message"] is None and told["head_type"] == OUTPUTS[name][1]
    offered = {one["name"]: one for one in told["controls"]}
    if slug in ("trial", "experiment"):
        scores = [score for score, _ in offered["score"]["options"]]
        assert (scores == ["logit"]) == (OUTPUTS[name][1] == "value")
        assert offered["score"]["default"] == ("logit" if scores == ["logit"] else "probability")
    if slug == "evidence":
        assert [one for one, _ in offered["relative"]["options"]] == ["no"]
        shown = [one for one, _ in offered["show"]["options"]]
        assert ("smallest" in shown) == (OUTPUTS[name][1] != "value")


def read(array):
    return json.loads(array.tobytes())


@pytest.mark.parametrize("name", ["values", "value"])
def test_charts_of_values_have_an_axis_of_values(service, name):
    key = key_of(service, name)
    forming = read(service.item(key, "evidence", "chart", {"show": "forming"}))
    curves = read(service.item(key, "experiment", "chart", {"kind": "grey", "known": "2", "score": "logit"}))
    assert not forming["percent"] and not curves["percent"]
    largest = service.subject(key).trace.logits.max().item()
    assert curves["series"][0]["y"][0] == pytest.approx(largest, rel=1e-5)
    assert forming["series"][0]["y"][-1] == pytest.approx(largest, rel=1e-4)
    for view, asked in (("trial", "score"), ("experiment", "score")):
        with pytest.raises(WrongSetting, match="gives values"):
            service.view(view).settings({asked: "probability"}, service.subject(key).about)


def test_endpoints_give_values_under_their_own_name(service):
    endpoints = Endpoints(service)
    for name, (_, head_type) in OUTPUTS.items():
        found = endpoints.predict("chelsea", name)
        assert found["head_type"] == head_type
        quantity = "value" if head_type == "value" else "probability"
        assert all({*one} == {"label", quantity} for one in found["top"])
    tried = endpoints.trial("chelsea", "value", method="rollout")
    trace = service.subject(key_of(service, "value")).trace
    assert tried["curves"]["rollout"]["most"][0] == pytest.approx(trace.logits.item(), abs=1e-4)


@pytest.fixture(scope="module")
def zipped(service):
    return {name: lessons.lesson_zip(service, key_of(service, name), {}) for name in ("value", "classes")}


def older(data):
    """The zip as it was before the head's type was read."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(held, "w") as old:
        for name in archive.namelist():
            content = archive.read(name)
            if name == lessons.TOLD:
                about = json.loads(content)
                assert about.pop("head_type")
                content = json.dumps(about)
            old.writestr(name, content)
    return held.getvalue()


@pytest.mark.long
def test_a_lesson_says_what_its_scores_are_and_an_old_one_that_they_are_wrong(service, zipped):
    about = json.loads(zipfile.ZipFile(io.BytesIO(zipped["value"])).read(lessons.TOLD))
    assert about["head_type"] == "value" and {*about["prediction"][0]} == {"label", "value"}
    of = {name: service.checkpoints.inspector(name) for name in zipped}
    for name, data in zipped.items():
        assert lessons.read_lesson(data).outdated(of[name]) is None
    assert lessons.read_lesson(older(zipped["classes"])).outdated(of["classes"]) is None
    said = lessons.read_lesson(older(zipped["value"])).outdated(of["value"])
    assert said.startswith("The scores in this lesson’s files are wrong") and "value" in said
