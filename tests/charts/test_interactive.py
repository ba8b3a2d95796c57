"""Plotly figures: every trace holds the chart's own arrays, and the hover text is the page's tooltip."""

import html
import re
from functools import partial

import numpy as np
import plotly.io
import pytest

import vitviz
from tests.engine.looking import inspect, noise, perturbed
from tests.tiers import sweep
from vitviz.charts.chart import (
    Chart,
    Matrix,
    ReferenceLine,
    Scale,
    Series,
    by_layer,
    cell_tooltip,
    to_json,
    tooltip,
)
from vitviz.charts.colormaps import TABLES
from vitviz.export.figure import view_contexts
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import VIEWS, Choice
from vitviz.views.languages import translate
from vitviz.views.printing import PrintStyle

pytestmark = pytest.mark.usefixtures("cached_sample_survey")
# options that another model, a second checkpoint or image, an edited image or a training history offers
ELSEWHERE = {("difference", "on"), ("show", "sentences")}
ELSEWHERE |= {("against", one) for one in ("beside", "before", "film")}
ELSEWHERE |= {("basis", one) for one in ("photo", "beside", "film")}
WITHOUT = {"patches", "rollout"}  # maps and tiles only


# settings with charts, for views whose defaults have none
QUICK = {"positions": {"form": "matrix"}, "tokens": {"show": "norms"}, "explorer": {"beside": "score"}}


def cases():
    """Every view with settings that have charts, and with every other option of every choice."""
    charted = [view for view in VIEWS if view.slug not in WITHOUT]
    defaults = [(view, QUICK.get(view.slug, {})) for view in charted]
    return defaults, [
        (view, {one.name: value})
        for view in charted
        for one in view.controls
        if isinstance(one, Choice)
        for value, _ in one.options
        if value != (one.default or one.options[0][0]) and (one.name, value) not in ELSEWHERE
    ]


@pytest.fixture(scope="module")
def small():
    """A model of two layers, 4 x 4 patches and seven classes with an image."""
    inspector = inspect(perturbed("vit_tiny_patch16_224", depth=2, img_size=64, num_classes=7))
    return inspector, inspector.trace(noise())


def drawn(small, view, given) -> list[Chart | Matrix]:
    """The charts and matrices of a view and of its figure with detail."""
    _, subject = view_contexts(view.slug, *small)
    settings = view.settings(given, subject.about)
    chart = view.chart(subject, settings)
    rows = view.spec(subject, settings, PrintStyle(detail=True)).rows if view.printable else ()
    panels = [one for row in rows for one in row if isinstance(one, Chart | Matrix)]
    return panels if chart is None else [chart, *panels]


def said(hovertext) -> list[str]:
    """The lines of a hover text as a reader sees them."""
    return html.unescape(re.sub("</?b>", "", hovertext)).split("<br>") if hovertext else []


def same(found, expected):
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-12)


def holds_the_charts_arrays(chart: Chart):
    figure = chart.plotly()
    traces = list(figure.data)
    if chart.bars is not None:
        bar = traces.pop(0)
        same(bar.x, chart.bars.x), same(bar.base, chart.bars.low)
        same(bar.base + bar.y, chart.bars.high)
        assert bar.marker.color == tuple(chart.bars.colours) and bar.width == chart.bars.width
        assert [said(one) for one in bar.hovertext] == [
            tooltip(chart, chart.bars, i) for i in range(len(bar.x))
        ]
    for one in chart.series:
        if one.line and one.band is not None:
            band, (low, high) = traces.pop(0), one.band
            same(band.y, [*high, *reversed(list(low))]), same(band.x, [*one.x, *reversed(list(one.x))])
    for one in chart.series:
        trace = traces.pop(0)
        same(trace.x, one.x), same(trace.y, one.y)
        assert trace.line.color == trace.marker.color == one.colour and trace.name == str(one.name)
        assert ("lines" in trace.mode, "markers" in trace.mode) == (one.line, one.dots)
        if one.band is not None and not one.line:
            (
                same(trace.y - trace.error_y.arrayminus, one.band[0]),
                same(trace.y + trace.error_y.array, one.band[1]),
            )
        for i, value in enumerate(one.y):
            lines = said(trace.hovertext[i])
            assert lines[: 1 + len(one.told)] == tooltip(chart, one, i)[: 1 + len(one.told)] or value != value
    assert [one.name for one in traces[: len(chart.named)]] == [name for _, name in chart.named]
    ends = [chart.x if one.upright else chart.y for one in chart.levels]
    within = [one for one, (low, high) in zip(chart.levels, ends, strict=True) if low <= one.value <= high]
    for shape, one in zip(figure.layout.shapes, within, strict=True):
        ends = (shape.x0, shape.x1) if one.upright else (shape.y0, shape.y1)
        assert ends == (one.value, one.value) and shape.name == str(one.name)
    axes = figure.layout.xaxis, figure.layout.yaxis
    assert (axes[0].range, axes[1].range) == (tuple(chart.x), tuple(chart.y))
    for axis, label, ticks in zip(
        axes, (chart.x_label, chart.y_label), (chart.ticks, chart.y_ticks), strict=True
    ):
        text = html.unescape(axis.title.text.split("<br><span")[0]).replace("<br>", " ")
        assert " ".join(text.split()) == " ".join(str(label).split())
        found = [*zip(axis.tickvals or (), axis.ticktext or (), strict=True)]
        assert found == [(at, str(name)) for at, name in ticks]
    notes = html.unescape(axes[0].title.text).replace("<br>", "")
    assert all(str(note).split()[-1] in notes for note in chart.notes)


