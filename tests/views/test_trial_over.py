"""Faithfulness view over a set of images: numbers of the survey, and JSON without NaN."""

import csv
import io
import json
import math

import numpy as np
import pytest

import vitviz
from tests.inapplicable_method import REASON, make_inapplicable
from vitviz.analyses.faithfulness.ranking import ranking_rows, verdict_text_over_images
from vitviz.analyses.protocol import TITLES
from vitviz.errors import Unknown, WrongSetting
from vitviz.export.standalone_html import drawn_items
from vitviz.surveys.measures.trial import FaithfulnessMeasure
from vitviz.views import ViewContext
from vitviz.views.base import find_item
from vitviz.views.routes import image_set_setting, parse_settings
from vitviz.views.trial import FaithfulnessView

VIEW, METHODS = FaithfulnessView(), ("ledger", "rollout", "centre")
MEASURES = [FaithfulnessMeasure(METHODS, ("mean", "black")), "distance"]


@pytest.fixture(scope="module")
def inspector(small_inspector):
    return small_inspector  # a trial is hundreds of passes


@pytest.fixture(scope="module")
def trace(small_trace):
    return small_trace


@pytest.fixture(scope="module")
def subject(inspector):
    pictures = [vitviz.sample_image(name) for name in ("chelsea", "coffee", "rocket")]
    return ViewContext(inspector, survey=vitviz.survey(pictures, inspector, MEASURES))


def table(subject, settings) -> bytes:
    (file,) = VIEW.export.files
    return file.make(VIEW, subject, settings, None)


def asked(subject, **given):
    settings = parse_settings(VIEW, given, subject.about)
    item = VIEW.item(subject, "standing", settings)
    return json.loads(find_item(VIEW, "standing").checked(item, subject.about).tobytes(), parse_constant=int)


@pytest.mark.parametrize("score", ["probability", "kept", "logit"])
def test_rows_match_survey_ranking(subject, score):
    for place, protocol in enumerate(("mean", "black")):
        told = asked(subject, patches_as=protocol, score=score)
        expected = ranking_rows(subject.survey, place, score)
        assert told["patches_as"] == protocol and math.isnan(expected[at(expected, "random")]["alike"])
        expected[at(expected, "random")]["alike"] = None  # JSON knows no NaN
        assert told["rows"] == expected
    assert told["pictures"] == VIEW.summary(subject)["pictures"] == 3 and len(told["rows"]) == 4
    assert told["verdict"] == vars_of(verdict_text_over_images(told["rows"], 3))


def at(rows, method):
    return next(i for i, row in enumerate(rows) if row["method"] == method)


def vars_of(sentence):
    from vitviz.traces.localized_text import text_to_json

    return json.loads(json.dumps(text_to_json(sentence)))


def test_what_was_not_tried_is_told_as_what_was(subject):
    assert asked(subject, patches_as="dropped")["patches_as"] == "mean"


def test_one_picture_has_no_error_and_no_order(inspector):
    one = ViewContext(inspector, survey=vitviz.survey([vitviz.sample_image("coffee")], inspector, MEASURES))
    told = asked(one)
    assert {row["most_error"] for row in told["rows"]} == {None} and told["verdict"]["text"].startswith("One")
    assert {row["rank"] for row in told["rows"]} == {1} and not any(r["beats_chance"] for r in told["rows"])


def test_export_matches_ranking_for_every_score(subject):
    settings = parse_settings(VIEW, {"patches_as": "black", "score": "logit"}, subject.about)
    arrays = VIEW.numbers(subject, settings)
    rows = list(csv.DictReader(io.StringIO(table(subject, settings).decode())))
    names, scores = arrays["methods"].tolist(), arrays["scores"].tolist()
    assert [row["method"] for row in rows] == names and rows[0]["title"] == TITLES[names[0]]
    for k, score in enumerate(scores):
        for row in ranking_rows(subject.survey, 1, score):
            at = names.index(row["method"])
            for name in ("rank", "most", "most_error", "least", "gap", "ahead", "ahead_error"):
                assert arrays[name][at, k] == row[name] == pytest.approx(float(rows[at][f"{name}_{score}"]))
            assert arrays["alike"][at] == pytest.approx(row["alike"], nan_ok=True)
    assert str(arrays["patches_as"]) == "black" and int(arrays["pictures"]) == 3
    for name in VIEW.export.arrays:
        assert np.ndim(arrays[name]) == len(VIEW.export.arrays[name].split())


