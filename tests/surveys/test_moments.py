"""Mean and spread against NumPy over all pictures at once, and where naive sums lose everything."""

import numpy as np
import pytest

from vitviz.errors import VitvizError
from vitviz.surveys.moments import Moments, add_sums


def parts(values, cuts):
    return [Moments.from_values(part) for part in np.split(values, cuts)]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_parts_in_any_order_are_the_whole(order):
    values = np.random.default_rng(0).normal(5, 2, (101, 3, 4))
    split = parts(values, [1, 40, 41])
    whole = split[order[0]]
    for place in order[1:]:
        whole = whole + split[place]
    assert whole.count == 101
    np.testing.assert_allclose(whole.mean, values.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(whole.variance, values.var(axis=0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(whole.error, values.std(axis=0, ddof=1) / np.sqrt(101), rtol=1e-12)


def test_a_small_spread_beside_a_large_mean_is_not_lost():
    values = 1e9 + np.array(
        [4.0, 7.0, 13.0, 16.0]
    )  # variance 30; the difference of sums of squares gives nonsense
    whole = (
        Moments.from_values(values[:1]) + Moments.from_values(values[1:2]) + Moments.from_values(values[2:])
    )
    assert float(whole.variance) == pytest.approx(30, rel=1e-9)


def test_a_tree_of_parts_is_the_whole():
    values = np.random.default_rng(1).exponential(3, (64, 5))
    level = parts(values, range(1, 64))
    while len(level) > 1:
        level = [one + two for one, two in zip(level[::2], level[1::2], strict=True)]
    np.testing.assert_allclose(level[0].variance, values.var(axis=0, ddof=1), rtol=1e-12)


def test_one_picture_has_no_standard_error():
    assert np.isnan(Moments.from_values(np.ones((1, 2))).error).all()


def test_other_shapes_and_no_pictures_are_refused():
    with pytest.raises(VitvizError, match="one checkpoint at"):
        Moments.from_values(np.ones((2, 3))) + Moments.from_values(np.ones((2, 4)))
    with pytest.raises(VitvizError, match="one or more pictures"):
        Moments.from_values(np.ones((0, 3)))


def test_a_quantity_that_only_some_pictures_have_keeps_its_own_count():
    both = add_sums(
        {"a": Moments.from_values(np.ones(3))},
        {"a": Moments.from_values(np.zeros(1)), "b": Moments.from_values(np.ones(2))},
    )
    assert (both["a"].count, both["b"].count, float(both["a"].mean)) == (4, 2, 0.75)
