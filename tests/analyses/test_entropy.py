import math

import numpy as np
import pytest

from tests.analyses import oracle
from vitviz.analyses import streaming
from vitviz.analyses.example import example_trace
from vitviz.analyses.redundancy import attention_entropy


@pytest.mark.parametrize("size", [11, 2**19])
@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_attention_entropy_of_every_head_matches_loops(monkeypatch, grid, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace = example_trace(grid, heads=3, seed=1)
    attention = oracle.attention_of(trace.layers[1])
    expected = [-sum(p * math.log(p) for row in head for p in row) / grid.tokens for head in attention]
    np.testing.assert_allclose(attention_entropy(trace, 1), expected, rtol=1e-5)


def test_attention_entropy_of_identity_and_uniform():
    grid = oracle.GRIDS[2]
    identity = oracle.trace_with(grid, np.eye(grid.tokens)[None, None])
    assert attention_entropy(identity, 0).item() == pytest.approx(0, abs=1e-6)
    assert attention_entropy(example_trace(grid), 0).tolist() == pytest.approx([math.log(grid.tokens)] * 2)
