import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyses import oracle
from vitviz.analyses.similarity import position_similarity
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid


def random_embeddings(grid, width=5, seed=0):
    return torch.randn(grid.patches, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_position_similarity_matches_cosine_loops(grid):
    embeddings = random_embeddings(grid)
    found = position_similarity(embeddings, grid)
    assert found.shape == (grid.rows, grid.cols, grid.rows, grid.cols)
    rows = embeddings.double().tolist()
    for i, (r, c) in enumerate(oracle.cells(grid)):
        for j, (r2, c2) in enumerate(oracle.cells(grid)):
            a, b = rows[i], rows[j]
            cosine = (
                sum(x * y for x, y in zip(a, b, strict=True))
                / math.sqrt(sum(x * x for x in a))
                / math.sqrt(sum(x * x for x in b))
            )
            assert found[r, c, r2, c2].item() == pytest.approx(cosine, abs=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 5),
    cols=st.integers(1, 5),
    width=st.integers(1, 4),
    scale=st.sampled_from([1e-30, 1.0, 1e15]),
    seed=st.integers(0, 99),
)
def test_position_similarity_is_symmetric_with_unit_diagonal(rows, cols, width, scale, seed):
    grid = Grid(rows, cols, (8, 8))
    found = position_similarity(random_embeddings(grid, width, seed) * scale, grid).reshape(
        grid.patches, grid.patches
    )
    torch.testing.assert_close(found, found.T)
    torch.testing.assert_close(found.diagonal(), torch.ones(grid.patches))
    assert found.abs().max() <= 1


def test_zero_embedding_has_zero_similarity():
    grid = Grid(2, 2, (8, 8))
    embeddings = random_embeddings(grid)
    embeddings[2] = 0
    found = position_similarity(embeddings, grid)
    assert (found[1, 0] == 0).all() and (found[:, :, 1, 0] == 0).all() and found.isfinite().all()
    assert found[0, 1, 0, 1].item() == pytest.approx(1)


def test_position_table_of_wrong_size_raises():
    with pytest.raises(VitvizError, match="table of 7 rows does not fit; expected 6"):
        position_similarity(torch.zeros(7, 4), Grid(2, 3, (8, 8), ("class",)))


def test_axis_names_are_not_swapped_on_wide_grid():
    grid = Grid(1, 3, (8, 8))
    found = position_similarity(torch.tensor([[1.0, 0], [1, 1], [0, 1]]), grid)
    np.testing.assert_allclose(found[0, 0, 0], [1, math.sqrt(0.5), 0], atol=1e-6)
