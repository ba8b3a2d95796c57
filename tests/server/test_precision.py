"""What a page in bfloat16 says of it: in the facts, in every file of numbers, in the archive, in three
languages.
"""

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
def rough():
    return AnalysisService(ServiceSettings(device="cpu", dtype="bfloat16"))


@pytest.fixture(scope="module")
def key(rough):
    return rough.look(rough.pictures.sample("chelsea"), "vitviz-tiny")


def test_the_command_line_decides_the_precision(capsys):
    assert parse_options([]).settings.dtype == "float32"
    for flag in ("--precision", "--dtype"):  # the second is the old name
        assert parse_options([flag, "bfloat16"]).settings.dtype == "bfloat16"
    assert parse_options(["--precision", "tf32"]).settings.dtype == "tf32"
    with pytest.raises(SystemExit):
        parse_options(["--precision", "float16"])
    assert "bfloat16" in capsys.readouterr().err


def test_the_facts_name_it_and_its_distance_from_float32(rough, key):
    subject = rough.subject(key)
    said = facts.prediction_facts(subject)
    assert (
        subject.trace.dtype == "bfloat16"
        and ["Computed in", {"text": "bfloat16", "values": {}}] in said["shapes"]
    )
    (note,) = [note for note in said["notes"] if "float32" in note["text"]]
    distance = subject.trace.deviation
    assert note["values"] == {
        "dtype": "bfloat16",
        "attention": f"{distance.attention:.2g}",
        "classes": f"{distance.classes:.2g}",
    }
    for language in ("zh-CN", "ko"):
        spoken = translate(note["text"], language)
        assert spoken != note["text"] and all(f"{{{name}}}" in spoken for name in note["values"])


def test_in_float32_the_facts_say_so_and_no_more():
    exact = AnalysisService(ServiceSettings(device="cpu"))
    said = facts.prediction_facts(exact.subject(exact.look(exact.pictures.sample("chelsea"), "vitviz-tiny")))
    assert ["Computed in", {"text": "float32", "values": {}}] in said["shapes"] and not any(
        "float32" in note["text"] for note in said["notes"]
    )


@sweep("view", VIEWS, quick=QUICK, ids=lambda view: view.slug)
def test_every_view_exists_and_its_numbers_say_the_precision(rough, key, view, fast_faithfulness):
    if view.float32_only:
        assert "float32" in figure_value(rough, key, view)["message"]["text"]
        return
    assert figure_value(rough, key, view)["message"] is None
    with np.load(io.BytesIO(rough.numbers(key, view.slug, {}))) as file:
        assert str(file["dtype"]) == "bfloat16"


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_the_archive_and_the_table_say_it_too(rough, key, tmp_path):
    with zipfile.ZipFile(io.BytesIO(lessons.lesson_zip(rough, key, {}))) as archive:
        computed = json.loads(archive.read("settings.json"))["computed"]
    distance = rough.subject(key).trace.deviation
    assert computed["dtype"] == "bfloat16" and computed["from_float32"] == vars(distance)
    table = csv.DictReader(io.StringIO(rough.file(key, "distance", "numbers.csv", {}).decode()))
    assert {line["dtype"] for line in table} == {"bfloat16"}
    vitviz.sample_image("coffee").save(path := tmp_path / "coffee.png")
    survey, _ = list(rough.sets.surveying(key, [str(path)]))[-1]
    table = csv.DictReader(io.StringIO(rough.file(survey, "distance", "numbers.csv", {}).decode()))
    assert {line["dtype"] for line in table} == {"bfloat16"}, "an average says it as well"
