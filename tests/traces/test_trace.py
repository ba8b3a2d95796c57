import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.analyses import oracle
from vitviz.analyses.example import example_trace
from vitviz.traces.trace import Bias


@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_attention_is_softmax_over_keys(grid):
    trace = example_trace(grid, layers=2, heads=3, seed=1)
    expected = oracle.all_attention(trace)
    for layer in range(2):
        np.testing.assert_allclose(trace.attention(layer), expected[layer], rtol=1e-5)
        torch.testing.assert_close(trace.attention(layer).sum(dim=-1), torch.ones(3, grid.tokens))


def test_output_is_weighted_values():
    call = example_trace(oracle.GRIDS[1], seed=1).layers[0]
    weights, values = oracle.attention_of(call), call.v.double().numpy()
    expected = [[sum(weights[h, i, j] * values[h, j] for j in range(7)) for i in range(7)] for h in range(2)]
    np.testing.assert_allclose(call.output(), expected, atol=1e-5)


@pytest.mark.parametrize("block", [1, 5, 512])
def test_attention_rows_in_blocks_equal_attention(block):
    trace = example_trace(oracle.GRIDS[3], heads=3, seed=1)
    found = torch.full_like(trace.attention(1), float("nan"))
    for head, rows, weights in trace.attention_rows(1, block):
        found[head, rows] = weights
    torch.testing.assert_close(found, trace.attention(1))


def test_slices_of_biased_attention_equal_full_weights():
    call = example_trace(oracle.GRIDS[1], heads=3, seed=1).layers[0]
    index = torch.arange(49).reshape(7, 7) % 5
    table = Bias(table=torch.arange(15.0).reshape(3, 5), index=index)
    for bias in (table, Bias(dense=torch.randn(1, 7, 7)), Bias(dense=torch.randn(3, 1, 7))):
        biased = replace(call, bias=bias)
        assert not torch.allclose(biased.weights(), call.weights(), atol=0.05)
        torch.testing.assert_close(biased.weights(slice(2, 4), slice(1, 3)), biased.weights()[1:3, 2:4])


@pytest.mark.parametrize("layer", [-1, 2])
def test_unknown_layer_raises(layer):
    trace = example_trace(oracle.GRIDS[0])
    for function in (trace.layer, trace.attention, lambda layer: list(trace.attention_rows(layer))):
        with pytest.raises(IndexError, match="example has layers 0 to 1"):
            function(layer)


def test_top_returns_most_probable_classes():
    trace = replace(
        example_trace(oracle.GRIDS[0]), logits=torch.tensor([0.0, 2.0, 1.0]), labels=("cat", "dog", "owl")
    )
    total = 1 + np.exp(1) + np.exp(2)
    (first, p), (second, p2) = trace.top(2)
    assert (first, second) == ("dog", "owl")
    assert [p, p2] == pytest.approx([np.exp(2) / total, np.exp(1) / total])
    assert [name for name, _ in replace(trace, labels=("cat",)).top(9)] == ["class 1", "class 2", "class 0"]
    assert replace(trace, logits=None).top() == [] and replace(trace, logits=torch.zeros(0)).top() == []


def test_nbytes_sums_all_tensors():
    grid = oracle.GRIDS[1]  # 7 tokens, 6 patches of 8 x 8 pixels
    trace = example_trace(grid, layers=2, heads=2, width=4)
    layers, tokens, patches, picture = 2 * 3 * 2 * 7 * 4, 3 * 7 * 8, 6 * 8, 24 * 16 * 3
    assert trace.nbytes == 4 * (layers + tokens + patches) + picture
    with_pooling = replace(
        trace, pooling=example_trace(grid, pool="attention").pooling, position_embedded=torch.zeros(6, 8)
    )
    assert with_pooling.nbytes - trace.nbytes == 4 * (2 * 1 * 4 + 2 * 2 * 7 * 4 + 6 * 8)


def test_batch_view_counts_full_storage_and_pickles_alone():
    trace, shared = example_trace(oracle.GRIDS[1], seed=1), torch.randn(50, 3, 2, 7, 4)
    q, k, v = shared[7]
    viewed = replace(
        trace,
        layers=(replace(trace.layers[0], q=q, k=k, v=v),),
        tokens=tuple(torch.stack([tokens] * 50)[7] for tokens in trace.tokens),
    )
    assert viewed.nbytes > shared.nbytes
    data = pickle.dumps(viewed)
    assert len(data) < shared.nbytes / 2
    again = pickle.loads(data)
    torch.testing.assert_close(again.attention(0), viewed.attention(0))
    torch.testing.assert_close(again.tokens, viewed.tokens)


def test_trace_survives_pickling():
    trace = example_trace(oracle.GRIDS[3], seed=1)
    again = pickle.loads(pickle.dumps(trace))
    torch.testing.assert_close(again.attention(0), trace.attention(0))
    assert again.grid == trace.grid
