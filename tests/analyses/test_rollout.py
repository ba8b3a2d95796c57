import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyses import oracle
from tests.tiers import sweep
from vitviz.analyses import streaming
from vitviz.analyses.example import example_trace
from vitviz.analyses.rollout import mean_attention, rollout, rollout_row, without_smallest
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid

CLASS = ("class",)
FUSIONS = ("mean", "max", "min")


def random_trace(grid, layers=3, heads=3, seed=1, **changes):
    attention = oracle.random_attention(grid, layers, heads, seed)
    return oracle.trace_with(grid, attention, **changes), attention


@sweep("size", [11, 2**19], quick=[11])
@pytest.mark.parametrize("fusion", FUSIONS)
@sweep("grid", oracle.GRIDS, quick=oracle.GRIDS[1:2], ids=oracle.grid_id)
def test_rollout_rows_match_oracle(monkeypatch, grid, fusion, size):
    monkeypatch.setattr(streaming, "BLOCK", size)
    trace, attention = random_trace(grid)
    for discard, residual in ((0, 0.5), (0, 0.2), (0.3, 0.5), (0.9, 0.5), (0.95, 0.0), (0, 1.0)):
        expected = oracle.rollout_matrix(attention, grid, fusion, discard, residual)
        queries = [*grid.prefix_names, *range(grid.patches)]
        found = np.stack([rollout_row(trace, query, fusion, discard, residual) for query in queries])
        np.testing.assert_allclose(found, expected, atol=1e-6)
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_rollout_map_is_patch_part_in_grid_shape(grid):
    trace, attention = random_trace(grid, pool="average")
    matrix = oracle.rollout_matrix(attention, grid)[:, grid.prefix :]
    shape = (grid.rows, grid.cols)
    expected = matrix[grid.prefix :].mean(axis=0).reshape(shape)
    np.testing.assert_allclose(rollout(trace), expected, atol=1e-6)
    np.testing.assert_allclose(rollout(trace, "mean"), expected, atol=1e-6)
    for number, cell in enumerate(oracle.cells(grid)):
        for query in (number, cell):
            np.testing.assert_allclose(
                rollout(trace, query), matrix[grid.prefix + number].reshape(shape), atol=1e-6
            )


def test_auto_query_follows_pooling():
    grid = oracle.GRIDS[2]
    for pool, query in (("class", "class"), ("average", "mean"), ("none", "class")):
        trace, _ = random_trace(grid, pool=pool)
        torch.testing.assert_close(rollout(trace), rollout(trace, query))
    assert not torch.allclose(rollout(trace, "class"), rollout(trace, "distillation"))


@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_rollout_of_attention_pooling_uses_pooling_weights(grid):
    pooling = example_trace(grid, heads=3, seed=9, pool="attention").pooling
    trace, attention = random_trace(grid, pool="attention", pooling=pooling)
    weights = oracle.attention_of(pooling).mean(axis=0)[0]  # over the heads; there is one query
    expected = (weights @ oracle.rollout_matrix(attention, grid))[grid.prefix :]
    np.testing.assert_allclose(rollout(trace).flatten(), expected, atol=1e-6)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("layers", [1, 4])
def test_rollout_of_uniform_attention_has_closed_form(fusion, layers):
    grid = oracle.GRIDS[3]
    trace = example_trace(grid, layers=layers)
    share, n = 2.0**-layers, grid.tokens
    expected = share * np.eye(n) + (1 - share) / n
    found = np.stack(
        [rollout_row(trace, query, fusion) for query in (*grid.prefix_names, *range(grid.patches))]
    )
    np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_rollout_of_identity_attention_is_identity(fusion):
    grid = oracle.GRIDS[1]
    trace = oracle.trace_with(grid, np.tile(np.eye(grid.tokens), (3, 2, 1, 1)))
    assert rollout_row(trace, 4, fusion).tolist() == pytest.approx(np.eye(grid.tokens)[5].tolist(), abs=1e-6)


def test_rollout_normalises_rows_and_not_columns():
    grid = oracle.GRIDS[3]
    trace, attention = random_trace(grid, layers=4)
    by_rows, by_columns = (
        oracle.rollout_matrix(attention, grid, "max", 0.9, axis=axis)[0, grid.prefix :] for axis in (1, 0)
    )
    assert abs(by_rows / by_rows.max() - by_columns / by_columns.max()).max() > 0.1, (
        "the example must distinguish both"
    )
    np.testing.assert_allclose(rollout(trace, "class", "max", 0.9).flatten(), by_rows, atol=1e-6)


def test_layer_range_is_zero_based_and_inclusive():
    grid = oracle.GRIDS[1]
    trace, attention = random_trace(grid, layers=4)
    for first, last in ((0, 3), (1, 2), (3, 3), (0, 0)):
        expected = oracle.rollout_matrix(attention[first : last + 1], grid)[0, 1:]
        np.testing.assert_allclose(rollout(trace, layers=(first, last)).flatten(), expected, atol=1e-6)
    torch.testing.assert_close(rollout(trace, layers=(0, 3)), rollout(trace))


