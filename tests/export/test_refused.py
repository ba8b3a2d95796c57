"""Invalid requests for print figures."""

import pytest

import vitviz
from vitviz.errors import VitvizError


@pytest.mark.parametrize(
    ("view", "asked", "words"),
    [
        ("rollout", {"fusion": "sum"}, "expected one of mean, max, min"),
        ("rollout", {"colour": "red"}, "has no setting 'colour'"),
        ("explorer", {"layer": 9}, "from 1 to 8"),
        ("cls", {}, "There is no view 'cls'"),
        ("rollout", {"language": "fr"}, "expected one of en, zh-CN, ko"),
    ],
)
def test_unknown_view_or_setting_raises_with_valid_values(inspector, trace, view, asked, words):
    with pytest.raises(VitvizError, match=words):
        vitviz.figure(view, inspector, trace, **asked)


def test_figure_width_format_and_resolution_are_bounded(cached_figures, inspector):
    for asked in (("gif", 100, 300), ("svg", 5, 300), ("png", 100, 72), ("png", 400, 600)):
        with pytest.raises(VitvizError):
            cached_figures("explorer").file(*asked)
    with pytest.raises(VitvizError, match="pass a trace"):
        vitviz.figure("rollout", inspector)


def test_image_other_than_the_traced_one_raises(inspector, trace):
    with pytest.raises(VitvizError, match="Pass the image that was traced"):
        vitviz.figure("rollout", inspector, trace, picture=vitviz.sample_image("chelsea"))
