"""Charts as data: the browser and the print figure show equal numbers, ticks and tooltips."""

import json

import numpy as np
import pytest

from vitviz.charts import chart
from vitviz.charts.chart import Bars, Chart, ReferenceLine, Series, by_layer, number, ticks, to_json, tooltip
from vitviz.traces.localized_text import LocalizedText

VALUES = [0.0, 1.0, -1.0, 0.1, 1 / 3, -0.12345, 12.3456, 999.4, 999.6, 1234.5, 9.9996, 1e5, -3.2e6, 1e-4,
          9.9e-5, -2e-6, 3.14159e-12, float("nan"), float("inf")]  # fmt: skip
RANGES = [(0, 1), (-1, 1), (0, 70.4922), (-0.37, 0.02), (3, 3), (0, 1e-5), (-2e4, 7e5), (0.4, 12.6)]


def test_number_format_matches_browser(node):
    given = [str(one) for one in VALUES]
    for digits in (2, 3, 4):
        found = node("frontend/numbers.js", f"given.map((one) => number(Number(one), {digits}))", given=given)
        assert found == [number(one, digits) for one in VALUES]


def test_ticks_match_browser(node):
    for count in (3, 5, 6):
        found = node("frontend/numbers.js", f"given.map(([a, b]) => ticks(a, b, {count}))", given=RANGES)
        for one, ends in zip(found, RANGES, strict=True):
            np.testing.assert_allclose(one, ticks(*ends, count), rtol=1e-9, atol=1e-12)


def test_browser_inks_are_print_colours(node):
    inks = node("frontend/chart.js", "Object.keys(INKS)")
    assert inks == [chart.BLUE, chart.ORANGE, chart.GREY]


DOT_CHART = by_layer(
    np.array([[20.0, 90.0], [110.0, np.nan]]), LocalizedText("how far"), "of {braces}", unit="px",
    told=(LocalizedText("{share} of its attention is on prefix tokens"),),
    also={"share": ["0.1", "0.2", "0.3", "0.4"]},
)  # fmt: skip
BAR_CHART = Chart(
    "x", "y", (0, 3), (0, 1), percent=True, levels=(ReferenceLine(0.5, "half"),),
    bars=Bars(np.array([1, 2]), np.zeros(2), np.array([0.25, 0.5]), ("#000000",) * 2, of={"depth": [0, 1]}),
    series=(
        Series(np.arange(2), np.array([0.1, 0.2]), said=("10 ± 1 %", "20 ± 2 %"), of={"layer": range(1, 3)}),
    ),
)  # fmt: skip


@pytest.mark.parametrize("chart_data", [DOT_CHART, BAR_CHART], ids=["dots", "bars"])
def test_tooltip_lines_match_browser(node, chart_data):
    for place, part in enumerate([*chart_data.series, *([chart_data.bars] if chart_data.bars else [])]):
        at = f"chart.series[{place}] ?? chart.bars"
        for i in np.flatnonzero(np.isfinite(part.y)).tolist():  # others are not drawn
            found = node("frontend/chart.js", f"told(chart, {at}, {i})", chart=to_json(chart_data))
            assert found == tooltip(chart_data, part, i), (place, i)


def test_tooltip_shows_value_unit_and_source():
    assert tooltip(DOT_CHART, DOT_CHART.series[0], 1) == [
        "90 px", "Layer 1, head 2", "0.2 of its attention is on prefix tokens",
    ]  # fmt: skip
    assert tooltip(BAR_CHART, BAR_CHART.bars, 1) == ["50 %", "Depth 1"]
    assert tooltip(BAR_CHART, BAR_CHART.series[0], 0) == ["10 ± 1 %", "Layer 1"]


def test_chart_serialises_to_strict_json():
    decoded = json.loads(json.dumps(to_json(DOT_CHART), allow_nan=False))
    assert decoded["series"][0]["y"] == [20.0, 90.0, 110.0, None] and decoded["x"] == [0.4, 2.6]
    assert decoded["series"][0]["of"] == {"layer": [1, 1, 2, 2], "head": [1, 2, 1, 2]}
    assert decoded["y_label"] == {"text": "how far", "values": {}} and decoded["title"] == "of {braces}"


def test_inline_svg_has_dot_titles_and_no_print_colours():
    from vitviz.charts.mpl.page import inline_svg

    text = inline_svg(DOT_CHART)
    assert text.startswith("<svg") and text.count("<title>") == 3
    assert "<title>Layer 2, head 1, 0.3 of its attention is on prefix tokens: 110 px</title>" in text
    assert "#ffffff" not in text and "#1a1a1a" not in text and "currentColor" in text