def holds_the_matrix(matrix: Matrix):
    (cells,) = matrix.plotly().data
    same(cells.z, matrix.values)
    rows, cols = matrix.values.shape
    same(cells.x, range(1, cols + 1)), same(cells.y, range(1, rows + 1))
    assert (cells.zmin, cells.zmax) == (matrix.scale.low, matrix.scale.high)
    assert [colour for _, colour in cells.colorscale] == [
        f"rgb({r},{g},{b})" for r, g, b in TABLES[matrix.scale.colours].tolist()
    ]
    if matrix.told:
        for row, col in np.ndindex(rows, cols):
            assert said(cells.hovertext[row][col]) == cell_tooltip(matrix, row, col)
    else:
        assert "%{z" in cells.hovertemplate and str(matrix.x_label) in cells.hovertemplate


DEFAULTS, OPTIONS = cases()


@sweep(
    "view, given", [*DEFAULTS, *OPTIONS], quick=len(DEFAULTS),
    ids=[f"{view.slug}-{'-'.join(map('='.join, given.items()))}" for view, given in (*DEFAULTS, *OPTIONS)],
)  # fmt: skip
def test_traces_of_every_view_hold_the_charts_arrays(small, fast_faithfulness, view, given):
    panels = drawn(small, view, given)
    assert panels or (view, given) in OPTIONS  # some options have no chart
    for one in panels:
        holds_the_charts_arrays(one) if isinstance(one, Chart) else holds_the_matrix(one)


def test_views_without_charts_are_known(small):
    for view in VIEWS:
        if view.slug in WITHOUT:
            assert drawn(small, view, {}) == []


def test_dots_of_the_distance_view_are_the_rows_of_the_frame(inspector, trace):
    pytest.importorskip("pandas")
    frame = vitviz.attention_distance(trace).frame()
    view, subject = view_contexts("distance", inspector, trace)
    dots, mean = view.chart(subject, view.settings({})).plotly().data
    same(dots.x, frame.layer + 1), np.testing.assert_allclose(dots.y, frame.value, rtol=1e-6)
    np.testing.assert_allclose(mean.y, frame.groupby("layer").value.mean(), rtol=1e-6)
    heads = [int(re.search(r"head (\d+)", text)[1]) for text in dots.hovertext]
    assert heads == (frame["head"] + 1).tolist()
    assert [said(text)[0] for text in dots.hovertext][:1] == [f"{frame.value[0]:.4g} px"]


LABELLED = Matrix(
    np.array([[0.5, np.nan, -1.0], [0.25, 1.0, 0.0]]), Scale("balance", -1.0, 1.0, "scale"), "x", "y",
    rows=("a", "b"), cols=("1", "", "3"), column=1,
    told=(
        LocalizedText("{value} of {whole}", value=[["a", "", "c"], ["d", "e", "f"]], whole=2),
        LocalizedText("{row}", row=[["first"], [LocalizedText("register {number}", number=3)]]),
        LocalizedText("{col}", col=[["p", "q", "r"]]),
    ),
)  # fmt: skip


