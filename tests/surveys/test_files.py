"""Files of a survey, against results of single images."""

import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import vitviz
from tests.surveys.conftest import noise


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Return a folder of classes with one damaged image and one image with a hostile name."""
    root = tmp_path_factory.mktemp("set")
    random = np.random.default_rng(0)
    for number, label in enumerate(("goldfish", "bullfrog", "trilobite")):
        (root / label).mkdir()
        for each in range(3):
            noise(random, 40 + number, 50).save(root / label / f"{each}.png")
    vitviz.sample_image("chelsea").save(root / "bullfrog" / "=<b>&.jpg")
    (root / "goldfish" / "damaged.jpg").write_bytes(b"\xff\xd8\xff nothing")
    return root


@pytest.fixture(scope="module")
def survey_and_folder(inspector, classes, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return vitviz.survey(classes, inspector, ["distance", "accuracy", "lens"], out=out, part=4, batch=3), out


def traces_by_name(inspector, classes):
    traces = {
        path.relative_to(classes).as_posix(): inspector.trace(path)
        for path in sorted(classes.rglob("*.*"))
        if "damaged" not in path.name
    }
    assert len(traces) == 10
    return traces


def test_averages_match_single_images(survey_and_folder, inspector, classes):
    survey, out = survey_and_folder
    traces = traces_by_name(inspector, classes)
    distances = np.stack([vitviz.attention_distance(trace).numpy() for trace in traces.values()]).astype(
        np.float64
    )
    with np.load(out / "averages.npz") as file:
        np.testing.assert_allclose(file["distance.distance.mean"], distances.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(
            file["distance.distance.standard_error"], distances.std(axis=0, ddof=1) / np.sqrt(10), rtol=1e-3
        )
        right = [
            inspector.labels[int(trace.logits.argmax())] == name.split("/")[0]
            for name, trace in traces.items()
        ]
        assert (
            float(file["accuracy.first.mean"]) == np.mean(right)
            and int(file["accuracy.first.pictures"]) == 10
        )
        assert json.loads(str(file["about"]))["checkpoint_sha256"] == inspector.checkpoint.identity.digest
    assert survey.images == 10 and [str(one)[:21] for one in survey.skipped] == ["goldfish/damaged.jpg:"]


def test_table_has_one_row_per_image(survey_and_folder, inspector, classes):
    _, out = survey_and_folder
    traces = traces_by_name(inspector, classes)
    if (out / "pictures.parquet").exists():
        rows = pytest.importorskip("pyarrow.parquet").read_table(out / "pictures.parquet").to_pylist()
        assert {row["name"] for row in rows} == set(traces) and not (out / "pictures.csv").exists()
        numbers = {row["name"]: np.reshape(row["distance.distance"], (8, 3)) for row in rows}
    else:
        rows = list(csv.DictReader((out / "pictures.csv").open(encoding="utf-8")))
        numbers = {
            row["name"]: [
                [float(row[f"distance.distance.{layer}.{head}"]) for head in range(3)] for layer in range(8)
            ]
            for row in rows
        }
    assert len(rows) == 10
    for name, trace in traces.items():
        row = next(row for row in rows if row["name"] == name)
        np.testing.assert_allclose(numbers[name], vitviz.attention_distance(trace).numpy(), rtol=1e-4)
        label, probability = trace.top(1)[0]
        assert row["answer_name"] == label and float(row["probability"]) == pytest.approx(
            probability, rel=1e-4
        )
        assert row["label_given"] == name.split("/")[0] == inspector.labels[int(row["label"])]


def test_table_is_csv_without_pyarrow(inspector, classes, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    survey = vitviz.survey(classes / "trilobite", inspector, ["entropy"], out=tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "pictures.csv").open(encoding="utf-8")))
    column = [float(row["entropy.entropy.7.2"]) for row in rows]
    assert len(rows) == 3 and np.mean(column) == pytest.approx(survey.mean("entropy")[7, 2], rel=1e-6)


class Reader(HTMLParser):
    """Collect all tags, addresses and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [
            value for name, value in attributes if name in ("src", "href", "xlink:href", "action")
        ]

    def handle_data(self, data):
        self.text += data


def test_report_works_offline_and_is_complete(survey_and_folder, inspector):
    survey, out = survey_and_folder
    text = (out / "report.html").read_text(encoding="utf-8")
    page = Reader(text)
    outside = [
        one for one in page.addresses if not one.startswith("#")
    ]  # dot shapes are defined in the page itself
    assert not outside and not {"script", "link", "img", "iframe", "object", "b"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?:", text)
    assert page.tags.count("svg") == 4 and page.tags.count("title") == 1 + 2 * 24 + 2 * 9
    for said in (
        "10 images",
        "1 could not be read",
        inspector.checkpoint.identity.digest,
        "=<b>&.jpg",
        "Most confident errors",
        "damaged.jpg",
        "Confusions",
    ):
        assert said in page.text, said
    assert f"{survey.mean('distance')[0, 0]:.4g}" in page.text, "a dot shows its value"


def test_confusions_and_surest_errors_match_single_images(survey_and_folder, inspector, classes):
    survey, _ = survey_and_folder
    wrong = []
    for name, trace in traces_by_name(inspector, classes).items():
        (label, probability), true = trace.top(1)[0], name.split("/")[0]
        if label != true:
            wrong.append((probability, name, true, label))
    assert wrong, "no prediction is wrong on random pixels"
    assert [row.name for row in survey.mistakes.surest] == [
        name for _, name, *_ in sorted(wrong, reverse=True)
    ]
    counted = {
        (inspector.labels[true], inspector.labels[answer]): count
        for (true, answer), count in survey.mistakes.confusions.items()
    }
    expected = {}
    for *_, true, label in wrong:
        expected[true, label] = expected.get((true, label), 0) + 1
    assert counted == expected


def test_spreadsheet_formulas_are_escaped():
    from vitviz.surveys.report import escape_formula

    assert (
        escape_formula("=1+1") == "'=1+1"
        and escape_formula("a=1") == "a=1"
        and escape_formula("") == ""
        and escape_formula(-1) == -1
    )
