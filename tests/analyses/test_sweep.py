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
@pytest.mark.parametrize("grid", oracle.GRIDS[1:], ids=oracle.named)
def test_one_pass_gives_what_the_single_functions_give(monkeypatch, grid, pool, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace = example_trace(grid, layers=3, heads=3, seed=1, pool=pool)
    seen, alone = sweep(trace), distances(trace)
    for name in ("distance", "renormalised", "prefix_mass"):
        torch.testing.assert_close(getattr(seen.distances, name), getattr(alone, name))
    torch.testing.assert_close(seen.rollout, rollout(trace))
    torch.testing.assert_close(sweep(trace, query=2, residual=0.3).rollout, rollout(trace, 2, residual=0.3))


def test_results_have_the_traces_precision():
    seen = sweep(example_trace(oracle.GRIDS[1], seed=1))
    assert {seen.rollout.dtype, seen.distances.distance.dtype, seen.distances.prefix_mass.dtype} == {
        torch.float32
    }
