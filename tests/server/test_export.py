import base64
import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import vitviz
from tests.server.helpers import numbers, opened
from tests.tiers import sweep
from vitviz.server.api import lessons
from vitviz.views import VIEWS, ViewContext
from vitviz.views.positions import PositionsView

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.mark.long
def test_the_zip_holds_the_traces_own_numbers_with_the_settings_given(service, key, trace):
    archive = opened(
        lessons.lesson_zip(
            service,
            key,
            {"rollout.fusion": "max", "rollout.residual": "0.8", "distance.rows": "renormalised"},
        )
    )
    rollout = numbers(archive, "rollout")
    assert np.allclose(
        rollout["rollout"], vitviz.rollout(trace, fusion="max", residual=0.8).numpy(), atol=1e-6
    )
    assert (
        str(rollout["checkpoint"]) == "vitviz-tiny"
        and str(rollout["setting_fusion"]) == "max"
        and str(rollout["setting_residual"]) == "0.8"
    )
    assert np.allclose(
        numbers(archive, "distance")["distance"],
        vitviz.attention_distance(trace, renormalise=True).numpy(),
        atol=1e-4,
    )
    assert np.allclose(
        numbers(archive, "patches")["patch_embedding"], trace.patch_embedding.numpy(), atol=1e-5
    )
    about = json.loads(archive.read("settings.json"))
    assert (
        about["views"]["rollout"]["residual"] == 0.8
        and about["checkpoint"]["name"] == "vitviz-tiny"
        and about["left_out"] == dict.fromkeys(("experiment", "trial"), lessons.ON_REQUEST)
    )
    assert [one["label"] for one in about["prediction"]] == [label for label, _ in trace.top(5)]
    for name in set(archive.namelist()) - {"README.txt"}:
        assert name.startswith("numbers/") or name in archive.read("README.txt").decode(), (
            f"README.txt says nothing of {name}"
        )


def test_without_a_token_it_is_the_patch_in_the_middle_as_on_the_page(service, key):
    views = json.loads(opened(lessons.lesson_zip(service, key, {})).read("settings.json"))["views"]
    assert views["explorer"]["token"] == views["tour"]["token"] == 7 * 14 + 7
    archive = opened(lessons.lesson_zip(service, key, {"explorer.token": "3"}))
    views = json.loads(archive.read("settings.json"))["views"]
    assert (views["explorer"]["token"], views["tour"]["token"]) == (2, 105)


def test_the_pictures_are_those_of_the_page(service, key):
    subject = service.subject(key)
    archive = opened(lessons.lesson_zip(service, key, {"rollout.overlay": "paper", "rollout.smooth": "off"}))
    assert (np.asarray(Image.open(archive.open("input.png"))) == subject.trace.view.picture).all()
    assert Image.open(archive.open("upload.jpg")).size == subject.trace.view.upload
    drawn = vitviz.overlay(
        np.asarray(vitviz.sample_image("coffee")),
        vitviz.rollout(subject.trace).numpy(),
        subject.trace.view.box,
        form="paper",
        smooth=False,
    )
    assert (np.asarray(Image.open(archive.open("rollout-overlay.png"))) == drawn).all()


def test_the_chart_needs_no_other_file_and_has_the_numbers(service, key):
    page = service.file(key, "distance", "figure.html", {"form": "sorted"}).decode()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page), "the page asks for another file"
    (told,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    told = json.loads(told)
    part = told["parts"]["cell/distance/chart?form=sorted&rows=plain&difference=off"]
    assert (
        told["value"]["controls"][0]["default"] == "sorted" and told["value"]["checkpoint"] == "vitviz-tiny"
    )
    chart, expected = (
        json.loads(base64.b64decode(part["data"])),
        vitviz.attention_distance(service.subject(key).trace),
    )
    for series, row in zip(chart["series"], expected.sort(dim=1).values, strict=True):
        np.testing.assert_allclose(series["y"], row.numpy(), rtol=1e-4)


def test_the_table_has_a_line_for_each_head(service, key):
    lines = list(csv.DictReader(io.StringIO(service.file(key, "distance", "numbers.csv", {}).decode())))
    expected = vitviz.attention_distance(service.subject(key).trace).numpy()
    assert len(lines) == expected.size
    for line in lines:
        assert np.float32(line["distance_px"]) == expected[int(line["layer"]) - 1, int(line["head"]) - 1]
        assert line["checkpoint"] == "vitviz-tiny" and line["rows"] == "plain" and line["pictures"] == "1"


@sweep("alone", [0, 1, 8], quick=[1])
def test_the_rollouts_picture_is_what_is_in_view_and_its_colours_begin_where_the_pages_do(
    service, key, alone
):
    subject = service.subject(key)
    archive = opened(lessons.lesson_zip(service, key, {"rollout.alone": str(alone)}))
    assert json.loads(archive.read("settings.json"))["views"]["rollout"]["alone"] == alone
    found = np.asarray(Image.open(archive.open("rollout-overlay.png")))
    values = (
        vitviz.analyses.mean_attention(subject.trace)[alone - 1].numpy()
        if alone
        else vitviz.rollout(subject.trace).numpy()
    )
    settings = service.view("rollout").settings({}, subject.about)
    expected = vitviz.overlay(
        np.asarray(vitviz.sample_image("coffee")),
        values,
        subject.trace.view.box,
        low=float(values.min()),
        opacity=settings["opacity"],
        colours=settings["colormap"],
    )
    assert (found == expected).all()


def test_every_view_is_in_it_with_its_files_settings_and_words(service, key):
    archive = opened(lessons.lesson_zip(service, key, {}))
    names, about = set(archive.namelist()), json.loads(archive.read("settings.json"))["views"]
    readme = archive.read("README.txt").decode()
    assert [view.slug for view in VIEWS if view.on_request] == ["trial", "experiment"]
    for view in VIEWS:
        if view.on_request:  # which would hold up all others
            assert not any(view.slug in name for name in names) and lessons.ON_REQUEST in readme
            continue
        assert {f"numbers/{view.slug}.npz", *(f"{view.slug}-{file.name}" for file in view.files)} <= names
        assert set(about[view.slug]) == {control.name for control in view.controls}
        assert f"{view.title}: {view.words.what}" in readme
        assert archive.read(f"numbers/{view.slug}.npz")[:4] == b"PK\x03\x04"
        for file in view.files:
            data, alone = (
                archive.read(f"{view.slug}-{file.name}"),
                service.file(key, view.slug, file.name, {}),
            )
            first, second = (
                re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}", b"", one) for one in (data, alone)
            )  # the id of Plotly's element
            assert first == second


