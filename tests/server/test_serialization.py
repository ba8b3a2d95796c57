"""Arrays as plain numbers for JSON."""

import pytest

from vitviz.server.api.serialization import parse_whole, to_lists


def test_numbers_keep_six_significant_digits():
    assert to_lists([0.0, 1 / 3, 1234567.0, 1.23456789e-9, float("inf")]) == [
        0.0,
        0.333333,
        1234570.0,
        1.23457e-09,
        None,
    ]
    assert to_lists(5e-324) == 0.0
    with pytest.raises(ValueError, match="True"):
        parse_whole(True, "layer", 1, 3)
