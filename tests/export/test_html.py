"""Interactive HTML of a figure works offline, with plotly.js beside it or inside."""

import re
from importlib.resources import files

import numpy as np
import pytest

from vitviz.errors import VitvizError

SCRIPT = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()


def test_saved_page_loads_plotly_from_its_folder(cached_figures, tmp_path):
    figure = cached_figures("distance", True)
    path = figure.save(tmp_path / "distance.html")
    text = path.read_text(encoding="utf-8")
    assert re.findall(r'<script[^>]* src="(.*?)"', text) == ["plotly.min.js"] and len(text) < 200_000
    assert (tmp_path / "plotly.min.js").read_bytes() == SCRIPT
    assert (tmp_path / "distance.txt").read_text(encoding="utf-8") == figure.caption
    charts = [one for row in figure.spec.rows for one in row]
    assert text.count("Plotly.newPlot(") == len(charts) == 2
    for chart, drawn in zip(charts, figure.plotly(), strict=True):
        np.testing.assert_array_equal(drawn.data[0].y, chart.series[0].y)


def test_single_file_contains_plotly_once(cached_figures):
    page = cached_figures("distance", True).html()
    assert page.count(SCRIPT[:200]) == 1 and b' src="' not in page.replace(SCRIPT.strip(), b"")
    assert page == cached_figures("distance", True).html()  # the same bytes again


def test_html_of_figure_without_chart_raises(cached_figures, tmp_path):
    with pytest.raises(VitvizError, match="has no chart. Save it as .svg"):
        cached_figures("rollout").save(tmp_path / "rollout.html")
    assert not list(tmp_path.iterdir())
