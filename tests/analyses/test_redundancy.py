"""Attention received, entropy and redundancy of heads, against plain loops and SciPy."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from tests.analyses import oracle
from vitviz import analyses
from vitviz.analyses import streaming
from vitviz.analyses.example import example_trace
from vitviz.analyses.redundancy import query_information
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid

SIZES = pytest.mark.parametrize("size", [11, 2**19])
GRIDS = pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)


def entropy(row: np.ndarray) -> float:
    return -sum(p * math.log(p) for p in row if p > 0)


@SIZES
@GRIDS
def test_attention_received_matches_column_means(monkeypatch, grid, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace = example_trace(grid, heads=3, seed=1)
    for layer in (0, 1):
        found = analyses.attention_received(trace, layer)
        np.testing.assert_allclose(found, oracle.attention_of(trace.layers[layer]).mean(axis=1), rtol=1e-4)
        np.testing.assert_allclose(found.sum(dim=1), 1, rtol=1e-5)


@GRIDS
def test_query_information_matches_mutual_information(grid):
    trace = example_trace(grid, heads=3, seed=1)
    for layer in (0, 1):
        found = query_information(trace, layer)
        for head, weights in enumerate(oracle.attention_of(trace.layers[layer])):
            patches = weights[grid.prefix :, grid.prefix :]
            joint = patches / patches.sum(axis=1, keepdims=True) / grid.patches
            independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            pairs = [(p, q) for p, q in zip(joint.ravel(), independent.ravel(), strict=True) if p > 0]
            assert found[head] == pytest.approx(sum(p * math.log(p / q) for p, q in pairs), abs=1e-6)


def test_uniform_attention_is_received_uniformly():
    grid = oracle.GRIDS[1]
    np.testing.assert_allclose(
        analyses.attention_received(example_trace(grid), 0), 1 / grid.tokens, rtol=1e-6
    )


@SIZES
@GRIDS
def test_head_entropy_of_patches_and_prefix_tokens(monkeypatch, grid, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace = example_trace(grid, heads=3, seed=1)
    attention = oracle.attention_of(trace.layers[1])
    for keys in ("all", "patches"):
        weights = attention if keys == "all" else attention[..., grid.prefix :]
        weights = weights / weights.sum(axis=-1, keepdims=True)
        rows = np.array([[entropy(row) for row in head] for head in weights])
        found = analyses.head_entropy(trace, 1, keys)
        np.testing.assert_allclose(found.patches, rows[:, grid.prefix :].mean(axis=1), rtol=1e-5)
        np.testing.assert_allclose(found.prefix, rows[:, : grid.prefix], rtol=1e-5, atol=1e-6)


def test_head_entropy_of_uniform_and_identity_attention():
    grid = Grid(14, 14, (16, 16), ("class",))
    assert analyses.head_entropy(example_trace(grid), 0).patches.tolist() == pytest.approx(
        [5.283] * 2, abs=5e-4
    )
    identity = oracle.trace_with(grid, np.eye(grid.tokens)[None, None])
    assert analyses.head_entropy(identity, 0).patches.item() == pytest.approx(0, abs=1e-6)
    with pytest.raises(VitvizError, match="expected 'all' tokens or 'patches'"):
        analyses.head_entropy(identity, 0, keys="class")


@SIZES
@GRIDS
def test_head_redundancy_matches_cosine_and_divergence(monkeypatch, grid, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace = example_trace(grid, heads=3, seed=2)
    attention = oracle.attention_of(trace.layers[1])
    found = analyses.head_redundancy(trace, 1)
    for one in range(3):
        for other in range(3):
            a, b = attention[one], attention[other]
            cosine = (a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum())
            divergence = np.mean([jensenshannon(x, y) ** 2 for x, y in zip(a, b, strict=True)])
            assert found.cosine[one, other].item() == pytest.approx(cosine, rel=1e-4)
            assert found.divergence[one, other].item() == pytest.approx(divergence, abs=1e-5)


def test_heads_with_disjoint_attention_have_zero_cosine():
    grid = Grid(1, 4, (4, 4))
    swapped = np.eye(4)[[1, 0, 3, 2]]
    found = analyses.head_redundancy(
        oracle.trace_with(grid, np.stack([np.eye(4), swapped, np.eye(4)])[None]), 0
    )
    assert found.cosine[0].tolist() == pytest.approx([1, 0, 1], abs=1e-6)
    assert found.divergence[0].tolist() == pytest.approx([0, math.log(2), 0], abs=1e-6)
