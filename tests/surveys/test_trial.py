"""Maps on trial over a set: means of single trials, ranks with ties, boxes, and the long table."""

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
    return small_inspector  # a trial is hundreds of passes


@pytest.fixture(scope="module")
def items():
    return [SourceImage(f"photos/{name}.png", vitviz.sample_image(name)) for name in NAMES]


@pytest.fixture(scope="module")
def measure():
    return FaithfulnessMeasure(METHODS, ("dropped", "black"), Boxes(BOXES))


@pytest.fixture(scope="module")
def found(inspector, items, measure, tmp_path_factory):
    return vitviz.survey(items, inspector, [measure], out=tmp_path_factory.mktemp("out"), part=2)


def test_the_means_are_those_of_the_single_trials(found, inspector, measure):
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
        both = [found.mean(side)[protocol, method, score] for side in ("most", "least")]
        np.testing.assert_allclose(both, mean[place], atol=1e-4)
    assert found.mean("alike")[0] == pytest.approx(np.mean([one["ledger"] for one in alike]), abs=1e-5)
    assert found.mean("alike")[1] == pytest.approx(1)
    gaps = np.asarray(areas)[:, 0, 1] - np.asarray(areas)[:, 0, 0]
    assert found.error("ahead").shape == (2, 4, 4, 3)
    own = found.mean("least")[0, 0] - found.mean("most")[0, 0]
    assert own[1] == pytest.approx(gaps.mean(), abs=1e-4)
    others = found.mean("least")[0, 3] - found.mean("most")[0, 3]
    np.testing.assert_allclose(found.mean("ahead")[0, 0, 3], own - others, atol=1e-9)


def test_boxes_are_moved_onto_the_input(found, inspector, measure):
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
    assert found.moments("energy").count == 2, "a picture without boxes has nothing to say"
    assert found.mean("energy")[0] == pytest.approx(np.mean(expected), abs=1e-4)


def test_the_long_table_has_a_row_for_each_picture_method_and_protocol(found):
    pq = pytest.importorskip("pyarrow.parquet")
    rows = pq.read_table(found.folder / "trial-rows.parquet").to_pylist()
    assert len(rows) == 3 * 4 * 2 and {row["patches_as"] for row in rows} == {"dropped", "black"}
    black = [
        row["most_probability"] for row in rows if row["method"] == "ledger" and row["patches_as"] == "black"
    ]
    assert np.mean(black) == pytest.approx(found.mean("most")[1, 0, 1], abs=1e-6)
    assert math.isnan(next(row for row in rows if row["name"].endswith("rocket.png"))["hit"])
    report = (found.folder / "report.html").read_text()
    assert report.count("Faithfulness") == 2 and "Blob in the centre" in report


def test_without_pyarrow_it_is_csv(found, measure, tmp_path, monkeypatch):
    import sys

    from vitviz.surveys.parts import SurveyFolder
    from vitviz.surveys.report import RowTable

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    long = RowTable(measure, tmp_path)
    for part in SurveyFolder(found.folder, json.loads((found.folder / "survey.json").read_text())).all():
        long.add(part)
    long.close()
    rows = list(csv.DictReader((tmp_path / "trial-rows.csv").open()))
    assert len(rows) == 24 and float(rows[0]["least_logit"]) > 0


class Known:
    """A survey whose pictures' gaps are given: method by picture, the same by every score or each by its
    own.
    """

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


def test_who_cannot_be_told_apart_shares_a_rank():
    """Three maps differ by the same number on every picture; the fourth by noise alone from the third."""
    hard = np.linspace(0, 0.5, 20)  # pictures differ far more than maps do
    noise = 0.01 * np.array([1, -1] * 10)
    gaps = [hard + 0.05, hard + 0.02, hard, hard + noise]
    rows = {
        row["method"]: row for row in ranking_rows(Known(gaps, ("ledger", "chefer", "rollout", "random")))
    }
    assert {name: row["rank"] for name, row in rows.items()} == {
        "ledger": 1,
        "chefer": 2,
        "rollout": 3,
        "random": 3,
    }
    assert [row["beats_chance"] for row in rows.values()] == [True, True, False, False]
    assert rows["ledger"]["gap"] == pytest.approx(0.3)


def test_the_rank_is_by_the_score_that_is_asked_for():
    pictures = np.linspace(0, 0.5, 20)
    kept, probability, logit = ([pictures + far, pictures] for far in (0.0, 0.1, -3.0))
    survey = Known([], ("ledger", "random"), (kept, probability, logit))
    for score, ranks in (("kept", [1, 1]), ("probability", [1, 2]), ("logit", [1, 2])):
        rows = ranking_rows(survey, score=score)
        assert [row["rank"] for row in rows] == ranks
        assert rows[0]["method"] == ("random" if score == "logit" else "ledger")
        assert {row["method"]: row["beats_chance"] for row in rows} == {
            "ledger": score == "probability",
            "random": False,
        }


