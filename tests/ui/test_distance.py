"""The chart's tab: two checkpoints side by side are drawn on one scale."""

import pytest

from vitviz.panels import PANELS
from vitviz.ui.distance import Chart
from vitviz.ui.studio import Settings, Studio


@pytest.fixture(scope="module")
def studio():
    return Studio(Settings(device="cpu"))


def test_two_charts_side_by_side_have_one_scale(studio):
    (panel,) = [panel for panel in PANELS if panel.drawn_by == "chart"]
    picture = studio.keep_sample("coffee")
    small, large = (studio.look(picture, "vitviz-tiny", size) for size in ((64, 64), (128, 128)))
    *_, figure, _, other = Chart(panel, studio).draw({"key": small, "second_key": large})
    *_, alone, _, _ = Chart(panel, studio).draw({"key": small})
    assert list(figure.layout.yaxis.range) == list(other["value"].layout.yaxis.range)
    assert alone.layout.yaxis.range[1] < figure.layout.yaxis.range[1]
