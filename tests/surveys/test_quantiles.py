"""Quantiles equal NumPy's over all images, for any memory limit."""

import numpy as np
import pytest

from vitviz.surveys import parts
from vitviz.surveys.parts import RANKS, SurveyPart, quantiles_of
from vitviz.surveys.rows import Row


def parts_of(several):
    """Return parts of three images; each image is a dict of values."""
    rows = [Row(i, str(i), None, None, None, None, None, values) for i, values in enumerate(several)]
    return lambda: (SurveyPart(rows[at : at + 3], [], {}, [], {}) for at in range(0, len(rows), 3))


@pytest.mark.parametrize("room", [1, 700, 2**25])
def test_quantiles_match_numpy_for_any_memory_limit(room, monkeypatch):
    monkeypatch.setattr(parts, "ROOM", room)
    random = np.random.default_rng(0)
    values = {"a": random.lognormal(size=(101, 2, 3)), "b": random.normal(size=(101,))}
    images = [{name: np.asarray(one[i]) for name, one in values.items()} for i in range(101)]
    found = quantiles_of(parts_of(images), {"a": (2, 3), "b": (), "none": (2,)}, 101)
    for name, one in values.items():
        wanted = np.quantile(one, RANKS, axis=0, method="inverted_cdf")
        np.testing.assert_array_equal(found[name], wanted)
    assert found["none"].shape == (5, 2) and np.isnan(found["none"]).all()


def test_missing_values_are_excluded_from_quantiles():
    images = [{"a": np.array([one, np.nan])} for one in (1.0, 3.0, 2.0)] + [
        {},
        {"a": np.array([np.nan] * 2)},
    ]
    found = quantiles_of(parts_of(images), {"a": (2,)}, 5)["a"]
    assert found[:, 0].tolist() == [1, 1, 2, 3, 3] and np.isnan(found[:, 1]).all()
