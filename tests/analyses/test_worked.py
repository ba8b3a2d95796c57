"""Worked row of attention, against plain Python in float64 from q, k, scale and bias."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.analyses.oracle import GRIDS, grid_id
from vitviz.analyses import worked_row
from vitviz.analyses.example import example_trace
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Bias

GRID = Grid(3, 2, (8, 8), ("class",))


def row_by_hand(call, head: int, token: int, bias=None) -> tuple[list[float], list[float]]:
    """Return products and weights of one row."""
    q, keys = call.q[head, token].double().tolist(), call.k[head].double().tolist()
    products = [sum(a * b for a, b in zip(q, key, strict=True)) for key in keys]
    powers = [
        math.exp(product * call.scale + (bias[j] if bias is not None else 0))
        for j, product in enumerate(products)
    ]
    return products, [power / sum(powers) for power in powers]


@pytest.mark.parametrize("grid", GRIDS, ids=grid_id)
def test_worked_row_matches_hand_calculation_and_trace(grid):
    trace = example_trace(grid, seed=1)
    for token in range(grid.tokens):
        row = worked_row(
            trace, 1, 1, grid.prefix_names[token] if token < grid.prefix else token - grid.prefix
        )
        products, weights = row_by_hand(trace.layers[1], 1, token)
        assert row.token == token and row.bias is None and row.shift == 0
        np.testing.assert_allclose(row.products, products, rtol=1e-12)
        np.testing.assert_allclose(row.weights, weights, rtol=1e-12)
        np.testing.assert_allclose(row.weights, trace.attention(1)[1, token], atol=1e-6)
        np.testing.assert_allclose(row.powers / row.total, row.weights, rtol=1e-15)


def test_worked_row_includes_bias():
    trace = example_trace(GRID, seed=2)
    dense = torch.randn(2, GRID.tokens, GRID.tokens, generator=torch.Generator().manual_seed(3))
    layers = tuple(replace(layer, bias=Bias(dense=dense)) for layer in trace.layers)
    trace = replace(trace, layers=layers)
    row = worked_row(trace, 0, 1, (1, 1))
    token = GRID.token(1, 1)
    _, weights = row_by_hand(trace.layers[0], 1, token, dense[1, token].double().tolist())
    np.testing.assert_allclose(row.weights, weights, rtol=1e-12)
    np.testing.assert_allclose(row.bias, dense[1, token])
    np.testing.assert_allclose(row.weights, trace.attention(0)[1, token], atol=1e-6)


def test_worked_row_shifts_large_scores():
    trace = example_trace(GRID, seed=4)
    layer = replace(trace.layers[0], q=trace.layers[0].q * 500)
    row = worked_row(replace(trace, layers=(layer,)), 0, 0, "class")
    assert row.shift == row.scores.max() > 700 and np.isfinite(row.total)  # float64 cannot represent exp(710)
    np.testing.assert_allclose(row.weights, layer.weights()[0, 0], atol=1e-6)


def test_worked_row_output_is_weighted_values():
    trace = example_trace(GRID, seed=5)
    row = worked_row(trace, 0, 0, 3)
    np.testing.assert_allclose(row.output, trace.layers[0].output()[0, row.token], atol=1e-5)
    assert not row.replaced


def test_worked_row_of_replaced_head_returns_replacement():
    trace = example_trace(GRID, seed=6)
    given = torch.randn(
        1, GRID.tokens, trace.layers[0].v.shape[-1], generator=torch.Generator().manual_seed(7)
    )
    layer = replace(trace.layers[0], replaced=(1,), given=given)
    edited = replace(trace, layers=(layer, *trace.layers[1:]))
    for token, query in enumerate(("class", 0, 1, 2, 3, 4, 5)):
        replaced, kept = worked_row(edited, 0, 1, query), worked_row(edited, 0, 0, query)
        assert replaced.replaced and replaced.output.tolist() == given[0, token].double().tolist()
        np.testing.assert_allclose(
            replaced.weights, worked_row(trace, 0, 1, query).weights
        )  # its own weights remain
        assert not kept.replaced and torch.equal(kept.output, worked_row(trace, 0, 0, query).output)


@pytest.mark.parametrize(
    "layer, head, query, error",
    [(0, 2, 0, VitvizError), (0, -1, 0, VitvizError), (2, 0, 0, IndexError), (0, 0, 6, VitvizError)],
)
def test_unknown_layer_head_or_query_raises(layer, head, query, error):
    with pytest.raises(error):
        worked_row(example_trace(GRID), layer, head, query)
