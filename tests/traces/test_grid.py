import pytest

from tests.analyses.oracle import GRIDS, grid_id
from vitviz.traces.grid import Grid


@pytest.mark.parametrize("grid", GRIDS, ids=grid_id)
def test_patches_follow_the_prefix_row_by_row(grid):
    tokens = [grid.token(row, col) for row in range(grid.rows) for col in range(grid.cols)]
    assert tokens == list(range(grid.prefix, grid.tokens)) and len(tokens) == grid.patches
    for token in tokens:
        assert grid.token(*grid.cell(token)) == token


@pytest.mark.parametrize("grid", GRIDS, ids=grid_id)
def test_every_pixel_lies_in_its_patch(grid):
    height, width = grid.pixels
    assert (height, width) == (grid.rows * grid.patch[0], grid.cols * grid.patch[1])
    for y in range(height):
        for x in range(width):
            assert grid.cell(grid.patch_at(x, y)) == (y // grid.patch[0], x // grid.patch[1])


def test_the_paper_s_numbers():
    grid = Grid(14, 14, (16, 16), ("class",))
    assert (grid.patches, grid.tokens, grid.prefix, grid.pixels) == (196, 197, 1, (224, 224))


@pytest.mark.parametrize("row, col", [(-1, 0), (2, 0), (0, -1), (0, 3)])
def test_cells_outside_are_refused(row, col):
    with pytest.raises(IndexError, match="2 rows and 3 columns"):
        Grid(2, 3, (4, 6)).token(row, col)


@pytest.mark.parametrize("token", [-1, 0, 7])
def test_tokens_that_are_no_patch_are_refused(token):
    with pytest.raises(IndexError, match="patches are tokens 1 to 6"):
        Grid(2, 3, (4, 6), ("class",)).cell(token)


@pytest.mark.parametrize("x, y", [(-0.1, 0), (18, 0), (0, 8), (0, -1)])
def test_points_outside_are_refused(x, y):
    with pytest.raises(IndexError, match="18 x 8 pixels"):
        Grid(2, 3, (4, 6)).patch_at(x, y)