def test_set_and_image_have_separate_items(inspector, subject):
    picture = ViewContext(inspector, inspector.trace(vitviz.sample_image("coffee")))
    with pytest.raises(Unknown, match="for one image only"):
        VIEW.item(subject, "classes", parse_settings(VIEW, {}, subject.about))
    with pytest.raises(Unknown, match="for image sets only"):
        VIEW.item(picture, "standing", parse_settings(VIEW, {}, picture.about))
    assert [item.name for item in drawn_items(VIEW, subject, {})] == ["standing", "chart"]
    assert "standing" not in [item.name for item in drawn_items(VIEW, picture, {})]
    assert VIEW.unsupported(subject) is None
    other = ViewContext(inspector, survey=vitviz.survey([vitviz.sample_image("coffee")], inspector))
    assert "no faithfulness test" in VIEW.unsupported(other)


def row(method, rank, beats):
    return {"method": method, "rank": rank, "beats_chance": beats}


def test_verdict_lists_methods_tied_with_the_first():
    rows = [row("centre", 1, True), row("ledger", 1, True), row("chefer", 2, True), row("random", 4, False)]
    assert verdict_text_over_images(rows, 40) == (
        "Over 40 images, Blob in the centre ranks first, statistically tied with Logit attribution."
        " 2 of 2 methods beat random maps."
    )
    alone = verdict_text_over_images([rows[1], *rows[2:]], 40)
    assert alone.startswith("Over 40 images, Logit attribution ranks first.")
    assert alone.endswith("2 of 2 methods beat random maps.")
    assert verdict_text_over_images([row("ledger", 1, False), rows[3]], 40).startswith(
        "Over 40 images, no method"
    )
    assert verdict_text_over_images(rows, 1).startswith("One image has no standard error")


def test_how_a_set_is_looked_at_is_checked():
    assert image_set_setting(VIEW) == "dropped" and image_set_setting(VIEW, "blur") == "blur"
    with pytest.raises(WrongSetting, match="expected one of dropped"):
        image_set_setting(VIEW, "green")
    distance = next(view for view in vitviz.views.VIEWS if view.slug == "distance")
    assert image_set_setting(distance, "green") == ""


def test_unranked_method_is_listed_with_reason(inspector, trace, subject, monkeypatch):
    make_inapplicable(monkeypatch, "rollout", trace)
    pictures = [vitviz.sample_image(name) for name in ("chelsea", "coffee")]
    other = ViewContext(inspector, survey=vitviz.survey(pictures, inspector, MEASURES))
    told = asked(other)
    assert sorted(row["method"] for row in told["rows"]) == ["centre", "ledger", "random"]
    (sentence,) = told["refused"]
    assert sentence["values"]["count"] == 1 and sentence["values"]["pictures"] == 2
    assert sentence["values"]["reason"]["values"]["checkpoint"]["text"] == "mine", (
        "to be said in any language"
    )
    assert sentence["values"]["name"] == {"text": "Picture {number}", "values": {"number": 2}}
    settings = parse_settings(VIEW, {}, other.about)
    (line,) = VIEW.numbers(other, settings)["refused"].tolist()
    assert (
        line == f"Rollout is not ranked: it does not apply to 1 of 2 images. The first is Picture 2: {REASON}"
    )
    *ranked, last = csv.DictReader(io.StringIO(table(other, settings).decode()))
    assert {row["refused"] for row in ranked} == {"0"} and {row["reason"] for row in ranked} == {""}
    assert (last["method"], last["refused"], last["rank_logit"]) == ("rollout", "1", "")
    assert last["reason"] == REASON and last["pictures"] == "2" and last["title"] == "Rollout"
    assert asked(subject)["refused"] == [] and len(VIEW.numbers(subject, settings)["refused"]) == 0
