"""Plotly figures: every trace holds the chart's arrays, and the hover text equals the page's tooltip."""

import html
import re
from functools import partial

import numpy as np
import plotly.io
import pytest

import vitviz
from tests.engine.random_inspectors import inspect, noise, perturbed
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
from vitviz.views.printing import PrintStyle, figure_spec, is_printable
from vitviz.views.routes import parse_settings

pytestmark = pytest.mark.usefixtures("cached_sample_survey")
# options that need another model, a second checkpoint or image, an edited image or a training history
ELSEWHERE = {("difference", "on"), ("show", "sentences")}
ELSEWHERE |= {("against", one) for one in ("beside", "before", "film")}
ELSEWHERE |= {("basis", one) for one in ("photo", "beside", "film")}
WITHOUT = {"patches", "rollout"}  # maps and tiles only


# settings with charts, for views whose defaults have none
QUICK = {"positions": {"form": "matrix"}, "tokens": {"show": "norms"}, "explorer": {"beside": "score"}}


def cases():
    """Return every view with settings that have charts, and with every other option of every choice."""
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
def small_model():
    """Return a model of two layers, 4 x 4 patches and seven classes, and the trace of an image."""
    inspector = inspect(perturbed("vit_tiny_patch16_224", depth=2, img_size=64, num_classes=7))
    return inspector, inspector.trace(noise())


def charts_of(small_model, view, given) -> list[Chart | Matrix]:
    """Return the charts and matrices of a view and of its figure with detail."""
    _, subject = view_contexts(view.slug, *small_model)
    settings = parse_settings(view, given, subject.about)
    chart = view.chart(subject, settings)
    rows = figure_spec(view, subject, settings, PrintStyle(detail=True)).rows if is_printable(view) else ()
    panels = [one for row in rows for one in row if isinstance(one, Chart | Matrix)]
    return panels if chart is None else [chart, *panels]


def hover_lines(hovertext) -> list[str]:
    """Return the lines of a hover text as a reader sees them."""
    return html.unescape(re.sub("</?b>", "", hovertext)).split("<br>") if hovertext else []


def assert_close(found, expected):
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-12)


def assert_plotly_matches_chart(chart: Chart):
    figure = chart.plotly()
    traces = list(figure.data)
    if chart.bars is not None:
        bar = traces.pop(0)
        assert_close(bar.x, chart.bars.x), assert_close(bar.base, chart.bars.low)
        assert_close(bar.base + bar.y, chart.bars.high)
        assert bar.marker.color == tuple(chart.bars.colours) and bar.width == chart.bars.width
        assert [hover_lines(one) for one in bar.hovertext] == [
            tooltip(chart, chart.bars, i) for i in range(len(bar.x))
        ]
    for one in chart.series:
        if one.line and one.band is not None:
            band, (low, high) = traces.pop(0), one.band
            (
                assert_close(band.y, [*high, *reversed(list(low))]),
                assert_close(band.x, [*one.x, *reversed(list(one.x))]),
            )
    for one in chart.series:
        trace = traces.pop(0)
        assert_close(trace.x, one.x), assert_close(trace.y, one.y)
        assert trace.line.color == trace.marker.color == one.colour and trace.name == str(one.name)
        assert ("lines" in trace.mode, "markers" in trace.mode) == (one.line, one.dots)
        if one.band is not None and not one.line:
            (
                assert_close(trace.y - trace.error_y.arrayminus, one.band[0]),
                assert_close(trace.y + trace.error_y.array, one.band[1]),
            )
        for i, value in enumerate(one.y):
            lines = hover_lines(trace.hovertext[i])
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


def assert_plotly_matches_matrix(matrix: Matrix):
    (cells,) = matrix.plotly().data
    assert_close(cells.z, matrix.values)
    rows, cols = matrix.values.shape
    assert_close(cells.x, range(1, cols + 1)), assert_close(cells.y, range(1, rows + 1))
    assert (cells.zmin, cells.zmax) == (matrix.scale.low, matrix.scale.high)
    assert [colour for _, colour in cells.colorscale] == [
        f"rgb({r},{g},{b})" for r, g, b in TABLES[matrix.scale.colours].tolist()
    ]
    if matrix.told:
        for row, col in np.ndindex(rows, cols):
            assert hover_lines(cells.hovertext[row][col]) == cell_tooltip(matrix, row, col)
    else:
        assert "%{z" in cells.hovertemplate and str(matrix.x_label) in cells.hovertemplate


DEFAULTS, OPTIONS = cases()


@sweep(
    "view, given", [*DEFAULTS, *OPTIONS], quick=len(DEFAULTS),
    ids=[f"{view.slug}-{'-'.join(map('='.join, given.items()))}" for view, given in (*DEFAULTS, *OPTIONS)],
)  # fmt: skip
def test_plotly_traces_match_charts_of_every_view(small_model, fast_faithfulness, view, given):
    panels = charts_of(small_model, view, given)
    assert panels or (view, given) in OPTIONS  # some options have no chart
    for one in panels:
        assert_plotly_matches_chart(one) if isinstance(one, Chart) else assert_plotly_matches_matrix(one)


def test_views_listed_without_charts_have_none(small_model):
    for view in VIEWS:
        if view.slug in WITHOUT:
            assert charts_of(small_model, view, {}) == []


