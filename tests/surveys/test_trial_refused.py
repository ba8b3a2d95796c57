"""Methods that do not apply to every image of a set have no rank, and every report states it."""

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
def images():
    return [
        SourceImage(f"photos/{name}.png", vitviz.sample_image(name))
        for name in ("chelsea", "coffee", "rocket")
    ]


def test_method_inapplicable_to_one_image_is_unranked_and_reported(images, inspector, monkeypatch, tmp_path):
    make_inapplicable(monkeypatch, "chefer", inspector.trace(vitviz.sample_image("rocket")))
    measure, found = FaithfulnessMeasure(("ledger", "chefer")), []
    found.append(vitviz.survey(images, inspector, [measure]))
    asked = {"out": tmp_path, "part": 2}
    vitviz.survey(images, inspector, [measure], **asked, progress=lambda done, _: done < 3)
    assert len(list((tmp_path / "parts").iterdir())) == 1, "the survey ended after its first part"
    found.append(vitviz.survey(images, inspector, [measure], **asked))
    found.append(vitviz.survey(images, inspector, [measure], **asked))  # from parts only
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


def test_method_without_map_of_second_class_stays_ranked(images, inspector, trace, monkeypatch):
    make_inapplicable(monkeypatch, "chefer", trace, trace.logits.topk(2).indices[1].item())
    found = vitviz.survey(images, inspector, [FaithfulnessMeasure(("ledger", "chefer"))])
    rows = {row["method"]: row for row in ranking_rows(found)}
    assert rows["chefer"]["rank"] >= 1 and refused_methods(found) == {}
    assert math.isnan(rows["chefer"]["alike"]) and not math.isnan(rows["ledger"]["alike"])
    (text,) = refusal_texts(found)
    assert "Chefer et al. 2021 is not compared between two classes: for 1 of 3 images" in text
    assert text.endswith(f"photos/coffee.png: {REASON}")
