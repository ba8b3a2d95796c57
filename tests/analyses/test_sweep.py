import pytest
import torch

from tests.analyses import oracle
from vitviz.analyses import streaming
from vitviz.analyses.distance import distances
from vitviz.analyses.example import example_trace
from vitviz.analyses.rollout import rollout
from vitviz.analyses.sweep import sweep


@pytest.mark.parametrize("size", [11, 2**19])
@pytest.mark.parametrize("pool", ["class", "average", "attention"])
@pytest.mark.parametrize("grid", oracle.GRIDS[1:], ids=oracle.grid_id)
def test_sweep_equals_separate_functions(monkeypatch, grid, pool, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace = example_trace(grid, layers=3, heads=3, seed=1, pool=pool)
    result, alone = sweep(trace), distances(trace)
    for name in ("distance", "renormalised", "prefix_mass"):
        torch.testing.assert_close(getattr(result.distances, name), getattr(alone, name))
    torch.testing.assert_close(result.rollout, rollout(trace))
    torch.testing.assert_close(sweep(trace, query=2, residual=0.3).rollout, rollout(trace, 2, residual=0.3))


def test_sweep_results_are_float32():
    result = sweep(example_trace(oracle.GRIDS[1], seed=1))
    assert {result.rollout.dtype, result.distances.distance.dtype, result.distances.prefix_mass.dtype} == {
        torch.float32
    }