def test_a_cell_says_the_lines_of_the_browser(node):
    figure = to_json(LABELLED)
    cells = "[0, 1, 2, 3, 4, 5].map((i) => told(figure, Math.floor(i / 3), i % 3))"
    found = node("frontend/matrix.js", cells, figure=figure)
    assert found == [cell_tooltip(LABELLED, *place) for place in np.ndindex(2, 3)]


def test_texts_are_translated_also_those_within_texts():
    say = partial(translate, tag="ko")
    chart = by_layer(np.array([[1.0, 2.0]]), LocalizedText("Mean attention distance (px)"))
    dots = chart.plotly(say).data[0]
    assert (dots.name, said(dots.hovertext[1])) == ("헤드 하나", ["2", "레이어 1, 헤드 2"])
    assert cell_tooltip(LABELLED, 1, 0, say)[1] == "레지스터 3"


def test_labels_are_text_and_never_html():
    evil = "<a href='https://x'>&b</a>"
    line = Series(np.arange(2.0), np.ones(2), evil, line=True, told=("{who}",), also={"who": [evil, evil]})
    chart = Chart(evil, evil, (0, 1), (0, 1), evil, (line,), ticks=((0, evil),), notes=(evil,))
    for figure in (chart.plotly(), Matrix(np.eye(2), Scale("grey", 0, 1, evil), evil, evil, evil).plotly()):
        text = figure.to_json().replace("\\u003c", "<").replace("\\u0026", "&")
        assert "<a" not in text and "&lt;a href=" in text


def test_a_reference_line_outside_the_axis_is_an_entry_without_a_line():
    levels = (ReferenceLine(9.0, "limit", beyond="limit: 9 (outside)"), ReferenceLine(0.5, "half"))
    figure = Chart("x", "y", (0, 1), (0, 1), levels=levels).plotly()
    (entry,), (shape,) = figure.data, figure.layout.shapes
    assert entry.name == "limit: 9 (outside)" and entry.showlegend and entry.x == (None,)
    assert (shape.name, shape.y0, shape.y1, shape.xref) == ("half", 0.5, 0.5, "paper")


def test_points_without_a_number_have_no_hover_text_and_bands_leave_them_out():
    y, ends = np.array([1.0, np.nan, 3.0]), (np.array([0.0, np.nan, 2.0]), np.array([2.0, np.nan, 4.0]))
    series = (Series(np.arange(3), y, "n", line=True, band=ends),)
    band, line = Chart("x", "y", (0, 3), (0, 4), series=series).plotly().data
    assert line.hovertext[1] == "" and np.isnan(line.y[1])
    same(band.x, [0, 2, 2, 0]), same(band.y, [2, 4, 2, 0])


def test_error_bars_reach_both_ends_of_the_band():
    y, ends = np.array([1.0, 2.0]), (np.array([0.5, 1.9]), np.array([1.25, 3.0]))
    holds_the_charts_arrays(
        Chart("x", "y", (0, 3), (0, 4), series=(Series(np.arange(2), y, dots=True, band=ends),))
    )


@pytest.mark.parametrize(
    ("dark", "colours", "paper"), [(False, "balance", "#ffffff"), (True, "balance_dark", "#0f1115")]
)
def test_templates_set_paper_and_the_diverging_map(dark, colours, paper):
    figure = LABELLED.plotly(dark=dark)
    scale = [tuple(map(int, re.findall(r"\d+", colour))) for _, colour in figure.data[0].colorscale]
    np.testing.assert_array_equal(scale, TABLES[colours])
    assert figure.layout.template.layout.paper_bgcolor == paper
    name = "vitviz+dark" if dark else "vitviz"
    assert plotly.io.templates[name].layout.paper_bgcolor == paper
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (1.5, 2.5)  # the framed column


def test_long_texts_are_broken_into_lines():
    label = LocalizedText("a very long label of an axis that does not fit beside a chart of usual height")
    figure = Chart("x", label, (0, 1), (0, 1), notes=("word " * 40,)).plotly()
    assert max(map(len, figure.layout.yaxis.title.text.split("<br>"))) <= 44
    assert all(len(re.sub("<.*?>", "", line)) <= 84 for line in figure.layout.xaxis.title.text.split("<br>"))
