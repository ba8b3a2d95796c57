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
from tests.server.helpers import open_zip, read_numbers
from tests.tiers import sweep
from vitviz.server.api import lessons
from vitviz.views import VIEWS, ViewContext
from vitviz.views.positions import PositionsView
from vitviz.views.printing import is_printable
from vitviz.views.routes import parse_settings

pytestmark = pytest.mark.usefixtures("figures_not_drawn")


@pytest.mark.long
def test_zip_numbers_match_the_trace_with_given_settings(service, key, trace):
    archive = open_zip(
        lessons.lesson_zip(
            service,
            key,
            {"rollout.fusion": "max", "rollout.residual": "0.8", "distance.rows": "renormalised"},
        )
    )
    rollout = read_numbers(archive, "rollout")
    assert np.allclose(
        rollout["rollout"], vitviz.rollout(trace, fusion="max", residual=0.8).numpy(), atol=1e-6
    )
    assert (
        str(rollout["checkpoint"]) == "vitviz-tiny"
        and str(rollout["setting_fusion"]) == "max"
        and str(rollout["setting_residual"]) == "0.8"
    )
    assert np.allclose(
        read_numbers(archive, "distance")["distance"],
        vitviz.attention_distance(trace, renormalise=True).numpy(),
        atol=1e-4,
    )
    assert np.allclose(
        read_numbers(archive, "patches")["patch_embedding"], trace.patch_embedding.numpy(), atol=1e-5
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
            f"README.txt does not mention {name}"
        )


def test_zip_default_token_is_the_central_patch(service, key):
    views = json.loads(open_zip(lessons.lesson_zip(service, key, {})).read("settings.json"))["views"]
    assert views["explorer"]["token"] == views["tour"]["token"] == 7 * 14 + 7
    archive = open_zip(lessons.lesson_zip(service, key, {"explorer.token": "3"}))
    views = json.loads(archive.read("settings.json"))["views"]
    assert (views["explorer"]["token"], views["tour"]["token"]) == (2, 105)


def test_zip_images_match_input_upload_and_overlay(service, key):
    subject = service.subject(key)
    archive = open_zip(
        lessons.lesson_zip(service, key, {"rollout.overlay": "paper", "rollout.smooth": "off"})
    )
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


def test_html_chart_is_self_contained_and_has_the_numbers(service, key):
    page = service.file(key, "distance", "figure.html", {"form": "sorted"}).decode()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page), "the page loads another file"
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    data = json.loads(data)
    part = data["parts"]["cell/distance/chart?form=sorted&rows=plain&difference=off"]
    assert (
        data["value"]["controls"][0]["default"] == "sorted" and data["value"]["checkpoint"] == "vitviz-tiny"
    )
    chart, expected = (
        json.loads(base64.b64decode(part["data"])),
        vitviz.attention_distance(service.subject(key).trace),
    )
    for series, row in zip(chart["series"], expected.sort(dim=1).values, strict=True):
        np.testing.assert_allclose(series["y"], row.numpy(), rtol=1e-4)


def test_csv_has_a_row_for_each_head(service, key):
    lines = list(csv.DictReader(io.StringIO(service.file(key, "distance", "numbers.csv", {}).decode())))
    expected = vitviz.attention_distance(service.subject(key).trace).numpy()
    assert len(lines) == expected.size
    for line in lines:
        assert np.float32(line["distance_px"]) == expected[int(line["layer"]) - 1, int(line["head"]) - 1]
        assert line["checkpoint"] == "vitviz-tiny" and line["rows"] == "plain" and line["pictures"] == "1"


@sweep("alone", [0, 1, 8], quick=[1])
def test_zip_rollout_overlay_uses_page_layer_and_colour_range(service, key, alone):
    subject = service.subject(key)
    archive = open_zip(lessons.lesson_zip(service, key, {"rollout.alone": str(alone)}))
    assert json.loads(archive.read("settings.json"))["views"]["rollout"]["alone"] == alone
    image = np.asarray(Image.open(archive.open("rollout-overlay.png")))
    values = (
        vitviz.analyses.mean_attention(subject.trace)[alone - 1].numpy()
        if alone
        else vitviz.rollout(subject.trace).numpy()
    )
    settings = parse_settings(service.view("rollout"), {}, subject.about)
    expected = vitviz.overlay(
        np.asarray(vitviz.sample_image("coffee")),
        values,
        subject.trace.view.box,
        low=float(values.min()),
        opacity=settings["opacity"],
        colours=settings["colormap"],
    )
    assert (image == expected).all()


