"""Random removal and shuffling of patches, counted one by one on grids of every shape."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitviz.analyses.perturbation import (
    mean_and_error,
    patches_kept,
    permutation,
    piece_sides,
    shuffled_pieces,
)
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid

sizes = st.tuples(st.integers(1, 16), st.integers(1, 16))
seeds = st.integers(0, 10_000)


def grid_of(size) -> Grid:
    return Grid(*size, (8, 8), ("class",))


@settings(max_examples=60, deadline=None)
@given(sizes, seeds)
def test_patches_kept_shrinks_by_floor_of_each_share(size, seed):
    grid = grid_of(size)
    before = set(range(grid.patches))
    for share in range(0, 101, 10):
        kept = patches_kept(grid, share, seed).tolist()
        assert kept == sorted(set(kept)) and set(kept) <= before
        assert grid.patches - len(kept) == share // 10 * grid.patches // 10
        before = set(kept)
    assert not before, "a share of 100 % removes every patch"


def test_patches_kept_depends_on_seed_only_and_is_uniform():
    grid = grid_of((14, 14))
    first = [patches_kept(grid, 50, seed).tolist() for seed in range(10)]
    assert first == [patches_kept(grid, 50, seed).tolist() for seed in range(10)]
    assert len(set(map(tuple, first))) == 10 and all(len(one) == 98 for one in first)
    often = np.bincount(np.concatenate([patches_kept(grid, 50, seed) for seed in range(400)]), minlength=196)
    assert abs(often - 200).max() < 5 * 10, "patches are removed equally often, within five deviations"


def test_piece_sides_divide_the_grid():
    assert piece_sides(grid_of((14, 14))) == (7, 2, 1) and piece_sides(grid_of((8, 8))) == (4, 2, 1)
    assert piece_sides(grid_of((10, 14))) == (2, 1) and piece_sides(grid_of((37, 37))) == (1,)
    assert piece_sides(grid_of((4, 8))) == (4, 2, 1), "two pieces are enough"
    assert piece_sides(grid_of((1, 1))) == ()


@settings(max_examples=60, deadline=None)
@given(sizes, seeds)
def test_shuffled_pieces_move_and_stay_intact(size, seed):
    grid = grid_of(size)
    for side in piece_sides(grid):
        order = shuffled_pieces(grid, side, seed)
        assert sorted(order.tolist()) == list(range(grid.patches)) and order.tolist() != sorted(order)
        order = order.reshape(grid.rows, grid.cols)
        pieces = [
            order[row : row + side, col : col + side]
            for row in range(0, grid.rows, side)
            for col in range(0, grid.cols, side)
        ]
        for piece in pieces:
            row, col = divmod(int(piece[0, 0]), grid.cols)
            assert row % side == col % side == 0, "a piece comes from a single piece of the image"
            expected = [[(row + r) * grid.cols + col + c for c in range(side)] for r in range(side)]
            assert piece.tolist() == expected, "patches keep their positions within a piece"


def test_shuffled_single_patches_and_two_pieces():
    grid = grid_of((14, 14))
    assert shuffled_pieces(grid, 1, 3).tolist() == permutation(196, 3).tolist()
    assert {tuple(shuffled_pieces(grid_of((1, 2)), 1, seed)) for seed in range(8)} == {(1, 0)}


def test_mean_and_error_match_hand_calculation():
    values = [0.1, 0.4, 0.4, 0.9]
    mean = sum(values) / 4
    error = (sum((one - mean) ** 2 for one in values) / 3 / 4) ** 0.5
    assert mean_and_error(torch.tensor(values)) == pytest.approx((mean, error))
    assert mean_and_error(torch.ones(10)) == (1.0, 0.0) and mean_and_error(torch.ones(1)) == (1.0, 0.0)


@pytest.mark.parametrize(
    "invalid_call",
    [
        lambda: patches_kept(grid_of((2, 2)), 101, 0),
        lambda: patches_kept(grid_of((2, 2)), -10, 0),
        lambda: patches_kept(grid_of((2, 2)), 50, -1),
        lambda: shuffled_pieces(grid_of((14, 14)), 3, 0),
        lambda: shuffled_pieces(grid_of((1, 1)), 1, 0),
    ],
)
def test_invalid_perturbation_arguments_raise(invalid_call):
    with pytest.raises(VitvizError, match="is not valid; expected "):
        invalid_call()
