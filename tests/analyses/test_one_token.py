import numpy as np
import pytest
import torch

from tests.analyses import oracle
from vitviz.analyses import streaming
from vitviz.analyses.example import example_trace
from vitviz.analyses.one_token import attended_by, attends_to
from vitviz.errors import VitvizError


@pytest.mark.parametrize("size", [11, 2**19])
@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_attends_to_and_attended_by_match_oracle(monkeypatch, grid, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace = example_trace(grid, layers=2, heads=3, seed=1)
    attention = oracle.all_attention(trace)
    for token, query in [*enumerate(grid.prefix_names), (grid.prefix + 4, 4), (grid.token(1, 0), (1, 0))]:
        np.testing.assert_allclose(attends_to(trace, 1, query), attention[1][:, token, :], rtol=1e-5)
        np.testing.assert_allclose(attended_by(trace, 1, query), attention[1][:, :, token], rtol=1e-5)
        assert not np.allclose(attention[1][:, token, :], attention[1][:, :, token], atol=0.05)


def test_attends_to_sums_to_one_unlike_attended_by():
    trace = example_trace(oracle.GRIDS[1], seed=1)
    torch.testing.assert_close(attends_to(trace, 0, 2).sum(dim=-1), torch.ones(2))
    assert (attended_by(trace, 0, 2).sum(dim=-1) - 1).abs().max() > 0.05


@pytest.mark.parametrize("function", [attends_to, attended_by])
def test_unknown_tokens_and_layers_raise(function):
    trace = example_trace(oracle.GRIDS[1])
    for query in ("auto", "distillation", 6, (3, 0)):
        with pytest.raises(VitvizError, match="is not valid; expected one of"):
            function(trace, 0, query)
    for layer in (-1, 2):
        with pytest.raises(IndexError, match="layers 0 to 1"):
            function(trace, layer, 0)
