"""Print figure of Faithfulness, against `vitviz.faithfulness` and against passes and areas of the tests."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import vitviz
from tests.export.conftest import figure_cache
from tests.export.reading import panels, texts
from tests.inapplicable_method import REASON
from vitviz.analyses import protocol
from vitviz.analyses.faithfulness.ranking import verdict_text
from vitviz.analyses.protocol import DENSE
from vitviz.charts.mpl.drawing import families
from vitviz.charts.mpl.page import render
from vitviz.charts.mpl.spec import Chart, Legend, Matrix, TextTable, Tiles
from vitviz.export.figure import print_view, validate_settings, view_contexts
from vitviz.views.languages import translate
from vitviz.views.printing import PrintStyle
from vitviz.views.trial import ORDER as EVERY
from vitviz.views.trial import FaithfulnessView

TITLES = {name: title for name, title in protocol.TITLES.items() if name not in DENSE}
ORDER = [name for name in EVERY if name in TITLES]  # of a classifier
SIDES, SCORES = ("most", "least"), ("probability", "logit", "kept")
EXPECTED_NOTES = [
    "Removed patches are: left out",
    "Band: 95 % of random maps, estimated from 10",
]


def series_of(figure) -> dict:
    """Return the series by side and method."""
    names = {title: name for name, title in TITLES.items()}
    charts = zip(SIDES, panels(figure, Chart), strict=True)
    return {(side, names[str(one.name)]): one for side, chart in charts for one in chart.series}


@pytest.fixture(scope="module")
def inspector(small_inspector):
    return small_inspector  # an evaluation is hundreds of passes


@pytest.fixture(scope="module")
def trace(small_trace):
    return small_trace


@pytest.fixture(scope="module")
def cached_figures(inspector, trace, photo):
    return figure_cache(inspector, trace, photo)


@pytest.fixture(scope="module")
def evaluation(inspector, trace):
    """The public function computes all methods at once; the view computes some later."""
    target = int(trace.logits.argmax())
    return vitviz.faithfulness(inspector, trace, target, methods=["ledger", "chefer", "rollout", "centre"])


@pytest.mark.parametrize("score", SCORES)
def test_curves_match_python_with_random_band(cached_figures, evaluation, score):
    drawn_lines = series_of(cached_figures("trial", score=score))
    assert sorted(drawn_lines) == sorted((side, name) for side in SIDES for name in ORDER)
    for side in SIDES:
        for name, curves in evaluation.curves.items():
            one = drawn_lines[side, name]
            np.testing.assert_allclose(one.x, np.arange(0, 101, 10), atol=1e-9)
            np.testing.assert_allclose(one.y, getattr(curves, side)[score], atol=1e-4)
            assert (one.band is not None) == (name == "random")
        draws = np.stack([getattr(one, side)[score] for one in evaluation.draws])
        t9 = 2.262157 * 1.1**0.5  # 97.5 % quantile of Student's t with 9 degrees of freedom, for one more map
        ends = [draws.mean(0) + sign * t9 * draws.std(0, ddof=1) for sign in (-1, 1)]
        ends = ends if score == "logit" else np.clip(ends, 0, 1)
        for end, expected in zip(drawn_lines[side, "random"].band, ends, strict=True):
            np.testing.assert_allclose(end, expected, atol=1e-4)


@pytest.mark.parametrize(("side", "away"), [("most", 5), ("least", 11)])
def test_curve_point_matches_pass_without_those_patches(cached_figures, inspector, photo, trace, side, away):
    """30 and 70 % of 16 patches: order the attribution map by numpy and run a pass without them."""
    account = vitviz.logit_attribution(inspector, trace, target=int(trace.logits.argmax()))
    order = np.argsort(account.patches.flatten().numpy())
    gone = order[::-1][:away] if side == "most" else order[:away]
    other = inspector.trace(photo, ablation=vitviz.Ablation(patches=sorted(gone.tolist())))
    share = torch.softmax(other.logits.double(), -1)[int(trace.logits.argmax())].item()
    step = {5: 3, 11: 7}[away]
    assert series_of(cached_figures("trial"))[side, "ledger"].y[step] == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("score", SCORES)
def test_ranking_shows_areas_under_drawn_curves(cached_figures, evaluation, score):
    figure = cached_figures("trial", True, score=score)
    (table,), curves, places = panels(figure, TextTable), series_of(figure), []
    named = {title: name for name, title in TITLES.items()}
    percent, digits = (1, 2) if score == "logit" else (100, 1)
    mean, deviation = (percent * one for one in evaluation.chance(score))
    tail = 1 - 0.95 ** (1 / (len(ORDER) - 1))  # Šidák, for all methods of the table except random
    reach = stats.t.isf(tail, 9) * deviation * 1.1**0.5  # ten draws and one more map
    for place, (row, sample) in enumerate(zip(table.rows, table.series, strict=True), start=1):
        title = str(row[1]).removesuffix(" *")
        name = named[title]
        most, least = (np.trapezoid(curves[side, name].y, dx=0.1) * percent for side in SIDES)
        numbers = [float(text.replace("−", "-")) for text in row[2:6]]
        np.testing.assert_allclose(numbers[:3], [most, least, least - most], atol=0.51 * 10**-digits)
        assert row[0] == str(place) and str(sample.name) == title
        assert (sample.colour, sample.dash) == (curves["most", name].colour, curves["most", name].dash)
        places.append(least - most)
        if name in evaluation.curves:
            assert str(row[1]).endswith(" *") == (name == "random" or least - most <= mean + reach), name
            assert numbers[3] == pytest.approx(evaluation.curves[name].saco, abs=0.006)
    assert (np.diff(places) < 1e-9).all() and len(places) == len(ORDER)
    unit = "" if score == "logit" else " %"
    threshold = f"threshold {mean + reach:.{digits}f}{unit}, 5 % level"
    said = f"mean random gap {mean:.{digits}f}{unit}, {threshold}".replace("-", "−")
    assert any(said in note for note in figure.spec.notes), said
    assert [str(one) for one in table.columns][4:] == [f"Gap ↑{unit}", "SaCo", "Rest"]


def test_methods_have_distinct_lines_and_one_label(cached_figures, inspector, trace):
    (legend,) = panels(cached_figures("trial"), Legend)
    assert sorted(str(one.name) for one in legend.series) == sorted(TITLES.values())
    assert len({(one.colour, one.dash) for one in legend.series}) == len(ORDER)
    controls = {"Random": "dashed", "Blob in the centre": "dotted"}
    assert {str(one.name): one.dash for one in legend.series if str(one.name) in controls} == controls
    answer = f"probability of {trace.top(1)[0][0]}"
    said = texts(cached_figures("trial").svg())
    assert all(said.count(title) == 1 for title in TITLES.values())
    assert [said.count(one) for one in ("patches removed", answer)] == [
        2,
        2,
    ]
    detail = texts(cached_figures("trial", True).svg())
    (table,) = panels(cached_figures("trial", True), TextTable)
    assert all(detail.count(str(row[1])) == 1 for row in table.rows)
    assert not panels(cached_figures("trial", True), Legend), "the table contains the line samples"
    view, subject = view_contexts("trial", inspector, trace)
    for start in (
        str(verdict_text(view.results(subject, validate_settings(view, subject, {})))),
        *EXPECTED_NOTES,
    ):
        assert any(text.startswith(start) for text in said) and any(t.startswith(start) for t in detail)


def test_svg_paths_match_curve_numbers(cached_figures):
    """Compare the paths of the SVG with the axes, calibrated on the numbered tick lines."""
    import re
    import xml.etree.ElementTree as ET

    figure = cached_figures("trial")
    chart = panels(figure, Chart)[0]
    spec = replace(figure.spec, rows=((chart,),), notes=(), weights=())
    svg = "{http://www.w3.org/2000/svg}"
    groups = [
        node for node in ET.fromstring(render(spec)).iter(f"{svg}g")
        if re.match("(line2d|text)_", node.get("id") or "")
    ]  # fmt: skip
    told = ["".join(group.itertext()).strip() for group in groups]

    def path(number: int) -> np.ndarray:
        evaluation = re.findall(r"[ML] (\S+) (\S+)", groups[number].find(f"{svg}path").get("d"))
        return np.array(evaluation, float)

    places = {text: [i for i, one in enumerate(told) if one == text] for text in ("0 %", "100 %")}
    bottom, top = (
        path(places[text][0] - 1)[0, 1] for text in ("0 %", "100 %")
    )  # of the y axis, which is drawn first
    left, right = (path(places[text][1] - 1)[0, 0] for text in ("0 %", "100 %"))
    curves = [path(i) for i, one in enumerate(groups) if not told[i] and len(path(i)) == 11]
    assert len(curves) == len(chart.series)
    for points, one in zip(curves, chart.series, strict=True):
        np.testing.assert_allclose((points[:, 0] - left) / (right - left) * 100, one.x, atol=0.01)
        np.testing.assert_allclose((bottom - points[:, 1]) / (bottom - top), one.y, atol=1e-4)


def test_selected_method_is_highlighted(cached_figures):
    thick = {
        name: one.thick for (_, name), one in series_of(cached_figures("trial", method="chefer")).items()
    }
    assert {name for name, one in thick.items() if one > 0.5} == {"chefer"}
    assert "method: chefer" in cached_figures("trial", method="chefer").caption


def test_contrast_of_two_classes_is_labelled(cached_figures, trace, monkeypatch):
    monkeypatch.setattr("vitviz.views.trial.ORDER", ("random", "centre", "ledger", "frozen"))
    first, second = trace.logits.topk(2).indices.tolist()
    figure = cached_figures("trial", target=f"{first}-{second}", score="logit")
    expected = (trace.logits[first] - trace.logits[second]).item()
    for chart in panels(figure, Chart):
        assert str(chart.y_label) == f"logit of {trace.labels[first]} rather than {trace.labels[second]}"
        assert all(one.y[0] == pytest.approx(expected, abs=1e-3) for one in chart.series)
        ends = np.concatenate([end for one in chart.series for end in (one.y, *(one.band or ()))])
        assert chart.y[0] <= ends.min() and ends.max() <= chart.y[1] and not chart.percent


def test_maps_and_agreement_follow_ranking_order(cached_figures, inspector, trace):
    order = [row[1].removesuffix(" *") for row in panels(cached_figures("trial", True), TextTable)[0].rows]
    (tiles,) = panels(cached_figures("trial", True, show="maps"), Tiles)
    assert [str(one).removesuffix(" · No positive values here.") for one in tiles.captions] == order
    account = vitviz.logit_attribution(inspector, trace, target=int(trace.logits.argmax())).patches.numpy()
    own = tiles.pictures[order.index("Logit attribution")]
    np.testing.assert_allclose(own.ravel()[np.argsort(account.ravel())], np.arange(16) / 15, atol=0.02)
    (matrix,) = panels(cached_figures("trial", True, show="agreement"), Matrix)
    i, j = order.index("Logit attribution"), order.index("Rollout")
    rollout = vitviz.saliency(inspector, trace, int(trace.logits.argmax()), method="rollout").map.numpy()
    places = [np.argsort(np.argsort(one.ravel())) for one in (account, rollout)]  # no two values are equal
    assert matrix.values[i, j] == matrix.values[j, i] == pytest.approx(np.corrcoef(*places)[0, 1], abs=1e-3)
    assert (np.diag(matrix.values) == 1).all() and (matrix.scale.low, matrix.scale.high) == (-1, 1)
    (values,) = panels(cached_figures("trial", True, show="maps", scale="values"), Tiles)
    pixels = values.pictures[order.index("Logit attribution")].astype(int)
    clear = np.abs(account) > 0.3 * np.abs(account).max()
    assert ((pixels[..., 0] > pixels[..., 2]) == (account > 0))[clear].all()  # orange for, blue against


def test_inapplicable_method_is_noted_and_not_drawn(inspector, trace, monkeypatch):
    view, subject = view_contexts("trial", inspector, trace)
    whole = view.results(subject, validate_settings(view, subject, {}))
    left = {name: one for name, one in whole.curves.items() if name != "chefer"}
    monkeypatch.setattr(
        FaithfulnessView, "results", lambda *asked: replace(whole, curves=left, refused={"chefer": REASON})
    )
    for detail in (False, True):
        figure = print_view(view, subject, validate_settings(view, subject, {}), PrintStyle(detail))
        assert figure.spec.notes[-1] == f"Chefer et al. 2021: {REASON}"
        assert not any(name == "chefer" for _, name in series_of(figure))
        assert not any("Chefer" in row[1] for one in panels(figure, TextTable) for row in one.rows)


@pytest.mark.parametrize("tag", ["zh-CN", "ko"])
def test_figure_is_translated(inspector, trace, tag):
    for detail in (False, True):
        figure = vitviz.figure("trial", inspector, trace, detail=detail, language=tag)
        assert translate(FaithfulnessView.words.caveat, tag) in figure.caption
        if families(tag) is None:
            continue
        said = " ".join(texts(figure.svg()))
        for english in ("Rollout", "Most relevant first: lower is better", "patches removed"):
            assert translate(english, tag) in said and english not in said
        for english in ("Most first ↓", "Rest", "Rank", "no sum") if detail else ():
            assert translate(english, tag) in said and english not in said
