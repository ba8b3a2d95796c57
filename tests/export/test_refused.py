"""What figures for print refuse, each with what would do."""

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
def test_what_does_not_exist_is_refused_with_what_does(inspector, trace, view, asked, words):
    with pytest.raises(VitvizError, match=words):
        vitviz.figure(view, inspector, trace, **asked)


def test_widths_formats_and_resolutions_are_bounded(made, inspector):
    for asked in (("gif", 100, 300), ("svg", 5, 300), ("png", 100, 72), ("png", 400, 600)):
        with pytest.raises(VitvizError):
            made("explorer").file(*asked)
    with pytest.raises(VitvizError, match="hand in a trace"):
        vitviz.figure("rollout", inspector)


def test_a_picture_that_was_not_traced_is_refused(inspector, trace):
    with pytest.raises(VitvizError, match="Hand in the picture that was traced"):
        vitviz.figure("rollout", inspector, trace, picture=vitviz.sample_image("chelsea"))