def test_zip_contains_files_settings_and_texts_of_every_view(service, key):
    archive = open_zip(lessons.lesson_zip(service, key, {}))
    names, about = set(archive.namelist()), json.loads(archive.read("settings.json"))["views"]
    readme = archive.read("README.txt").decode()
    assert [view.slug for view in VIEWS if view.scope.on_request] == ["trial", "experiment"]
    for view in VIEWS:
        if view.scope.on_request:  # too slow for the zip
            assert not any(view.slug in name for name in names) and lessons.ON_REQUEST in readme
            continue
        files = {f"{view.slug}-{file.name}" for file in view.export.files}
        assert {f"numbers/{view.slug}.npz", *files} <= names
        assert set(about[view.slug]) == {control.name for control in view.controls}
        assert f"{view.title}: {view.words.what}" in readme
        assert archive.read(f"numbers/{view.slug}.npz")[:4] == b"PK\x03\x04"
        for file in view.export.files:
            data, alone = (
                archive.read(f"{view.slug}-{file.name}"),
                service.file(key, view.slug, file.name, {}),
            )
            first, second = (
                re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}", b"", content) for content in (data, alone)
            )  # random ids of Plotly elements
            assert first == second


@pytest.mark.sweep
@pytest.mark.parametrize("slug", ["experiment", "trial"])
def test_slow_views_are_in_zip_once_computed(service, slug, fast_faithfulness):
    key = service.look(service.pictures.sample("rocket"), "vitviz-tiny")
    given = {"experiment": {"kind": "shuffle"}, "trial": {"patches_as": "mean"}}[slug]
    settings = {f"{slug}.{name}": value for name, value in given.items()}
    part = {"experiment": ("point", {"step": "1"}), "trial": ("tried", {"method": "ledger"})}[slug]
    service.item(key, slug, part[0], given | part[1])  # partial results do not count
    before = open_zip(lessons.lesson_zip(service, key, settings))
    assert json.loads(before.read("settings.json"))["left_out"][slug] == lessons.ON_REQUEST
    with np.load(io.BytesIO(service.numbers(key, slug, given))) as file:
        expected = {name: file[name] for name in file.files}
    archive = open_zip(lessons.lesson_zip(service, key, settings))
    arrays = read_numbers(archive, slug)
    assert set(arrays.files) == set(expected)
    assert all(np.array_equal(arrays[name], expected[name], equal_nan=expected[name].dtype.kind == "f")
               for name in expected)  # fmt: skip
    assert slug not in json.loads(archive.read("settings.json"))["left_out"]
    printed = [name for name in archive.namelist() if name.startswith(f"figures/vitviz-{slug}")]
    assert len(printed) == 2 * is_printable(service.view(slug))
    other = open_zip(lessons.lesson_zip(service, key, {}))  # no results for other settings
    assert json.loads(other.read("settings.json"))["left_out"][slug] == lessons.ON_REQUEST


def test_unsupported_view_is_left_out_with_reason(service, key, monkeypatch):
    monkeypatch.setattr(
        PositionsView, "unsupported", lambda self, subject: "It turns queries and keys instead."
    )
    archive = open_zip(lessons.lesson_zip(service, key, {}))
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
def test_invalid_zip_settings_raise(service, key, given, error):
    with pytest.raises(error):
        lessons.lesson_zip(service, key, given)
    with pytest.raises(KeyError):
        lessons.lesson_zip(service, "no such key", {})


def test_checkpoint_name_is_sanitized_in_file_name():
    assert lessons.file_name("vitviz-tiny@30") == "vitviz-tiny-30.zip"
    assert lessons.file_name('../a"b\r\nc<img>') == "vitviz-a-b-c-img.zip"


@pytest.mark.parametrize(("name", "written"), [("=cmd()", "'=cmd()"), ("+1", "'+1"), ("vit", "vit")])
def test_checkpoint_name_is_escaped_in_csv(service, key, name, written):
    trace = replace(service.subject(key).trace, checkpoint=name)
    view = service.view("distance")
    subject = ViewContext(service.checkpoints.inspector("vitviz-tiny"), trace)
    made = next(file for file in view.export.files if file.name == "numbers.csv")
    table = made.make(view, subject, parse_settings(view, {}, subject.about), None).decode()
    assert {line["checkpoint"] for line in csv.DictReader(io.StringIO(table))} == {written}
