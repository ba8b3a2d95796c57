"""Interactive HTML of a figure: its charts, offline, with plotly.js beside it or inside."""

import re
from importlib.resources import files

import numpy as np
import pytest

from vitviz.errors import VitvizError

SCRIPT = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()


def test_a_saved_page_loads_plotly_from_its_own_folder(made, tmp_path):
    figure = made("distance", True)
    path = figure.save(tmp_path / "distance.html")
    text = path.read_text(encoding="utf-8")
    assert re.findall(r'<script[^>]* src="(.*?)"', text) == ["plotly.min.js"] and len(text) < 200_000
    assert (tmp_path / "plotly.min.js").read_bytes() == SCRIPT
    assert (tmp_path / "distance.txt").read_text(encoding="utf-8") == figure.caption
    charts = [one for row in figure.spec.rows for one in row]
    assert text.count("Plotly.newPlot(") == len(charts) == 2
    for chart, drawn in zip(charts, figure.plotly(), strict=True):
        np.testing.assert_array_equal(drawn.data[0].y, chart.series[0].y)


def test_one_file_for_mail_has_plotly_inside_once(made):
    page = made("distance", True).html()
    assert page.count(SCRIPT[:200]) == 1 and b' src="' not in page.replace(SCRIPT.strip(), b"")
    assert page == made("distance", True).html()  # the same bytes again


def test_a_figure_without_a_chart_is_refused(made, tmp_path):
    with pytest.raises(VitvizError, match="has no chart. Save it as .svg"):
        made("rollout").save(tmp_path / "rollout.html")
    assert not list(tmp_path.iterdir())
