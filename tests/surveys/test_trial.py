"""Faithfulness over a set: means of single evaluations, ranks with ties, boxes, and the long table."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import vitviz
from vitviz.analyses.faithfulness.evaluation import evaluate_methods
from vitviz.analyses.faithfulness.pointing import box_coverage, energy_in_boxes, pointing_hit
from vitviz.analyses.faithfulness.ranking import ranking_rows
from vitviz.engine.studies import saliency
from vitviz.errors import VitvizError
from vitviz.surveys.labels import Boxes
from vitviz.surveys.measure import MeasuredImage
from vitviz.surveys.measures.trial import SHARES, FaithfulnessMeasure
from vitviz.surveys.moments import Moments
from vitviz.surveys.sources import SourceImage

NAMES = ("chelsea", "coffee", "rocket")
METHODS = ("ledger", "rollout", "centre")
BOXES = {name: [[10, 20, 200, 150]] for name in NAMES[:2]}


@pytest.fixture(scope="module")
def inspector(small_inspector):
    return small_inspector  # an evaluation is hundreds of passes


@pytest.fixture(scope="module")
def items():
    return [SourceImage(f"photos/{name}.png", vitviz.sample_image(name)) for name in NAMES]


@pytest.fixture(scope="module")
def measure():
    return FaithfulnessMeasure(METHODS, ("dropped", "black"), Boxes(BOXES))


@pytest.fixture(scope="module")
def survey_result(inspector, items, measure, tmp_path_factory):
    return vitviz.survey(items, inspector, [measure], out=tmp_path_factory.mktemp("out"), part=2)


def test_means_match_single_evaluations(survey_result, inspector, measure):
    areas, alike = [], []
    for name in NAMES:
        trace = inspector.trace(vitviz.sample_image(name))
        first, second = trace.logits.topk(2).indices.tolist()
        one = [
            evaluate_methods(
                saliency.explained(inspector, trace, first, protocol),
                ["ledger", "centre"],
                protocol,
                0,
                SHARES,
                1,
            )
            for protocol in ("dropped", "black")
        ]
        areas.append([one[0].areas("ledger"), one[1].areas("ledger"), one[1].areas("ledger", "logit")])
        alike.append(saliency.class_sensitivity(inspector, trace, first, second, ["ledger", "rollout"]))
    mean = np.mean(areas, axis=0)
    for place, (protocol, method, score) in enumerate([(0, 0, 1), (1, 0, 1), (1, 0, 2)]):
        both = [survey_result.mean(side)[protocol, method, score] for side in ("most", "least")]
        np.testing.assert_allclose(both, mean[place], atol=1e-4)
    assert survey_result.mean("alike")[0] == pytest.approx(
        np.mean([one["ledger"] for one in alike]), abs=1e-5
    )
    assert survey_result.mean("alike")[1] == pytest.approx(1)
    gaps = np.asarray(areas)[:, 0, 1] - np.asarray(areas)[:, 0, 0]
    assert survey_result.error("ahead").shape == (2, 4, 4, 3)
    own = survey_result.mean("least")[0, 0] - survey_result.mean("most")[0, 0]
    assert own[1] == pytest.approx(gaps.mean(), abs=1e-4)
    others = survey_result.mean("least")[0, 3] - survey_result.mean("most")[0, 3]
    np.testing.assert_allclose(survey_result.mean("ahead")[0, 0, 3], own - others, atol=1e-9)


def test_boxes_are_transformed_to_model_input(survey_result, inspector, measure):
    expected = []
    for name in NAMES[:2]:
        trace = inspector.trace(vitviz.sample_image(name))
        left, top, right, bottom = trace.view.box
        x = [(value - left) / (right - left) * trace.grid.pixels[0] for value in (10, 200)]
        y = [(value - top) / (bottom - top) * trace.grid.pixels[0] for value in (20, 150)]
        box = (max(x[0], 0), max(y[0], 0), x[1], y[1])
        expected.append(
            energy_in_boxes(
                saliency.saliency(inspector, trace, int(trace.logits.argmax()), "ledger").map,
                box_coverage(trace.grid, [box]),
            )
        )
    assert survey_result.moments("energy").count == 2, "images without boxes do not count"
    assert survey_result.mean("energy")[0] == pytest.approx(np.mean(expected), abs=1e-4)


def test_long_table_has_row_per_image_method_and_protocol(survey_result):
    pq = pytest.importorskip("pyarrow.parquet")
    rows = pq.read_table(survey_result.folder / "trial-rows.parquet").to_pylist()
    assert len(rows) == 3 * 4 * 2 and {row["patches_as"] for row in rows} == {"dropped", "black"}
    black = [
        row["most_probability"] for row in rows if row["method"] == "ledger" and row["patches_as"] == "black"
    ]
    assert np.mean(black) == pytest.approx(survey_result.mean("most")[1, 0, 1], abs=1e-6)
    assert math.isnan(next(row for row in rows if row["name"].endswith("rocket.png"))["hit"])
    report = (survey_result.folder / "report.html").read_text()
    assert report.count("Faithfulness") == 2 and "Blob in the centre" in report


def test_long_table_is_csv_without_pyarrow(survey_result, measure, tmp_path, monkeypatch):
    import sys

    from vitviz.surveys.parts import SurveyFolder
    from vitviz.surveys.report import RowTable

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    long = RowTable(measure, tmp_path)
    for part in SurveyFolder(
        survey_result.folder, json.loads((survey_result.folder / "survey.json").read_text())
    ).all():
        long.add(part)
    long.close()
    rows = list(csv.DictReader((tmp_path / "trial-rows.csv").open()))
    assert len(rows) == 24 and float(rows[0]["least_logit"]) > 0


class SurveyOfGaps:
    """A survey of images with known gaps (method by image), equal for all scores or given per score."""

    head_type, checkpoint = "softmax", "known"

    def __init__(self, gaps, methods, scores=3):
        several = [gaps] * scores if isinstance(scores, int) else scores
        gaps = np.stack([np.asarray(one, dtype=float).T[:, None] for one in several], axis=-1)
        ahead = gaps[:, :, :, None] - gaps[:, :, None]  # picture protocol method other score
        self.measures = (FaithfulnessMeasure(methods),)
        self.sums = {"trial.ahead": Moments.from_values(ahead), "trial.most": Moments.from_values(0 * gaps),
                     "trial.least": Moments.from_values(gaps)}  # fmt: skip

    def moments(self, name):
        return self.sums[name]


def test_indistinguishable_methods_share_a_rank():
    """Three maps differ by a constant on every image. The fourth differs from the third by noise only."""
    hard = np.linspace(0, 0.5, 20)  # images differ far more than maps do
    noise = 0.01 * np.array([1, -1] * 10)
    gaps = [hard + 0.05, hard + 0.02, hard, hard + noise]
    rows = {
        row["method"]: row
        for row in ranking_rows(SurveyOfGaps(gaps, ("ledger", "chefer", "rollout", "random")))
    }
    assert {name: row["rank"] for name, row in rows.items()} == {
        "ledger": 1,
        "chefer": 2,
        "rollout": 3,
        "random": 3,
    }
    assert [row["beats_chance"] for row in rows.values()] == [True, True, False, False]
    assert rows["ledger"]["gap"] == pytest.approx(0.3)


def test_ranking_uses_requested_score():
    pictures = np.linspace(0, 0.5, 20)
    kept, probability, logit = ([pictures + far, pictures] for far in (0.0, 0.1, -3.0))
    survey = SurveyOfGaps([], ("ledger", "random"), (kept, probability, logit))
    for score, ranks in (("kept", [1, 1]), ("probability", [1, 2]), ("logit", [1, 2])):
        rows = ranking_rows(survey, score=score)
        assert [row["rank"] for row in rows] == ranks
        assert rows[0]["method"] == ("random" if score == "logit" else "ledger")
        assert {row["method"]: row["beats_chance"] for row in rows} == {
            "ledger": score == "probability",
            "random": False,
        }


def test_boxes_load_from_json_and_voc(tmp_path):
    (tmp_path / "boxes.json").write_text(
        json.dumps({"a/7.jpg": [[0, 0, 4, 5]], "b/7.jpg": [], "a/8.jpg": [[1, 2, 3, 4]]})
    )
    read = Boxes.load(tmp_path / "boxes.json")
    assert read.of_picture("a/7.jpg") == ((0, 0, 4, 5),) and read.of_picture("other/8.png") == ((1, 2, 3, 4),)
    assert read.of_picture("7.jpg") == (), "two images have this name"
    corners = "<xmin>1</xmin><ymin>2</ymin><xmax>10</xmax><ymax>20</ymax>"
    xml = f"<annotation><object><bndbox>{corners}</bndbox></object></annotation>"
    (tmp_path / "voc").mkdir()
    (tmp_path / "voc" / "dog.xml").write_text(xml)
    assert Boxes.load(tmp_path / "voc").of_picture("val/dog.jpg") == ((0, 1, 10, 20),)
    for text in ("[]", "{", '{"a": [[0, 0, 0, 1]]}', '{"a": [[1, 2, 3]]}'):
        (tmp_path / "wrong.json").write_text(text)
        with pytest.raises(VitvizError, match="expected JSON"):
            Boxes.load(tmp_path / "wrong.json")


def test_unknown_methods_and_protocols_raise():
    with pytest.raises(VitvizError, match="lime is not valid; expected methods of ledger"):
        FaithfulnessMeasure(("lime",))
    with pytest.raises(VitvizError, match="green is not valid; expected methods"):
        FaithfulnessMeasure(protocols=("green",))
    assert FaithfulnessMeasure(("ledger",)).settings != FaithfulnessMeasure(("ledger",), seed=1).settings


@pytest.fixture(scope="module")
def measured_images(inspector):
    """Return two images as a measure receives them."""
    return [
        MeasuredImage(inspector, inspector.trace(vitviz.sample_image(name)), label, name)
        for name, label in (("chelsea", 5), ("coffee", None))
    ]


def test_random_map_depends_on_image_and_seed(measured_images):
    """A single map for the whole set would make the random baseline depend on one draw."""
    measure, again = (FaithfulnessMeasure(("ledger",), boxes=Boxes(BOXES), seed=seed) for seed in (0, 1))
    seeds = {one._seed_of(picture) for one in (measure, again) for picture in measured_images}
    assert len(seeds) == 4
    for picture in measured_images:
        survey_result, grid = measure.of(picture), picture.trace.grid
        assert measure._seed_of(replace(picture, name="elsewhere/x.png")) == measure._seed_of(picture)
        numbers = torch.Generator().manual_seed(measure._seed_of(picture))
        drawn = torch.rand(grid.rows, grid.cols, generator=numbers, dtype=torch.float64)
        boxes = measure.boxes.on_input(picture.name, picture.trace)
        assert survey_result["hit"][1] == pointing_hit(drawn, grid, boxes)
        assert survey_result["energy"][1] == pytest.approx(energy_in_boxes(drawn, box_coverage(grid, boxes)))
        first = int(picture.trace.logits.argmax())
        one = saliency.explained(picture.inspector, picture.trace, first)
        own = evaluate_methods(one, ["random"], "dropped", measure._seed_of(picture), SHARES, 1)
        assert survey_result["most"][0, 1, 1] == pytest.approx(own.areas("random")[0], abs=1e-5)
        assert again.of(picture)["most"][0, 1, 1] != survey_result["most"][0, 1, 1]


def test_label_option_explains_true_class(measured_images):
    measure, (labelled, other) = FaithfulnessMeasure(("ledger",), label=True), measured_images
    passes = saliency.explained(labelled.inspector, labelled.trace, 5)
    own = evaluate_methods(passes, ["ledger"], "dropped", 0, SHARES, 1)
    survey_result = measure.of(labelled)
    for k, score in enumerate(("kept", "probability", "logit")):
        assert survey_result["most"][0, 0, k] == pytest.approx(own.areas("ledger", score)[0], abs=1e-4)
    first = int(labelled.trace.logits.argmax())
    alike = saliency.class_sensitivity(labelled.inspector, labelled.trace, 5, first, ["ledger"])
    assert first != 5 and survey_result["alike"][0] == pytest.approx(alike["ledger"], abs=1e-5)
    assert measure.of(other) == {}, "its label is unknown"


def test_saco_option_measures_saco(measured_images):
    picture = measured_images[1]
    measure = FaithfulnessMeasure(("ledger", "centre"), saco=True)
    survey_result = measure.of(picture)
    passes = saliency.explained(picture.inspector, picture.trace, int(picture.trace.logits.argmax()))
    own = evaluate_methods(passes, ["ledger", "centre"], "dropped", measure._seed_of(picture), SHARES, 1)
    for j, method in enumerate(("ledger", "centre")):
        assert survey_result["saco"][0, j] == pytest.approx(own.curves[method].saco, abs=1e-4)
    assert "saco" not in FaithfulnessMeasure(("ledger",)).of(picture)
