"""Sums over a layer's attention: any rows, blocks of any size, any device, never an N x N matrix."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.analyses import oracle
from vitviz.analyses import streaming
from vitviz.analyses.distance import token_distances
from vitviz.analyses.example import example_trace
from vitviz.analyses.streaming import read_layer
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Bias

GRID = Grid(3, 4, (8, 6), ("class", "distillation"))


def layer_case(**options):
    """Return a trace's only layer, the distances between its tokens, and its attention by hand."""
    trace = example_trace(GRID, layers=1, seed=1, **options)
    return trace.layers[0], token_distances(trace), oracle.attention_of(trace.layers[0])


@pytest.mark.parametrize("size", [1, 14, 40, 14 * 14, 4 * 14 * 14, 2**19])
@pytest.mark.parametrize("queries", [[0], [5, 6], [3, 13], range(14)], ids=str)
def test_carried_row_is_weighted_mean_over_heads(monkeypatch, queries, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    attention, distances, weights = layer_case(heads=6)
    vector = torch.zeros(GRID.tokens)
    vector[list(queries)] = torch.arange(1.0, len(queries) + 1)
    expected = np.einsum("q,hqk->k", vector.numpy(), weights) / 6
    for given in (None, distances):
        np.testing.assert_allclose(
            read_layer(attention, GRID.prefix, given, vector).carried, expected, rtol=1e-5
        )


def test_zero_query_vector_carries_zeros():
    attention, *_ = layer_case()
    assert (
        read_layer(attention, GRID.prefix, vector=torch.zeros(GRID.tokens)).carried.tolist()
        == [0] * GRID.tokens
    )


@pytest.mark.parametrize("size", [14, 40, 2 * 14 * 14, 2**19])
@pytest.mark.parametrize(
    "change",
    ["large", "low", "one row is large", "bias", "large bias", "nothing on patches", "much on prefix"],
)
def test_layer_sums_match_oracle_for_extreme_scores(monkeypatch, change, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    attention, distances, _ = layer_case(heads=6)
    bias = torch.randn(6, GRID.tokens, GRID.tokens, generator=torch.Generator().manual_seed(2))
    if change == "large":
        attention = replace(attention, q=attention.q * 300)
    elif change == "one row is large":
        attention = replace(
            attention,
            q=torch.cat([attention.q[:, :9], attention.q[:, 9:10] * 300, attention.q[:, 10:]], dim=1),
        )
    else:
        bias = {
            "low": bias - 300,
            "bias": bias,
            "large bias": bias * 100,
            "nothing on patches": bias.index_fill(2, torch.arange(2, 14), -torch.inf),
            "much on prefix": bias.index_fill(2, torch.arange(2), 95),
        }[change]
        attention = replace(attention, bias=Bias(dense=bias))
    weights = oracle.attention_of(attention, bias.double().numpy() if attention.bias is not None else None)
    vector = torch.linspace(0, 1, GRID.tokens)
    found = read_layer(attention, GRID.prefix, distances, vector)
    np.testing.assert_allclose(
        found.carried, np.einsum("q,hqk->k", vector.numpy(), weights) / 6, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        found.distance, [oracle.head_distance(head, GRID, False) for head in weights], rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        found.prefix_mass, [oracle.head_prefix_mass(head, GRID) for head in weights], rtol=1e-4, atol=1e-7
    )
    if (
        weights[..., GRID.prefix :].sum(axis=-1).min() > 1e-30
    ):  # float32 rounds smaller masses to zero, which have no mean
        np.testing.assert_allclose(
            found.renormalised, [oracle.head_distance(head, GRID, True) for head in weights], rtol=1e-4
        )
    if change == "nothing on patches":
        assert found.renormalised.tolist() == [0] * 6


def test_cpu_and_other_device_weighting_agree():
    """The CPU has its own code path. Here the path of all other devices runs on CPU numbers."""

    class OtherDevice(torch.Tensor):
        is_cpu = False

    random = torch.Generator().manual_seed(3)
    powers, distances = torch.rand(2, 3, 50, generator=random), torch.rand(3, 50, generator=random)
    expected = torch.einsum("hrk,rk->hr", powers, distances).flatten()
    for one in (powers, powers.as_subclass(OtherDevice)):
        found = torch.zeros(6)
        streaming._weighing(one, distances)(found)
        torch.testing.assert_close(found, expected)


class LargestTensor(TorchDispatchMode):
    """Record the size of the largest tensor that any operation creates."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return result


def test_read_layer_never_allocates_full_matrix():
    grid = Grid(30, 40, (8, 8), ("class",))
    trace = example_trace(grid, layers=1, heads=1, seed=6)
    distances, vector = token_distances(trace), torch.ones(grid.tokens)
    with LargestTensor() as largest:
        read_layer(trace.layers[0], grid.prefix, distances, vector)
    assert 0 < largest.numbers <= streaming.BLOCK < grid.tokens**2


def test_calling_thread_allocates_below_torch_parallel_threshold(monkeypatch):
    """Torch parallelises from 2^15 numbers on.

    Its threads would then spin on the cores of the reading threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(streaming, "WORTHWHILE", 2**15)
    try:
        trace = example_trace(Grid(20, 30, (8, 8), ("class",)), layers=1, heads=20, seed=6)
        distances, vector = token_distances(trace), torch.ones(601)
        with LargestTensor() as largest:
            read_layer(trace.layers[0], 1, distances, vector)
    finally:
        torch.set_num_threads(before)
    assert 0 < largest.numbers < 2**15 < trace.layers[0].k.numel()
