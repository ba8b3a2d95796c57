"""Property tests of the attention analyses on any grid, against formulas over whole matrices in float64."""

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.analyses import oracle
from vitviz.analyses import streaming
from vitviz.analyses.distance import distances, uniform_distance
from vitviz.analyses.example import example_trace
from vitviz.analyses.one_token import attended_by, attends_to
from vitviz.analyses.rollout import mean_attention, rollout, rollout_row
from vitviz.analyses.sweep import sweep
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Trace

NAMES = ("class", "distillation", "register 1", "register 2", "register 3")  # prefix tokens, from none to all


# Up to 5 x 6 patches, mostly not square, of mostly non-square size, after 0 to 5 prefix tokens.
grids = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 5),
        "cols": st.integers(1, 6),
        "patch": st.tuples(st.integers(1, 32), st.integers(1, 32)),
        "prefix_names": st.integers(0, len(NAMES)).map(lambda count: NAMES[:count]),
    }
)
models = st.fixed_dictionaries(
    {"layers": st.integers(1, 4), "heads": st.integers(1, 5), "seed": st.integers(1, 10_000)}
)


def random_case(grid: Grid, model: dict) -> tuple[Trace, np.ndarray]:
    """Return a trace of random queries and keys, and its attention: layer x head x query x key."""
    trace = example_trace(grid, **model, pool="class" if grid.prefix else "average")
    q, k = (torch.stack([getattr(layer, name) for layer in trace.layers]).double() for name in ("q", "k"))
    powers = np.exp((q @ k.mT).numpy() * trace.layers[0].scale)
    return trace, powers / powers.sum(axis=-1, keepdims=True)


def discards_same_entries(attention: np.ndarray, grid: Grid, fusion: str, discard: float) -> bool:
    """Return whether float32 and float64 discard the same entries in each layer."""
    fused = {"mean": np.mean, "max": np.max, "min": np.min}[fusion](attention, axis=1)[..., grid.prefix :]
    entries = np.sort(fused.reshape(len(fused), -1))
    last = int(discard * entries.shape[1])
    return last == 0 or bool((entries[:, last] > entries[:, last - 1] * (1 + 1e-4)).all())


def all_queries(grid: Grid) -> list:
    """Return every token as a query, in the order of the sequence."""
    return [*grid.prefix_names, *range(grid.patches)]


any_trace = settings(max_examples=25, deadline=None)
blocks = st.sampled_from((7, 60, 2**19))  # values per block: one row, a few rows, all


@any_trace
@given(grids, models, blocks)
def test_distances_and_prefix_mass_match_oracle(grid, model, block):
    grid = Grid(**grid)
    trace, attention = random_case(grid, model)
    with block_size(block):
        measured = distances(trace)
    for values, renormalise in ((measured.distance, False), (measured.renormalised, True)):
        expected = [[oracle.head_distance(head, grid, renormalise) for head in layer] for layer in attention]
        np.testing.assert_allclose(values, expected, rtol=2e-5, atol=1e-6)
    expected = [[oracle.head_prefix_mass(head, grid) for head in layer] for layer in attention]
    np.testing.assert_allclose(measured.prefix_mass, expected, rtol=2e-5, atol=1e-7)