def test_distance_dots_match_data_frame(inspector, trace):
    pytest.importorskip("pandas")
    frame = vitviz.attention_distance(trace).frame()
    view, subject = view_contexts("distance", inspector, trace)
    dots, mean = view.chart(subject, parse_settings(view, {})).plotly().data
    assert_close(dots.x, frame.layer + 1), np.testing.assert_allclose(dots.y, frame.value, rtol=1e-6)
    np.testing.assert_allclose(mean.y, frame.groupby("layer").value.mean(), rtol=1e-6)
    heads = [int(re.search(r"head (\d+)", text)[1]) for text in dots.hovertext]
    assert heads == (frame["head"] + 1).tolist()
    assert [hover_lines(text)[0] for text in dots.hovertext][:1] == [f"{frame.value[0]:.4g} px"]


LABELLED_MATRIX = Matrix(
    np.array([[0.5, np.nan, -1.0], [0.25, 1.0, 0.0]]), Scale("balance", -1.0, 1.0, "scale"), "x", "y",
    rows=("a", "b"), cols=("1", "", "3"), column=1,
    told=(
        LocalizedText("{value} of {whole}", value=[["a", "", "c"], ["d", "e", "f"]], whole=2),
        LocalizedText("{row}", row=[["first"], [LocalizedText("register {number}", number=3)]]),
        LocalizedText("{col}", col=[["p", "q", "r"]]),
    ),
)  # fmt: skip


def test_cell_tooltip_matches_browser(node):
    figure = to_json(LABELLED_MATRIX)
    cells = "[0, 1, 2, 3, 4, 5].map((i) => told(figure, Math.floor(i / 3), i % 3))"
    found = node("frontend/matrix.js", cells, figure=figure)
    assert found == [cell_tooltip(LABELLED_MATRIX, *place) for place in np.ndindex(2, 3)]


def test_nested_texts_are_translated():
    say = partial(translate, tag="ko")
    chart = by_layer(np.array([[1.0, 2.0]]), LocalizedText("Mean attention distance (px)"))
    dots = chart.plotly(say).data[0]
    assert (dots.name, hover_lines(dots.hovertext[1])) == ("헤드 하나", ["2", "레이어 1, 헤드 2"])
    assert cell_tooltip(LABELLED_MATRIX, 1, 0, say)[1] == "레지스터 3"


def test_labels_are_escaped_in_html():
    evil = "<a href='https://x'>&b</a>"
    line = Series(np.arange(2.0), np.ones(2), evil, line=True, told=("{who}",), also={"who": [evil, evil]})
    chart = Chart(evil, evil, (0, 1), (0, 1), evil, (line,), ticks=((0, evil),), notes=(evil,))
    for figure in (chart.plotly(), Matrix(np.eye(2), Scale("grey", 0, 1, evil), evil, evil, evil).plotly()):
        text = figure.to_json().replace("\\u003c", "<").replace("\\u0026", "&")
        assert "<a" not in text and "&lt;a href=" in text


def test_reference_line_outside_axis_is_legend_entry_only():
    levels = (ReferenceLine(9.0, "limit", beyond="limit: 9 (outside)"), ReferenceLine(0.5, "half"))
    figure = Chart("x", "y", (0, 1), (0, 1), levels=levels).plotly()
    (entry,), (shape,) = figure.data, figure.layout.shapes
    assert entry.name == "limit: 9 (outside)" and entry.showlegend and entry.x == (None,)
    assert (shape.name, shape.y0, shape.y1, shape.xref) == ("half", 0.5, 0.5, "paper")


def test_nan_points_have_no_hover_text_and_no_band():
    y, ends = np.array([1.0, np.nan, 3.0]), (np.array([0.0, np.nan, 2.0]), np.array([2.0, np.nan, 4.0]))
    series = (Series(np.arange(3), y, "n", line=True, band=ends),)
    band, line = Chart("x", "y", (0, 3), (0, 4), series=series).plotly().data
    assert line.hovertext[1] == "" and np.isnan(line.y[1])
    assert_close(band.x, [0, 2, 2, 0]), assert_close(band.y, [2, 4, 2, 0])


def test_error_bars_span_the_band():
    y, ends = np.array([1.0, 2.0]), (np.array([0.5, 1.9]), np.array([1.25, 3.0]))
    assert_plotly_matches_chart(
        Chart("x", "y", (0, 3), (0, 4), series=(Series(np.arange(2), y, dots=True, band=ends),))
    )


@pytest.mark.parametrize(
    ("dark", "colours", "paper"), [(False, "balance", "#ffffff"), (True, "balance_dark", "#0f1115")]
)
def test_templates_set_background_and_diverging_colormap(dark, colours, paper):
    figure = LABELLED_MATRIX.plotly(dark=dark)
    scale = [tuple(map(int, re.findall(r"\d+", colour))) for _, colour in figure.data[0].colorscale]
    np.testing.assert_array_equal(scale, TABLES[colours])
    assert figure.layout.template.layout.paper_bgcolor == paper
    name = "vitviz+dark" if dark else "vitviz"
    assert plotly.io.templates[name].layout.paper_bgcolor == paper
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (1.5, 2.5)  # the framed column


def test_long_labels_and_notes_are_wrapped():
    label = LocalizedText("a very long label of an axis that does not fit beside a chart of usual height")
    figure = Chart("x", label, (0, 1), (0, 1), notes=("word " * 40,)).plotly()
    assert max(map(len, figure.layout.yaxis.title.text.split("<br>"))) <= 44
    assert all(len(re.sub("<.*?>", "", line)) <= 84 for line in figure.layout.xaxis.title.text.split("<br>"))
