"""A server in bfloat16 reports its precision in the facts, in files of numbers and in the zip."""

import csv
import io
import json
import zipfile

import numpy as np
import pytest

import vitviz
from tests.tiers import sweep
from vitviz.server.api import lessons
from vitviz.server.i18n import translate
from vitviz.server.options import parse_options
from vitviz.server.page import facts
from vitviz.server.page.figures import figure_value
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.views import VIEWS

QUICK = [view for view in VIEWS if view.slug in ("rollout", "distance", "evidence")]


@pytest.fixture(scope="module")
def bfloat16_service():
    return AnalysisService(ServiceSettings(device="cpu", dtype="bfloat16"))


@pytest.fixture(scope="module")
def key(bfloat16_service):
    return bfloat16_service.look(bfloat16_service.pictures.sample("chelsea"), "vitviz-tiny")


def test_precision_option_sets_dtype(capsys):
    assert parse_options([]).settings.dtype == "float32"
    for flag in ("--precision", "--dtype"):  # --dtype is the old name
        assert parse_options([flag, "bfloat16"]).settings.dtype == "bfloat16"
    assert parse_options(["--precision", "tf32"]).settings.dtype == "tf32"
    with pytest.raises(SystemExit):
        parse_options(["--precision", "float16"])
    assert "bfloat16" in capsys.readouterr().err


def test_facts_report_bfloat16_and_deviation_from_float32(bfloat16_service, key):
    subject = bfloat16_service.subject(key)
    prediction = facts.prediction_facts(subject)
    assert (
        subject.trace.dtype == "bfloat16"
        and ["Computed in", {"text": "bfloat16", "values": {}}] in prediction["shapes"]
    )
    (note,) = [note for note in prediction["notes"] if "float32" in note["text"]]
    distance = subject.trace.deviation
    assert note["values"] == {
        "dtype": "bfloat16",
        "attention": f"{distance.attention:.2g}",
        "classes": f"{distance.classes:.2g}",
    }
    for language in ("zh-CN", "ko"):
        translated = translate(note["text"], language)
        assert translated != note["text"] and all(f"{{{name}}}" in translated for name in note["values"])


def test_facts_in_float32_report_no_deviation():
    service = AnalysisService(ServiceSettings(device="cpu"))
    prediction = facts.prediction_facts(
        service.subject(service.look(service.pictures.sample("chelsea"), "vitviz-tiny"))
    )
    assert ["Computed in", {"text": "float32", "values": {}}] in prediction["shapes"] and not any(
        "float32" in note["text"] for note in prediction["notes"]
    )


@sweep("view", VIEWS, quick=QUICK, ids=lambda view: view.slug)
def test_npz_of_every_view_reports_the_precision(
    bfloat16_service, key, view, fast_faithfulness, fast_perturbation
):
    if view.scope.float32_only:
        assert "float32" in figure_value(bfloat16_service, key, view)["message"]["text"]
        return
    assert figure_value(bfloat16_service, key, view)["message"] is None
    with np.load(io.BytesIO(bfloat16_service.numbers(key, view.slug, {}))) as file:
        assert str(file["dtype"]) == "bfloat16"


@pytest.mark.long
@pytest.mark.usefixtures("figures_not_drawn")
def test_zip_and_csv_report_the_precision(bfloat16_service, key, tmp_path):
    with zipfile.ZipFile(io.BytesIO(lessons.lesson_zip(bfloat16_service, key, {}))) as archive:
        computed = json.loads(archive.read("settings.json"))["computed"]
    distance = bfloat16_service.subject(key).trace.deviation
    assert computed["dtype"] == "bfloat16" and computed["from_float32"] == vars(distance)
    table = csv.DictReader(io.StringIO(bfloat16_service.file(key, "distance", "numbers.csv", {}).decode()))
    assert {line["dtype"] for line in table} == {"bfloat16"}
    vitviz.sample_image("coffee").save(path := tmp_path / "coffee.png")
    survey, _ = list(bfloat16_service.sets.surveying(key, [str(path)]))[-1]
    table = csv.DictReader(io.StringIO(bfloat16_service.file(survey, "distance", "numbers.csv", {}).decode()))
    assert {line["dtype"] for line in table} == {"bfloat16"}, "the csv of an average lacks the precision"
