"""Charts of results by Plotly and Matplotlib: the numbers of `.frame()`."""

import json

import numpy as np
import pytest

import vitviz
from vitviz.charts.chart import Chart, Matrix
from vitviz.errors import VitvizError
from vitviz.notebook.charts import charts_of
from vitviz.traces.display import NotebookChart

CHARTED = {
    "attention_distance": 1, "rollout": 1, "token_norms": 1, "token_similarity": 1, "logit_lens": 1, "cka": 1,
    "logit_attribution": 2, "saliency": 1, "faithfulness": 2, "perturbation": 2, "upstream_contributions": 1,
    "edge_ablation": 1, "sufficient_edges": 1, "survey": None,
}  # fmt: skip


def assert_close(found, expected, rtol=1e-6):
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=rtol, atol=1e-12)


def frame(result):
    pytest.importorskip("pandas")
    return result.frame()


def trace_named(figure, name):
    (found,) = [one for one in figure.data if one.name == name and one.mode]
    return found


@pytest.mark.parametrize("name", CHARTED)
def test_results_have_their_plotly_charts(results, name):
    result, count = results[name], CHARTED[name]
    found = charts_of(result)
    assert isinstance(result, NotebookChart) and all(
        isinstance(one, Chart | Matrix) for one in found.values()
    )
    assert len(found) == count if count else found
    for each in found:
        assert result.plotly(each, dark=True).data and result.plotly(each, language="ko").data
    assert result.plotly().to_json() == result.plotly(next(iter(found))).to_json()


def test_plot_draws_chart_as_svg(results):
    drawn = results["attention_distance"].plot()
    assert drawn.svg().startswith(b"<?xml") and drawn.name == "vitviz-Attention distance"
    assert isinstance(drawn.spec.rows[0][0], Chart)


def test_distance_dots_match_frame(results):
    rows, dots = frame(results["attention_distance"]), results["attention_distance"].plotly().data[0]
    assert_close(dots.x, rows.layer + 1), assert_close(dots.y, rows.value)


@pytest.mark.parametrize("name", ["rollout", "token_similarity", "token_norms", "cka"])
def test_matrices_match_frame(results, name):
    cells = results[name].plotly().data[0]
    assert_close(np.nan_to_num(cells.z.ravel()), np.nan_to_num(frame(results[name]).value))


def test_lens_chart_is_softmax_of_frame_logits(results, inspector, trace):
    rows, figure = frame(results["logit_lens"]), results["logit_lens"].plotly()
    table = rows.pivot(index="layer", columns="class", values="value").to_numpy()
    table = np.exp(table - table.max(axis=1, keepdims=True))
    table /= table.sum(axis=1, keepdims=True)
    for place, (label, probability) in enumerate(trace.top(5)):
        line = trace_named(figure, label)
        assert_close(line.y, table[:, inspector.labels.index(label)], 1e-4)
        assert line is figure.data[place] and line.y[-1] == pytest.approx(probability, rel=1e-4)


def test_attribution_head_dots_match_frame(results):
    rows = frame(results["logit_attribution"])
    heads = rows[rows.line == "head"]
    dots = results["logit_attribution"].plotly("heads").data[0]
    assert_close(dots.x, heads.layer + 1), assert_close(dots.y, heads.logits, 1e-5)


def test_faithfulness_areas_match_frame(results):
    rows = frame(results["faithfulness"]).set_index("method")
    for side in ("most", "least"):
        line = results["faithfulness"].plotly(side).data[1]
        area = np.trapezoid(line.y, line.x) / 100
        assert line.name == "Random" or line.name == "Logit attribution"
        method = {"Random": "random", "Logit attribution": "ledger"}[line.name]
        assert area == pytest.approx(rows.loc[method, f"{side}_probability"], rel=1e-4)


def test_perturbation_curves_match_draws_of_frame(results):
    rows = frame(results["perturbation"])
    for score in ("probability", "kept"):
        figure = results["perturbation"].plotly(score)
        for way, band in zip(results["perturbation"].ways, figure.data, strict=False):
            draws = rows[rows.way == way].groupby(rows.columns[1], sort=True)[score]
            line = trace_named(figure, way)
            assert_close(line.x, draws.mean().index), assert_close(line.y, draws.mean(), 1e-4)
            ends = np.clip(draws.mean() + 2 * draws.std() / np.sqrt(draws.size()), 0, 1)
            np.testing.assert_allclose(band.y[: len(line.y)], ends, atol=1e-6)


def test_edge_charts_match_frames(results):
    rows = frame(results["sufficient_edges"])
    for order, each in rows.groupby("order"):
        line = trace_named(results["sufficient_edges"].plotly(), order)
        assert_close(line.y, each.groupby("kept").margin.mean(), 1e-4)
    rows, dots = frame(results["edge_ablation"]), results["edge_ablation"].plotly().data[0]
    assert_close(np.sort(dots.y), np.sort(rows.effect.dropna()), 1e-5)


def test_survey_charts_match_means_and_errors_of_frame(results):
    survey, rows = results["survey"], frame(results["survey"])
    found = [name for name, what in survey.quantities.items() if what.axes == "layer head"]
    assert found and set(charts_of(survey)) >= set(found)
    for name in found:
        dots, each = survey.plotly(name).data[0], rows[rows.quantity == name]
        assert_close(dots.y, each["mean"]), assert_close(dots.error_y.array, each.error.fillna(0))
        assert_close(dots.x, each.layer + 1)


def test_distances_of_survey_have_charts(results, inspector, trace):
    distances = results["survey"].distances if "prefix_mass.prefix_mass" in results["survey"].sums else None
    if distances is None:
        survey = vitviz.survey([vitviz.sample_image("coffee")], inspector, ["distance", "prefix_mass"])
        distances = survey.distances
    for name in ("distance", "renormalised", "prefix_mass"):
        assert_close(distances.plotly(name).data[0].y, getattr(distances, name).ravel())


def test_notebook_shows_distances_as_plotly_with_caption(results):
    found = results["attention_distance"]._repr_mimebundle_()["application/vnd.plotly.v1+json"]
    json.dumps(found, allow_nan=False)
    assert found["layout"]["xaxis"]["title"]["text"].count("how far each head looks")
    assert results["logit_attribution"]._repr_mimebundle_() == {}  # the card has a map and a table, too
    chart = charts_of(results["survey"])
    assert "data" in next(iter(chart.values()))._repr_mimebundle_()["application/vnd.plotly.v1+json"]


def test_missing_charts_and_languages_raise(results):
    with pytest.raises(VitvizError, match="no chart 'heights'; expected one of heads, patches"):
        results["logit_attribution"].plotly("heights")
    with pytest.raises(VitvizError, match="language='de' is not valid; expected one of en"):
        results["survey"].plotly(language="de")
    with pytest.raises(VitvizError, match="This NamedTensor has no chart"):
        results["position_similarity"].plotly()
    assert not hasattr(results["Trace"], "plotly")
