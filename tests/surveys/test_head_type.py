"""Surveys of multi-label, value and single-output heads, and of files without a head type."""

import csv
import json
from functools import cache

import numpy as np
import pytest

import vitviz
from tests.engine.small_models import small_vit
from tests.surveys.conftest import noise
from vitviz.analyses.faithfulness.ranking import ranking_rows, ranking_rows_all_scores
from vitviz.errors import VitvizError

model_of = cache(lambda outputs: small_vit(num_classes=outputs))


def inspector_with(outputs, head_type):
    labels = [f"label {number}" for number in range(outputs)]
    asked = {"mean": 0.5, "std": 0.5, "device": "cpu", "name": "small", "labels": labels}
    return vitviz.Inspector.of(model_of(outputs), **asked, head_type=head_type)


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    return [noise(random, 32, 32) for _ in range(4)]


@pytest.fixture(scope="module")
def logits(images):
    return {
        count: np.array(
            [inspector_with(count, "value").trace(one).logits.double().tolist() for one in images]
        )
        for count in (1, 3)
    }


def read_table(folder):
    file = folder / "pictures.csv"
    if file.is_file():
        return list(csv.DictReader(file.open(encoding="utf-8")))
    parquet = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(folder / "pictures.parquet").to_pylist()


def test_value_heads_write_values_and_no_answer(images, logits, tmp_path):
    for count in (1, 3):
        folder = tmp_path / str(count)
        found = vitviz.survey(images, inspector_with(count, "value"), out=folder)
        names = ["value"] if count == 1 else [f"value.{number}" for number in range(count)]
        rows = read_table(folder)
        written = np.array([[float(row[name]) for name in names] for row in rows])
        np.testing.assert_allclose(written, logits[count], atol=1e-5)
        assert all(row["answer"] in (None, "") and row["probability"] in (None, "") for row in rows)
        shown = [value for _, _, value in found.answers]
        np.testing.assert_allclose(shown, logits[count].max(axis=1), atol=1e-5)
        assert json.loads((folder / "summary.json").read_text())["head_type"] == "value"


def test_faithfulness_of_value_head_ranks_by_logit(images):
    found = vitviz.survey(images[:2], inspector_with(1, "value"), ["trial"])
    rows = ranking_rows(found)
    assert str(rows) == str(ranking_rows(found, score="logit")) and all(
        np.isfinite(row["gap"]) for row in rows
    )
    assert {"gap_logit"} <= {*ranking_rows_all_scores(found)[0]} and np.isnan(rows[0]["alike"])
    with pytest.raises(VitvizError, match="gives values"):
        ranking_rows(found, score="kept")


def test_single_sigmoid_output_predicts_no_or_yes(images, logits):
    yes = 1 / (1 + np.exp(-logits[1][:, 0]))
    truths = ["label 0", "not label 0", 1, 0]
    true = np.array([1, 0, 1, 0])
    labelled = list(zip(images, truths, strict=True))
    found = vitviz.survey(labelled, inspector_with(1, "sigmoid"), ["accuracy", "lens"])
    answers = (yes >= 0.5).astype(int)
    assert [answer for _, answer, _ in found.answers] == answers.tolist()
    probability = np.where(answers == 1, yes, 1 - yes)
    np.testing.assert_allclose([one for *_, one in found.answers], probability, atol=1e-6)
    loss = -np.log(np.where(true == 1, yes, 1 - yes))
    np.testing.assert_allclose(found.mean("loss"), loss.mean(), rtol=1e-5)
    assert found.mean("first") == (answers == true).mean() == found.mistakes.right / 4
    assert found.mean("agrees")[-1] == 1 and found.label_of(0) == "not label 0"


def test_multilabel_survey_has_no_single_label_loss(images):
    labelled = [(picture, 1) for picture in images]
    found = vitviz.survey(labelled, inspector_with(3, "sigmoid"), ["accuracy", "ledger"])
    assert np.isnan(found.mean("loss")) and "accuracy.loss" in found.refused
    traces = [inspector_with(3, "sigmoid").trace(picture) for picture in images]
    largest = [trace.logits.max().item() for trace in traces]
    assert found.mean("ledger.answer") == pytest.approx(np.mean(largest), abs=1e-4)


def test_survey_without_head_type_does_not_resume_for_sigmoid(images, tmp_path):
    for head_type in ("sigmoid", "softmax"):
        folder = tmp_path / head_type
        vitviz.survey(images, inspector_with(3, head_type), out=folder)
        manifest = folder / "survey.json"
        settings = json.loads(manifest.read_text())
        assert settings.pop("head_type", "softmax") == head_type
        manifest.write_text(json.dumps(settings))
    vitviz.survey(images, inspector_with(3, "softmax"), out=tmp_path / "softmax")
    with pytest.raises(VitvizError, match="the probabilities in its files are those of a softmax and wrong"):
        vitviz.survey(images, inspector_with(3, "sigmoid"), out=tmp_path / "sigmoid")
