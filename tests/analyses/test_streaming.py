from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.analyses import oracle
from vitviz.analyses import streaming
from vitviz.analyses.example import example_trace
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Attention, Bias

GRID = Grid(3, 4, (8, 8), ("class",))


def full_matrix(attention: Attention, **options) -> torch.Tensor:
    """Return the assembled blocks, with NaN where no block lies."""
    result = torch.full((attention.heads, attention.q.shape[1], attention.k.shape[1]), float("nan"))
    for block in streaming.blocks(attention, **options):
        assert result[block.heads, block.rows].isnan().all(), "two blocks overlap"
        result[block.heads, block.rows] = block.weights()
    return result


@pytest.mark.parametrize("all_heads", [False, True])
@pytest.mark.parametrize("size", [1, 13, 40, 13 * 13, 2 * 13 * 13, 2**19])
def test_blocks_of_any_size_cover_the_attention(monkeypatch, size, all_heads):
    monkeypatch.setattr(streaming, "BLOCK", size)
    attention = example_trace(GRID, heads=3, seed=1).layers[0]
    np.testing.assert_allclose(
        full_matrix(attention, all_heads=all_heads), oracle.attention_of(attention), rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("factor", [1.0, 30.0, 1e4])
def test_softmax_of_large_scores_is_exact(factor):
    attention = example_trace(GRID, seed=2).layers[0]
    attention = replace(attention, q=attention.q * factor)
    scores = attention.q.double() @ attention.k.double().mT * attention.scale
    np.testing.assert_allclose(full_matrix(attention), torch.softmax(scores, dim=-1), atol=1e-4)


def test_offset_of_all_keys_changes_nothing():
    attention = example_trace(GRID, seed=3).layers[0]
    np.testing.assert_allclose(
        full_matrix(replace(attention, k=attention.k + 50)), full_matrix(attention), atol=1e-4
    )


@pytest.mark.parametrize("size", [13, 2**19])
@pytest.mark.parametrize(
    "kind", ["table", "dense", "one for all heads", "one for all queries", "large", "low", "shut"]
)
def test_bias_is_added_to_scores(monkeypatch, kind, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    random = torch.Generator().manual_seed(4)
    dense = torch.randn(3, 13, 13, generator=random)
    if kind == "table":
        index = torch.randint(0, 7, (13, 13), generator=random)
        table = torch.randn(3, 7, generator=random)
        bias, dense = (
            Bias(table=table, index=index),
            torch.stack([torch.stack([table[h][index[i]] for i in range(13)]) for h in range(3)]),
        )
    elif kind == "one for all heads":
        bias = Bias(dense=dense[:1])
        dense = dense[:1].expand(3, -1, -1)
    elif kind == "one for all queries":
        bias = Bias(dense=dense[:, :1])
        dense = dense[:, :1].expand(-1, 13, -1)
    else:
        masked = dense.masked_fill(torch.arange(13) > 9, -torch.inf)
        dense = {"dense": dense, "large": dense * 300, "low": dense - 300, "shut": masked}[kind]
        bias = Bias(dense=dense)
    attention = replace(example_trace(GRID, heads=3, seed=5).layers[0], bias=bias)
    expected = oracle.attention_of(attention, dense.double().numpy())
    np.testing.assert_allclose(full_matrix(attention), expected, atol=1e-5)
    np.testing.assert_allclose(attention.weights(), expected, atol=1e-5)
    np.testing.assert_allclose(attention.weights(slice(2, 5), slice(1, 2)), expected[1:2, 2:5], atol=1e-5)
