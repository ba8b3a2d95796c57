"""Line wrapping and number format of print figures."""

import pytest

from vitviz.charts.mpl.drawing import USUAL, FontMetrics
from vitviz.views.printing import fixed


@pytest.mark.parametrize(
    "text",
    ["在这张图片上胜过随机。", "在这张图片上胜过随，机", "领先 rollout。随机", "在图（之一）上，最多 5 %。"],
)
def test_no_line_begins_with_closing_punctuation(text):
    letters = FontMetrics((USUAL,))
    for line_width in (4, 6, 9, 12, 16, 20, 26):
        lines = letters.folded(text, line_width)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert not any(line[0] in "。，）%" for line in lines), lines


def test_closing_punctuation_wraps_with_preceding_character():
    letters = FontMetrics((USUAL,))
    assert letters.folded("一二三。", letters.width("一二三") + 0.1) == ["一二", "三。"]
    assert letters.folded("一二三。", letters.width("一二三。") + 0.1) == ["一二三。"]


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [(-0.0004, 3, "0.000"), (-0.0, 2, "0.00"), (-0.0006, 3, "−0.001"), (-12.345, 1, "−12.3"), (2, 2, "2.00")],
)
def test_fixed_uses_minus_sign_but_not_for_zero(value, digits, expected):
    assert fixed(value, digits) == expected
