"""Quantiles against NumPy's over all pictures: exact, however little room there is."""

import numpy as np
import pytest

from vitviz.surveys import parts
from vitviz.surveys.parts import RANKS, SurveyPart, quantiles_of
from vitviz.surveys.rows import Row


def parts_of(several):
    """A picture a dict of values, three pictures a part."""
    rows = [Row(i, str(i), None, None, None, None, None, values) for i, values in enumerate(several)]
    return lambda: (SurveyPart(rows[at : at + 3], [], {}, [], {}) for at in range(0, len(rows), 3))


@pytest.mark.parametrize("room", [1, 700, 2**25])
def test_they_are_numpys_whatever_room_there_is(room, monkeypatch):
    monkeypatch.setattr(parts, "ROOM", room)
    random = np.random.default_rng(0)
    values = {"a": random.lognormal(size=(101, 2, 3)), "b": random.normal(size=(101,))}
    pictures = [{name: np.asarray(one[i]) for name, one in values.items()} for i in range(101)]
    found = quantiles_of(parts_of(pictures), {"a": (2, 3), "b": (), "none": (2,)}, 101)
    for name, one in values.items():
        wanted = np.quantile(one, RANKS, axis=0, method="inverted_cdf")
        np.testing.assert_array_equal(found[name], wanted)
    assert found["none"].shape == (5, 2) and np.isnan(found["none"]).all()


def test_what_a_picture_has_no_number_of_does_not_count():
    pictures = [{"a": np.array([one, np.nan])} for one in (1.0, 3.0, 2.0)] + [
        {},
        {"a": np.array([np.nan] * 2)},
    ]
    found = quantiles_of(parts_of(pictures), {"a": (2,)}, 5)["a"]
    assert found[:, 0].tolist() == [1, 1, 2, 3, 3] and np.isnan(found[:, 1]).all()
