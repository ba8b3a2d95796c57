"""The input size that uses a number of tokens and distorts an image least."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitviz.engine.images.preprocess import fitted_size


@settings(deadline=None)
@given(
    width=st.integers(1, 9000),
    height=st.integers(1, 9000),
    tokens=st.integers(1, 1500),
    patch=st.sampled_from([(16, 16), (14, 14), (8, 32)]),
)
def test_fitted_size_uses_tokens_with_least_distortion(width, height, tokens, patch):
    rows, cols = (
        length / side for length, side in zip(fitted_size((width, height), tokens, patch), patch, strict=True)
    )
    assert rows == int(rows) >= 1 and cols == int(cols) >= 1 and rows * cols <= tokens
    ideal = (
        np.sqrt(tokens * height / width * patch[1] / patch[0]),
        np.sqrt(tokens * width / height * patch[0] / patch[1]),
    )  # rows, cols
    if min(ideal) > 1 and tokens > 16:
        assert abs(rows - ideal[0]) <= 1 and abs(cols - ideal[1]) <= 1


def test_fitted_size_equals_hand_computed_sizes():
    assert fitted_size((300, 300), 196, (16, 16)) == (224, 224)
    assert fitted_size((451, 300), 196, (16, 16)) == (
        11 * 16,
        17 * 16,
    )  # 1.503: 17 / 11 = 1.545 is the nearest with 11 or 12 rows
    assert fitted_size((1010, 1000), 196, (16, 16)) == fitted_size((1000, 1010), 196, (16, 16)) == (224, 224)
    assert fitted_size((300, 451), 196, (16, 16)) == (17 * 16, 11 * 16)
    assert fitted_size((4000, 200), 196, (16, 16)) == (3 * 16, 62 * 16)
    assert fitted_size((300, 300), 64, (8, 32)) == (16 * 8, 4 * 32)
    with pytest.raises(ValueError, match="at least 1 patch"):
        fitted_size((3, 3), 0, (16, 16))
