import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyses import oracle
from vitviz.analyses import streaming
from vitviz.analyses.distance import (
    Distances,
    attention_distance,
    distances,
    pixel_distances,
    prefix_mass,
    uniform_distance,
)
from vitviz.analyses.example import example_trace
from vitviz.traces.grid import Grid

CLASS = ("class",)


@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_pixel_distances_match_oracle(grid):
    expected = [
        [oracle.pixel_distance(grid, one, two) for two in oracle.cells(grid)] for one in oracle.cells(grid)
    ]
    np.testing.assert_allclose(pixel_distances(grid), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "side, patch, expected", [(14, 16, 116.492), (7, 32, 115.503), (16, 14, 116.565), (24, 16, 200.048)]
)
@pytest.mark.parametrize("names", [(), CLASS])
def test_uniform_attention_over_patches_has_known_distance(side, patch, expected, names):
    grid = Grid(side, side, (patch, patch), names)
    assert uniform_distance(grid, renormalise=True) == pytest.approx(expected, abs=5e-4)
    assert attention_distance(example_trace(grid, layers=1), renormalise=True)[0, 0].item() == pytest.approx(
        expected, abs=5e-4
    )


def test_uniform_attention_over_197_tokens_has_known_distance():
    grid = Grid(14, 14, (16, 16), CLASS)
    assert uniform_distance(grid) == pytest.approx(115.901, abs=5e-4)
    np.testing.assert_allclose(
        attention_distance(example_trace(grid, layers=2, heads=3)), np.full((2, 3), 115.901), atol=5e-4
    )


@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_uniform_distance_equals_distance_of_uniform_head(grid, renormalise):
    uniform = np.full((grid.tokens, grid.tokens), 1 / grid.tokens)
    assert uniform_distance(grid, renormalise) == pytest.approx(
        oracle.head_distance(uniform, grid, renormalise)
    )


@pytest.mark.parametrize("renormalise", [False, True])
def test_uniform_distance_without_dropped_patches_equals_explicit_mean(renormalise):
    kept, own = [0, 4, 5, 11], 0 if renormalise else 1
    places = [(3 * (patch // 4), 5 * (patch % 4)) for patch in kept]
    expected = np.mean([np.sum([math.dist(a, b) for b in places]) / (len(kept) + own) for a in places])
    grid = Grid(3, 4, (3, 5), CLASS)
    assert uniform_distance(grid, renormalise, kept) == pytest.approx(expected)
    assert uniform_distance(grid, renormalise, range(12)) == pytest.approx(
        uniform_distance(grid, renormalise)
    )


@pytest.mark.parametrize("size", [11, 2**19])
@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_distance_and_prefix_mass_of_every_head_match_oracle(monkeypatch, grid, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace = example_trace(grid, layers=2, heads=3, seed=1)
    attention = oracle.all_attention(trace)
    for renormalise in (False, True):
        expected = [[oracle.head_distance(head, grid, renormalise) for head in layer] for layer in attention]
        np.testing.assert_allclose(attention_distance(trace, renormalise), expected, rtol=1e-5)
    expected = [[oracle.head_prefix_mass(head, grid) for head in layer] for layer in attention]
    np.testing.assert_allclose(prefix_mass(trace), expected, rtol=1e-5)


@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_identity_attention_has_zero_distance(grid):
    trace = oracle.trace_with(grid, np.eye(grid.tokens)[None, None])
    for renormalise in (False, True):
        assert attention_distance(trace, renormalise).item() == pytest.approx(0, abs=1e-6)
    assert prefix_mass(trace).item() == pytest.approx(0, abs=1e-6)


def test_row_without_patch_attention_has_finite_distance():
    grid = Grid(1, 2, (8, 8), CLASS)
    attention = np.tile([1.0, 0.0, 0.0], (3, 1))[None, None]
    measured = distances(oracle.trace_with(grid, attention))
    assert measured.prefix_mass.item() == pytest.approx(1)
    assert measured.distance.item() == pytest.approx(0, abs=1e-6) and measured.renormalised.isfinite().all()


def test_neighbour_distance_uses_patch_width_and_height():
    grid = Grid(2, 2, (4, 10), CLASS)
    to_the_side, down = np.eye(5)[[0, 2, 1, 4, 3]], np.eye(5)[[0, 3, 4, 1, 2]]
    assert attention_distance(
        oracle.trace_with(grid, np.stack([to_the_side, down])[None])
    ).flatten().tolist() == pytest.approx([10, 4])


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 5),
    cols=st.integers(1, 5),
    prefix=st.integers(0, 3),
    heads=st.integers(1, 4),
    seed=st.integers(1, 1000),
)
def test_distances_stay_within_bounds_for_any_attention(rows, cols, prefix, heads, seed):
    grid = Grid(rows, cols, (7, 3), tuple(f"register {i + 1}" for i in range(prefix)))
    measured = distances(example_trace(grid, layers=1, heads=heads, seed=seed))
    diagonal = float(np.hypot(7 * (rows - 1), 3 * (cols - 1)))
    assert ((measured.prefix_mass >= 0) & (measured.prefix_mass <= 1)).all()
    assert ((measured.distance >= 0) & (measured.distance <= measured.renormalised * (1 + 1e-6))).all()
    assert (measured.renormalised <= diagonal * (1 + 1e-6)).all()
    if prefix == 0:
        torch.testing.assert_close(measured.distance, measured.renormalised)


def test_mismatched_shapes_raise():
    with pytest.raises(Exception, match="layer head|shape|dimensions"):
        Distances(torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(2, 3))
