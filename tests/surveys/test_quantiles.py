"""Sketched quantiles against NumPy's over all pictures, by rank, which is what the sketch bounds."""

import numpy as np
import pytest

from vitviz.surveys.quantiles import RANK_ERROR, RANKS, Quantiles


def test_the_rank_of_each_quantile_is_within_the_stated_error():
    pytest.importorskip("datasketches", reason="datasketches is not installed: pip install 'vitviz[data]'")
    values = np.random.default_rng(0).lognormal(size=(20_000, 2, 3)).astype(np.float32)
    sketch = Quantiles((2, 3))
    for part in np.split(values, 40):
        sketch.add(part)
    found = sketch.found
    assert found.shape == (5, 2, 3)
    for rank, row in zip(RANKS, found, strict=True):
        off = np.abs((values <= row).mean(axis=0) - rank)
        assert off.max() < 2 * RANK_ERROR and np.median(off) < RANK_ERROR, rank


def test_few_pictures_are_exact():
    pytest.importorskip("datasketches", reason="datasketches is not installed: pip install 'vitviz[data]'")
    sketch = Quantiles(())
    sketch.add(np.arange(100.0))
    assert sketch.found.shape == (5,) and abs(sketch.found[2] - 49.5) <= 1


def test_a_number_that_no_picture_has_is_none():
    pytest.importorskip("datasketches", reason="datasketches is not installed: pip install 'vitviz[data]'")
    sketch = Quantiles((2,))
    assert np.isnan(sketch.found).all()
    sketch.add(np.array([[1.0, np.nan], [3.0, np.nan], [2.0, np.nan]]))
    assert sketch.found[2, 0] == 2 and np.isnan(sketch.found[:, 1]).all()


def test_without_the_library_there_are_none(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasketches", None)
    sketch = Quantiles((2,))
    sketch.add(np.ones((3, 2)))
    assert sketch.found is None