@any_trace
@given(
    grids,
    models,
    blocks,
    st.sampled_from(("mean", "max", "min")),
    st.sampled_from((0.0, 0.3, 0.9)),
    st.sampled_from((0.0, 0.5, 0.8, 1.0)),
    st.data(),
)
def test_rollout_matches_oracle_for_any_query_and_layers(grid, model, block, fusion, discard, residual, data):
    grid = Grid(**grid)
    trace, attention = random_case(grid, model)
    first = data.draw(st.integers(0, len(attention) - 1))
    last = data.draw(st.integers(first, len(attention) - 1))
    assume(discards_same_entries(attention[first : last + 1], grid, fusion, discard))
    expected = oracle.rollout_matrix(attention[first : last + 1], grid, fusion, discard, residual)
    token = data.draw(st.integers(0, grid.tokens - 1))
    with block_size(block):
        row, mean = (
            rollout_row(trace, query, fusion, discard, residual, (first, last))
            for query in (all_queries(grid)[token], "mean")
        )
        shown = rollout(trace, "auto", fusion, discard, residual, (first, last))
    np.testing.assert_allclose(row, expected[token], atol=2e-5)
    np.testing.assert_allclose(mean, expected[grid.prefix :].mean(axis=0), atol=2e-5)
    read = expected[0] if trace.pool == "class" else expected[grid.prefix :].mean(axis=0)
    np.testing.assert_allclose(shown, read[grid.prefix :].reshape(grid.rows, grid.cols), atol=2e-5)


@any_trace
@given(grids, models, blocks, st.sampled_from((0.0, 0.5, 0.7, 1.0)), st.data())
def test_sweep_matches_oracle_for_distance_and_rollout(grid, model, block, residual, data):
    grid = Grid(**grid)
    trace, attention = random_case(grid, model)
    token = data.draw(st.integers(0, grid.tokens - 1))
    with block_size(block):
        result = sweep(trace, all_queries(grid)[token], residual)
    expected = oracle.rollout_matrix(attention, grid, residual=residual)[token, grid.prefix :]
    np.testing.assert_allclose(result.rollout.flatten(), expected, atol=2e-5)
    plain = [[oracle.head_distance(head, grid, False) for head in layer] for layer in attention]
    np.testing.assert_allclose(result.distances.distance, plain, rtol=2e-5, atol=1e-6)


@any_trace
@given(grids, models, blocks, st.data())
def test_attention_rows_columns_and_means_match_oracle(grid, model, block, data):
    grid = Grid(**grid)
    trace, attention = random_case(grid, model)
    token, layer = data.draw(st.integers(0, grid.tokens - 1)), data.draw(st.integers(0, len(attention) - 1))
    query = all_queries(grid)[token]
    with block_size(block):
        row, column, means = (
            attends_to(trace, layer, query),
            attended_by(trace, layer, query),
            mean_attention(trace, query),
        )
    np.testing.assert_allclose(row, attention[layer][:, token], rtol=2e-5, atol=1e-8)
    np.testing.assert_allclose(column, attention[layer][:, :, token], rtol=2e-5, atol=1e-8)
    fused = attention.mean(axis=1)[:, token, grid.prefix :].reshape(-1, grid.rows, grid.cols)
    np.testing.assert_allclose(means, fused, rtol=2e-5, atol=1e-8)


@any_trace
@given(grids, st.booleans())
def test_uniform_distance_matches_oracle(grid, renormalise):
    grid = Grid(**grid)
    even = np.full((grid.tokens, grid.tokens), 1 / grid.tokens)
    np.testing.assert_allclose(
        uniform_distance(grid, renormalise), oracle.head_distance(even, grid, renormalise), rtol=1e-6
    )


@any_trace
@given(grids, st.data())
def test_token_cell_and_pixel_conversions_are_consistent(grid, data):
    grid = Grid(**grid)
    token = data.draw(st.integers(grid.prefix, grid.tokens - 1))
    row, col = grid.cell(token)
    assert grid.token(row, col) == token
    down, right = data.draw(st.floats(0, 0.99)), data.draw(st.floats(0, 0.99))  # of a patch
    assert grid.patch_at(x=(col + right) * grid.patch[1], y=(row + down) * grid.patch[0]) == token


class block_size:
    """Set the number of attention values per block. A fixture would apply to all examples of a test."""

    def __init__(self, numbers: int):
        self._numbers = numbers

    def __enter__(self) -> None:
        self._usual, streaming.BLOCK = streaming.BLOCK, self._numbers

    def __exit__(self, *_) -> None:
        streaming.BLOCK = self._usual
