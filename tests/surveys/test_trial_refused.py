"""A method that does not apply to every picture of a set: it has no rank, and that is said everywhere."""

import json
import math

import pytest

import vitviz
from tests.inapplicable_method import REASON, make_inapplicable
from vitviz.analyses.faithfulness.ranking import ranking_rows, refusal_texts, refused_methods
from vitviz.surveys.measures.trial import FaithfulnessMeasure
from vitviz.surveys.rows import Refusal
from vitviz.surveys.sources import SourceImage


@pytest.fixture(scope="module")
def inspector(small_inspector):
    return small_inspector


@pytest.fixture(scope="module")
def trace(small_trace):
    return small_trace


@pytest.fixture(scope="module")
def pictures():
    return [
        SourceImage(f"photos/{name}.png", vitviz.sample_image(name))
        for name in ("chelsea", "coffee", "rocket")
    ]


def test_a_method_that_one_picture_refuses_has_no_rank_and_that_is_said(
    pictures, inspector, monkeypatch, tmp_path
):
    make_inapplicable(monkeypatch, "chefer", inspector.trace(vitviz.sample_image("rocket")))
    measure, found = FaithfulnessMeasure(("ledger", "chefer")), []
    found.append(vitviz.survey(pictures, inspector, [measure]))
    asked = {"out": tmp_path, "part": 2}
    vitviz.survey(pictures, inspector, [measure], **asked, progress=lambda done, _: done < 3)
    assert len(list((tmp_path / "parts").iterdir())) == 1, "it was ended after its first part"
    found.append(vitviz.survey(pictures, inspector, [measure], **asked))
    found.append(vitviz.survey(pictures, inspector, [measure], **asked))  # of parts alone
    for one in found:
        assert sorted(row["method"] for row in ranking_rows(one)) == ["ledger", "random"]
        assert refused_methods(one) == {"chefer": Refusal(1, "photos/rocket.png", REASON)}
        assert refusal_texts(one) == [
            "Chefer et al. 2021 is not ranked: it does not apply to 1 of 3 images. The first is"
            f" photos/rocket.png: {REASON}"
        ]
    assert "Chefer et al. 2021 is not ranked" in (tmp_path / "report.html").read_text()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["refused"] == {
        "trial.chefer": {"pictures": 1, "name": "photos/rocket.png", "reason": REASON}
    }


def test_a_second_class_that_has_no_map_ends_no_survey(pictures, inspector, trace, monkeypatch):
    make_inapplicable(monkeypatch, "chefer", trace, trace.logits.topk(2).indices[1].item())
    found = vitviz.survey(pictures, inspector, [FaithfulnessMeasure(("ledger", "chefer"))])
    rows = {row["method"]: row for row in ranking_rows(found)}
    assert rows["chefer"]["rank"] >= 1 and refused_methods(found) == {}
    assert math.isnan(rows["chefer"]["alike"]) and not math.isnan(rows["ledger"]["alike"])
    (said,) = refusal_texts(found)
    assert "Chefer et al. 2021 is not compared between two classes: for 1 of 3 images" in said
    assert said.endswith(f"photos/coffee.png: {REASON}")
