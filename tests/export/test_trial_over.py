"""Faithfulness figure over a set of images, against the survey's moments."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import vitviz
from tests.export.reading import panels, texts
from vitviz.analyses.faithfulness.ranking import ranking_rows
from vitviz.analyses.protocol import TITLES
from vitviz.charts.mpl.spec import Chart, TextTable
from vitviz.export.figure import print_view
from vitviz.surveys.measures.trial import FaithfulnessMeasure
from vitviz.surveys.rows import Refusal
from vitviz.views import ViewContext
from vitviz.views.printing import PrintStyle
from vitviz.views.routes import parse_settings
from vitviz.views.trial import FaithfulnessView

MEASURES = [FaithfulnessMeasure(("ledger", "frozen", "rollout"), ("mean", "black")), "distance"]
IMAGES = [vitviz.sample_image(name) for name in ("chelsea", "coffee", "rocket")]


@pytest.fixture(scope="module")
def inspector(small_inspector):
    return small_inspector  # an evaluation is hundreds of passes


@pytest.fixture(scope="module")
def survey_of_three(inspector):
    """Return a survey of three images with two removal protocols."""
    return vitviz.survey(IMAGES, inspector, MEASURES)


@pytest.fixture(scope="module")
def single_gaps(inspector):
    """Return the lead of each method over each, by three surveys of one image: image x protocol x ..."""
    surveys = [vitviz.survey([picture], inspector, MEASURES) for picture in IMAGES]
    return np.stack([survey.mean("trial.ahead") for survey in surveys])


def figure_of_set(inspector, survey, detail=False, **given):
    view, subject = FaithfulnessView(), ViewContext(inspector, survey=survey)
    return print_view(view, subject, parse_settings(view, given, subject.about), PrintStyle(detail))


@pytest.mark.parametrize("score", ["probability", "logit"])
def test_methods_of_a_set_have_gaps_ranks_and_errors(inspector, survey_of_three, single_gaps, score):
    figure = figure_of_set(inspector, survey_of_three, True, patches_as="black", score=score)
    (chart,), (table,), rows = (
        panels(figure, Chart),
        panels(figure, TextTable),
        ranking_rows(survey_of_three, 1, score),
    )
    times = 1 if score == "logit" else 100
    dots = {float(y): float(x) for one in chart.series if one.dots for x, y in zip(one.x, one.y, strict=True)}
    named = {float(y): str(one.name) for one in chart.series if one.dots for y in one.y}
    reach = {float(one.y[0]): one.x for one in chart.series if one.line}
    assert [str(name) for _, name in chart.y_ticks] == [
        f"{row['rank']} · {TITLES[row['method']]}" for row in rows
    ]
    chance = survey_of_three.measures[0].methods.index("random")
    k = ("kept", "probability", "logit").index(score)
    for (at, _), row, told in zip(chart.y_ticks, rows, table.rows, strict=True):
        j = survey_of_three.measures[0].methods.index(row["method"])
        ahead = times * single_gaps[:, 1, j, chance, k]
        mean, error = ahead.mean(), ahead.std(ddof=1) / len(IMAGES) ** 0.5
        assert dots[at] == pytest.approx(mean, abs=2e-4 * times) and told[0] == str(row["rank"])
        if error > 0:
            sure = stats.t.isf(
                1 - 0.95 ** (1 / (len(survey_of_three.measures[0].methods) - 1)), len(IMAGES) - 1
            )
            beats = (
                "significantly better than random"
                if mean > sure * error
                else "not significantly better than random"
            )
            assert named[at] == beats, "three images decide by t and Šidák, as on the page"
            np.testing.assert_allclose(reach[at], [mean - 2 * error, mean + 2 * error], atol=2e-4 * times)
        assert str(told[1]).endswith(" *") != row["beats_chance"]
        digits = 2 if score == "logit" else 1
        most, own = (f"{times * row[name]:.{digits}f}".replace("-", "−") for name in ("most", "most_error"))
        assert told[2] == f"{most} ± {own}"
    assert dots[float(len(rows) - [row["method"] for row in rows].index("random"))] == 0, "random itself"
    said = texts(figure.svg())
    assert {str(name) for _, name in chart.y_ticks} <= set(said) and str(chart.y_label) in said
    assert "Removed patches are: black" in said and any(text.startswith("Over 3 images") for text in said)
    alone = figure_of_set(inspector, survey_of_three)  # the note names only the protocol in view
    assert "Removed patches are: the model’s mean colour" in alone.spec.notes and not panels(alone, TextTable)


def test_set_of_one_image_has_no_error_bars(inspector):
    one = vitviz.survey(
        [vitviz.sample_image("coffee")], inspector, [FaithfulnessMeasure(("ledger", "centre")), "distance"]
    )
    figure = figure_of_set(inspector, one, True)
    (chart,) = panels(figure, Chart)
    assert not any(series.line for series in chart.series) and figure.png(dpi=150)
    assert not any("±" in text for row in panels(figure, TextTable)[0].rows for text in row)
    assert str(figure.spec.notes[0]).startswith("One image has no standard error")


def test_method_rejected_for_one_image_is_noted(inspector, survey_of_three):
    refused = {"trial.frozen": Refusal(1, "coffee.png", "This picture has no such map.")}
    figure = figure_of_set(inspector, replace(survey_of_three, refused=refused))
    assert any("Frozen linear map" in str(note) and "no such map" in str(note) for note in figure.spec.notes)