@pytest.mark.sweep
@pytest.mark.parametrize("slug", ["experiment", "trial"])
def test_what_takes_long_comes_along_once_the_view_itself_has_found_it(service, slug, fast_faithfulness):
    key = service.look(service.pictures.sample("rocket"), "vitviz-tiny")
    given = {"experiment": {"kind": "shuffle"}, "trial": {"patches_as": "mean"}}[slug]
    asked = {f"{slug}.{name}": value for name, value in given.items()}
    part = {"experiment": ("point", {"step": "1"}), "trial": ("tried", {"method": "ledger"})}[slug]
    service.item(key, slug, part[0], given | part[1])  # what has been begun is not whole
    before = opened(lessons.lesson_zip(service, key, asked))
    assert json.loads(before.read("settings.json"))["left_out"][slug] == lessons.ON_REQUEST
    with np.load(io.BytesIO(service.numbers(key, slug, given))) as file:
        expected = {name: file[name] for name in file.files}
    archive = opened(lessons.lesson_zip(service, key, asked))
    found = numbers(archive, slug)
    assert set(found.files) == set(expected)
    assert all(np.array_equal(found[one], expected[one], equal_nan=expected[one].dtype.kind == "f")
               for one in expected)  # fmt: skip
    assert slug not in json.loads(archive.read("settings.json"))["left_out"]
    printed = [name for name in archive.namelist() if name.startswith(f"figures/vitviz-{slug}")]
    assert len(printed) == 2 * service.view(slug).printable
    other = opened(lessons.lesson_zip(service, key, {}))  # with other settings nothing is known
    assert json.loads(other.read("settings.json"))["left_out"][slug] == lessons.ON_REQUEST


def test_a_view_that_does_not_exist_is_left_out_with_the_reason(service, key, monkeypatch):
    monkeypatch.setattr(
        PositionsView, "unsupported", lambda self, subject: "It turns queries and keys instead."
    )
    archive = opened(lessons.lesson_zip(service, key, {}))
    assert "numbers/positions.npz" not in archive.namelist()
    assert json.loads(archive.read("settings.json"))["left_out"] == {
        "positions": "It turns queries and keys instead.",
        "experiment": lessons.ON_REQUEST,
        "trial": lessons.ON_REQUEST,
    }
    assert "It turns queries and keys instead." in archive.read("README.txt").decode()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"rollout.residual": "1e9"}, ValueError),
        ({"rollout.colour": "x"}, ValueError),
        ({"rollout.alone": "9"}, ValueError),
        ({"../x.y": "1"}, KeyError),
        ({"survey.distance": "unknown"}, KeyError),
        ({"survey.rollout": "unknown"}, KeyError),
    ],
)
def test_what_does_not_fit_is_refused(service, key, given, error):
    with pytest.raises(error):
        lessons.lesson_zip(service, key, given)
    with pytest.raises(KeyError):
        lessons.lesson_zip(service, "no such key", {})


def test_a_checkpoints_name_is_safe_as_a_file_name():
    assert lessons.file_name("vitviz-tiny@30") == "vitviz-tiny-30.zip"
    assert lessons.file_name('../a"b\r\nc<img>') == "vitviz-a-b-c-img.zip"


@pytest.mark.parametrize(("name", "written"), [("=cmd()", "'=cmd()"), ("+1", "'+1"), ("vit", "vit")])
def test_a_checkpoints_name_is_no_formula_in_a_table(service, key, name, written):
    trace = replace(service.subject(key).trace, checkpoint=name)
    view = service.view("distance")
    subject = ViewContext(service.checkpoints.inspector("vitviz-tiny"), trace)
    table = view.file(subject, "numbers.csv", view.settings({}, subject.about)).decode()
    assert {line["checkpoint"] for line in csv.DictReader(io.StringIO(table))} == {written}
