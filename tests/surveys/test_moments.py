"""Mean and variance of moments, against NumPy over all images and where naive sums fail."""

import numpy as np
import pytest

from vitviz.errors import VitvizError
from vitviz.surveys.moments import Moments, add_sums


def moments_of_parts(values, cuts):
    return [Moments.from_values(part) for part in np.split(values, cuts)]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_sum_of_parts_is_independent_of_order(order):
    values = np.random.default_rng(0).normal(5, 2, (101, 3, 4))
    split = moments_of_parts(values, [1, 40, 41])
    whole = split[order[0]]
    for index in order[1:]:
        whole = whole + split[index]
    assert whole.count == 101
    np.testing.assert_allclose(whole.mean, values.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(whole.variance, values.var(axis=0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(whole.error, values.std(axis=0, ddof=1) / np.sqrt(101), rtol=1e-12)


def test_small_variance_with_large_mean_is_exact():
    values = 1e9 + np.array(
        [4.0, 7.0, 13.0, 16.0]
    )  # variance 30; the difference of sums of squares is wrong here
    whole = (
        Moments.from_values(values[:1]) + Moments.from_values(values[1:2]) + Moments.from_values(values[2:])
    )
    assert float(whole.variance) == pytest.approx(30, rel=1e-9)


def test_pairwise_sum_of_parts_matches_numpy():
    values = np.random.default_rng(1).exponential(3, (64, 5))
    level = moments_of_parts(values, range(1, 64))
    while len(level) > 1:
        level = [one + two for one, two in zip(level[::2], level[1::2], strict=True)]
    np.testing.assert_allclose(level[0].variance, values.var(axis=0, ddof=1), rtol=1e-12)


def test_single_image_has_nan_standard_error():
    assert np.isnan(Moments.from_values(np.ones((1, 2))).error).all()


def test_other_shapes_and_empty_values_raise():
    with pytest.raises(VitvizError, match="one checkpoint at"):
        Moments.from_values(np.ones((2, 3))) + Moments.from_values(np.ones((2, 4)))
    with pytest.raises(VitvizError, match="one or more images"):
        Moments.from_values(np.ones((0, 3)))


def test_partial_quantity_keeps_its_own_count():
    sums = add_sums(
        {"a": Moments.from_values(np.ones(3))},
        {"a": Moments.from_values(np.zeros(1)), "b": Moments.from_values(np.ones(2))},
    )
    assert (sums["a"].count, sums["b"].count, float(sums["a"].mean)) == (4, 2, 0.75)