def test_boxes_are_read_from_json_and_voc(tmp_path):
    (tmp_path / "boxes.json").write_text(
        json.dumps({"a/7.jpg": [[0, 0, 4, 5]], "b/7.jpg": [], "a/8.jpg": [[1, 2, 3, 4]]})
    )
    read = Boxes.load(tmp_path / "boxes.json")
    assert read.of_picture("a/7.jpg") == ((0, 0, 4, 5),) and read.of_picture("other/8.png") == ((1, 2, 3, 4),)
    assert read.of_picture("7.jpg") == (), "two pictures are called so"
    corners = "<xmin>1</xmin><ymin>2</ymin><xmax>10</xmax><ymax>20</ymax>"
    xml = f"<annotation><object><bndbox>{corners}</bndbox></object></annotation>"
    (tmp_path / "voc").mkdir()
    (tmp_path / "voc" / "dog.xml").write_text(xml)
    assert Boxes.load(tmp_path / "voc").of_picture("val/dog.jpg") == ((0, 1, 10, 20),)
    for text in ("[]", "{", '{"a": [[0, 0, 0, 1]]}', '{"a": [[1, 2, 3]]}'):
        (tmp_path / "wrong.json").write_text(text)
        with pytest.raises(VitvizError, match="expected JSON"):
            Boxes.load(tmp_path / "wrong.json")


def test_what_cannot_be_tried_is_said():
    with pytest.raises(VitvizError, match="Given lime; expected methods of ledger"):
        FaithfulnessMeasure(("lime",))
    with pytest.raises(VitvizError, match="Given green; expected methods"):
        FaithfulnessMeasure(protocols=("green",))
    assert FaithfulnessMeasure(("ledger",)).settings != FaithfulnessMeasure(("ledger",), seed=1).settings


@pytest.fixture(scope="module")
def seen(inspector):
    """Two pictures as a measure sees them."""
    return [
        MeasuredImage(inspector, inspector.trace(vitviz.sample_image(name)), label, name)
        for name, label in (("chelsea", 5), ("coffee", None))
    ]


def test_every_picture_has_a_random_map_of_its_own_and_of_the_seed(seen):
    """One map for a whole set would be one place, and its luck the chance of all."""
    measure, again = (FaithfulnessMeasure(("ledger",), boxes=Boxes(BOXES), seed=seed) for seed in (0, 1))
    seeds = {one._seed_of(picture) for one in (measure, again) for picture in seen}
    assert len(seeds) == 4
    for picture in seen:
        found, grid = measure.of(picture), picture.trace.grid
        assert measure._seed_of(replace(picture, name="elsewhere/x.png")) == measure._seed_of(picture)
        numbers = torch.Generator().manual_seed(measure._seed_of(picture))
        drawn = torch.rand(grid.rows, grid.cols, generator=numbers, dtype=torch.float64)
        boxes = measure.boxes.on_input(picture.name, picture.trace)
        assert found["hit"][1] == pointing_hit(drawn, grid, boxes)
        assert found["energy"][1] == pytest.approx(energy_in_boxes(drawn, box_coverage(grid, boxes)))
        first = int(picture.trace.logits.argmax())
        one = saliency.explained(picture.inspector, picture.trace, first)
        own = evaluate_methods(one, ["random"], "dropped", measure._seed_of(picture), SHARES, 1)
        assert found["most"][0, 1, 1] == pytest.approx(own.areas("random")[0], abs=1e-5)
        assert again.of(picture)["most"][0, 1, 1] != found["most"][0, 1, 1]


def test_the_true_class_is_explained_where_that_is_asked_for(seen):
    measure, (labelled, other) = FaithfulnessMeasure(("ledger",), label=True), seen
    passes = saliency.explained(labelled.inspector, labelled.trace, 5)
    own = evaluate_methods(passes, ["ledger"], "dropped", 0, SHARES, 1)
    found = measure.of(labelled)
    for k, score in enumerate(("kept", "probability", "logit")):
        assert found["most"][0, 0, k] == pytest.approx(own.areas("ledger", score)[0], abs=1e-4)
    first = int(labelled.trace.logits.argmax())
    alike = saliency.class_sensitivity(labelled.inspector, labelled.trace, 5, first, ["ledger"])
    assert first != 5 and found["alike"][0] == pytest.approx(alike["ledger"], abs=1e-5)
    assert measure.of(other) == {}, "its label is not known"


def test_saco_is_measured_where_it_is_asked_for(seen):
    picture = seen[1]
    measure = FaithfulnessMeasure(("ledger", "centre"), saco=True)
    found = measure.of(picture)
    passes = saliency.explained(picture.inspector, picture.trace, int(picture.trace.logits.argmax()))
    own = evaluate_methods(passes, ["ledger", "centre"], "dropped", measure._seed_of(picture), SHARES, 1)
    for j, method in enumerate(("ledger", "centre")):
        assert found["saco"][0, j] == pytest.approx(own.curves[method].saco, abs=1e-4)
    assert "saco" not in FaithfulnessMeasure(("ledger",)).of(picture)
