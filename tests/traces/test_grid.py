import pytest

from tests.analyses.oracle import GRIDS, grid_id
from vitviz.traces.grid import Grid


@pytest.mark.parametrize("grid", GRIDS, ids=grid_id)
def test_patch_tokens_follow_prefix_in_row_order(grid):
    tokens = [grid.token(row, col) for row in range(grid.rows) for col in range(grid.cols)]
    assert tokens == list(range(grid.prefix, grid.tokens)) and len(tokens) == grid.patches
    for token in tokens:
        assert grid.token(*grid.cell(token)) == token


@pytest.mark.parametrize("grid", GRIDS, ids=grid_id)
def test_patch_at_finds_the_patch_of_every_pixel(grid):
    height, width = grid.pixels
    assert (height, width) == (grid.rows * grid.patch[0], grid.cols * grid.patch[1])
    for y in range(height):
        for x in range(width):
            assert grid.cell(grid.patch_at(x, y)) == (y // grid.patch[0], x // grid.patch[1])


def test_grid_of_vit_base_has_published_sizes():
    grid = Grid(14, 14, (16, 16), ("class",))
    assert (grid.patches, grid.tokens, grid.prefix, grid.pixels) == (196, 197, 1, (224, 224))


@pytest.mark.parametrize("row, col", [(-1, 0), (2, 0), (0, -1), (0, 3)])
def test_cell_outside_grid_raises(row, col):
    with pytest.raises(IndexError, match="2 rows and 3 columns"):
        Grid(2, 3, (4, 6)).token(row, col)


@pytest.mark.parametrize("token", [-1, 0, 7])
def test_cell_of_prefix_or_unknown_token_raises(token):
    with pytest.raises(IndexError, match="patches are tokens 1 to 6"):
        Grid(2, 3, (4, 6), ("class",)).cell(token)


@pytest.mark.parametrize("x, y", [(-0.1, 0), (18, 0), (0, 8), (0, -1)])
def test_point_outside_image_raises(x, y):
    with pytest.raises(IndexError, match="18 x 8 pixels"):
        Grid(2, 3, (4, 6)).patch_at(x, y)