@pytest.mark.parametrize("fusion", ["mean", "max"])
def test_fully_discarded_row_becomes_identity(fusion):
    grid = Grid(1, 3, (4, 4))
    attention = np.array([[0.8, 0.1, 0.1], [0.34, 0.33, 0.33], [0.1, 0.1, 0.8]])[None, None]
    trace = oracle.trace_with(grid, attention, pool="average")
    found = rollout_row(
        trace, 1, fusion, discard=0.78, residual=0.0
    )  # 7 of 9 entries are discarded, the whole middle row among them
    assert found.tolist() == [0, 1, 0]


def test_discard_removes_first_of_equal_entries():
    entries = torch.tensor([[2.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    assert without_smallest(entries, 0.5).tolist() == [[0, 0, 2], [0, 2, 3]]  # both 1, then the first 2
    assert without_smallest(entries, 0.17).tolist() == [[2, 0, 2], [1, 2, 3]]  # floor(1.02) = 1
    assert without_smallest(entries, 0.16).tolist() == entries.tolist()
    assert entries.tolist() == [[2, 1, 2], [1, 2, 3]], "the input is not modified"


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.integers(0, 3), min_size=4, max_size=24), discard=st.floats(0, 1, exclude_max=True))
def test_discard_matches_stable_sort(values, discard):
    values = values[: len(values) // 4 * 4]
    expected = np.array(values, float)
    expected[np.argsort(values, kind="stable")[: int(discard * len(values))]] = 0
    assert (
        without_smallest(torch.tensor(values).float().reshape(-1, 4), discard).flatten().tolist()
        == expected.tolist()
    )


def test_discard_keeps_prefix_columns():
    grid = Grid(1, 3, (4, 4), CLASS)
    attention = np.tile([0.01, 0.3, 0.33, 0.36], (4, 1))[
        None, None
    ]  # the class token's column is the smallest
    found = rollout_row(oracle.trace_with(grid, attention), "class", discard=0.99, residual=0.0)
    assert found[0] > 0


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 4),
    cols=st.integers(1, 4),
    prefix=st.integers(0, 3),
    heads=st.integers(1, 3),
    seed=st.integers(1, 1000),
    fusion=st.sampled_from(FUSIONS),
    discard=st.sampled_from((0.0, 0.5, 0.97)),
    residual=st.sampled_from((0.0, 0.5, 0.9)),
)
def test_rollout_row_is_a_distribution_and_matches_oracle(
    rows, cols, prefix, heads, seed, fusion, discard, residual
):
    grid = Grid(rows, cols, (8, 8), tuple(f"register {i + 1}" for i in range(prefix)))
    attention = oracle.random_attention(grid, 2, heads, seed)
    row = rollout_row(oracle.trace_with(grid, attention), "mean", fusion, discard, residual)
    assert row.sum().item() == pytest.approx(1, abs=1e-5) and (row >= 0).all()
    expected = oracle.rollout_matrix(attention, grid, fusion, discard, residual)[prefix:].mean(axis=0)
    np.testing.assert_allclose(row, expected, atol=1e-5)


@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_mean_attention_of_each_layer_matches_oracle(grid):
    trace, attention = random_trace(grid, pool="average")
    fused, shape = attention.mean(axis=1)[:, :, grid.prefix :], (3, grid.rows, grid.cols)
    np.testing.assert_allclose(mean_attention(trace, 1), fused[:, grid.prefix + 1].reshape(shape), atol=1e-6)
    np.testing.assert_allclose(
        mean_attention(trace), fused[:, grid.prefix :].mean(axis=1).reshape(shape), atol=1e-6
    )


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"discard": 1.0}, "discard=1.0 is not valid; expected a share from 0 to below 1"),
        ({"discard": -0.1}, "discard=-0.1"),
        ({"discard": float("nan")}, "discard=nan"),
        ({"residual": 1.5}, "residual=1.5 is not valid; expected a weight from 0 to 1"),
        ({"residual": float("nan")}, "residual=nan"),
        ({"fusion": "median"}, "fusion='median' is not valid; expected one of mean, max, min"),
        ({"layers": (0, 2)}, r"layers=\(0, 2\).* up to 1"),
        ({"layers": (1, 0)}, "layers="),
        ({"layers": (-1, 1)}, "layers="),
        ({"query": "distillation"}, "query='distillation' is not valid.*'class'"),
        ({"query": 6}, "from 0 to 5"),
        ({"query": -1}, "query=-1 is not valid"),
        ({"query": (2, 0)}, r"\(1, 2\)"),
        ({"query": (0, -1)}, "query=.* is not valid"),
        ({"query": True}, "query=True is not valid"),
    ],
)
def test_invalid_rollout_settings_raise(setting, message):
    with pytest.raises(VitvizError, match=message):
        rollout(example_trace(Grid(2, 3, (8, 8), CLASS)), **setting)


def test_missing_pooling_attention_raises():
    trace = oracle.trace_with(Grid(1, 2, (8, 8)), np.full((1, 1, 2, 2), 0.5), pool="attention")
    with pytest.raises(VitvizError, match="Choose 'mean', or a patch"):
        rollout(trace)
