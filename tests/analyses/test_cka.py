"""CKA against its definition in float64: plain loops over quadruples of images and over Gram matrices."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.analyses.helpers import hsic_by_loops
from vitviz import Grid
from vitviz.analyses import cka, cka_error, grams_of, hsic
from vitviz.analyses.example import example_trace
from vitviz.errors import VitvizError

GRID = Grid(2, 3, (4, 4), ("class", "register 1"))


def gram(count: int, features: int = 5, seed: int = 0) -> torch.Tensor:
    rows = np.random.default_rng(seed).normal(size=(count, features))
    return torch.from_numpy(rows @ rows.T)[None]


def hsic_by_quadruples(K, L) -> float:
    """Return the U-statistic (Song et al. 2012): the mean over ordered quadruples of distinct images."""
    terms = [
        K[i][j] * L[i][j] + K[i][j] * L[q][r] - 2 * K[i][j] * L[i][q]
        for i, j, q, r in itertools.permutations(range(len(K)), 4)
    ]
    return sum(map(float, terms)) / len(terms)


def traces(count: int, seed: int, grid: Grid = GRID, layers: int = 2) -> list:
    return [example_trace(grid, layers=layers, seed=100 * seed + number + 1) for number in range(count)]


def image_names(count: int, start: int = 0) -> list[str]:
    return [f"picture {start + number}" for number in range(count)]


def batches(given: list, size: int) -> list:
    return [
        grams_of(given[i : i + size], image_names(len(given[i : i + size]), i))
        for i in range(0, len(given), size)
    ]


def feature_rows(given: list, depth: int, tokens: str) -> np.ndarray:
    """Return X of the definition."""
    rows = []
    for trace in given:
        every, prefix = trace.tokens[depth].double().numpy(), trace.grid.prefix
        rows.append({"class": every[0], "patches": every[prefix:].mean(0), "all": every.ravel()}[tokens])
    return np.stack(rows)


@pytest.mark.parametrize("count", [4, 5, 7])
def test_hsic_matches_definition_and_mean_over_quadruples(count):
    K, L = gram(count, seed=1), gram(count, seed=2)
    found = hsic(K, L).item()
    assert found == pytest.approx(hsic_by_loops(K[0], L[0]), rel=1e-12)
    assert found == pytest.approx(hsic_by_quadruples(K[0].tolist(), L[0].tolist()), rel=1e-10)


def test_hsic_mean_over_minibatches_equals_full_set():
    K, L = gram(7, seed=3), gram(7, seed=4)
    parts = [
        hsic(K[:, [*some]][:, :, some], L[:, [*some]][:, :, some]).item()
        for some in itertools.combinations(range(7), 5)
    ]
    assert np.mean(parts) == pytest.approx(hsic(K, L).item(), rel=1e-12)


def test_hsic_is_nonnegative_on_diagonal_and_ignores_constant():
    for seed in range(20):
        K, L = gram(6, seed=seed), gram(6, seed=seed + 50)
        assert hsic(K, K).item() >= 0
        assert hsic(K + 7, L).item() == pytest.approx(hsic(K, L).item(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("tokens", ["class", "patches", "all"])
@pytest.mark.parametrize("sizes", [(9, 9), (10, 5)], ids=["one batch", "two"])
def test_cka_of_two_models_matches_loops(tokens, sizes):
    count, size = sizes
    one, other = traces(count, 1), traces(count, 2, Grid(1, 2, (8, 8), ("class",)), layers=3)
    found = cka(batches(one, size), batches(other, size), tokens)
    assert found.shape == (3, 4) and found.dtype == torch.float64
    for depth, depth2 in np.ndindex(3, 4):
        cross = first = second = 0.0
        for start in range(0, count, size):
            X = feature_rows(one, depth, tokens)[start : start + size]
            Y = feature_rows(other, depth2, tokens)[start : start + size]
            cross, first, second = (
                cross + hsic_by_loops(X @ X.T, Y @ Y.T),
                first + hsic_by_loops(X @ X.T, X @ X.T),
                second + hsic_by_loops(Y @ Y.T, Y @ Y.T),
            )
        assert found[depth, depth2].item() == pytest.approx(cross / math.sqrt(first * second), rel=1e-9)


def test_cka_is_invariant_to_rotation_scale_and_shift():
    one = traces(8, 5)
    width = one[0].tokens[0].shape[1]
    turn = torch.linalg.qr(
        torch.randn(width, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    )[0]
    moved = [replace(trace, tokens=tuple(3 * t.double() @ turn + 2 for t in trace.tokens)) for trace in one]
    for tokens in ("class", "patches", "all"):
        found = cka(batches(one, 8), batches(moved, 8), tokens)
        torch.testing.assert_close(found.diag(), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-12)


def test_cka_is_symmetric_with_unit_diagonal_and_transposes():
    one, other = batches(traces(12, 6), 6), batches(traces(12, 7), 6)
    own = cka(one, one)
    torch.testing.assert_close(own, own.T)
    torch.testing.assert_close(own.diag(), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(cka(one, other), cka(other, one).T)
    assert cka(one, other).abs().max() <= 1


@pytest.mark.sweep
def test_cka_of_unrelated_models_is_near_zero():
    """The biased estimate would be far above zero here, with few images and many channels."""
    wide = Grid(4, 4, (4, 4), ("class",))
    found = torch.cat(
        [
            cka(
                batches(traces(40, 2 * seed, wide), 8), batches(traces(40, 2 * seed + 1, wide), 8), "all"
            ).flatten()
            for seed in range(8)
        ]
    )
    assert abs(found.mean().item()) < 0.03 and -0.4 < found.min() < 0 < found.max() < 0.4


def test_cka_is_nan_where_all_images_are_identical():
    given = traces(6, 8)
    same = [
        replace(one, tokens=(torch.cat([given[0].tokens[0][:1], one.tokens[0][1:]]), *one.tokens[1:]))
        for one in given
    ]
    found = cka(batches(same, 6), batches(same, 6), "class")
    assert found[0].isnan().all() and found[:, 0].isnan().all() and not found[1:, 1:].isnan().any()
    assert not cka(batches(same, 6), batches(same, 6), "patches").isnan().any()
    nearly = [
        replace(one, tokens=(one.tokens[0] * (1 + 1.5e-7 * i), *one.tokens[1:])) for i, one in enumerate(same)
    ]
    assert cka(batches(nearly, 6), batches(nearly, 6), "class")[0].isnan().all()


def test_cka_error_is_the_jackknife_over_minibatches():
    one, other = (batches(traces(25, seed), 5) for seed in (9, 10))
    found = cka_error(one, other, "all")
    without = [[some[:out] + some[out + 1 :] for some in (one, other)] for out in range(5)]
    estimates = np.stack([cka(*some, "all").numpy() for some in without])
    spread = np.square(estimates - estimates.mean(axis=0)).sum(axis=0)
    np.testing.assert_allclose(found.numpy(), np.sqrt(spread * 4 / 5), rtol=1e-9)
    assert cka_error(one[:3], other[:3]).isnan().all(), "three minibatches are too few for an error"


@pytest.mark.sweep
def test_cka_error_matches_spread_over_image_sets():
    """The two models share half of their features.

    Each of many image sets gives an estimate and its error.
    """
    random, estimates, errors = np.random.default_rng(0), [], []
    empty = example_trace(Grid(1, 1, (4, 4)), layers=0)
    for _ in range(100):
        common, X, Y = (random.normal(size=(48, 8)) for _ in range(3))
        rows = [torch.from_numpy(common + own) for own in (X, Y)]
        pair = [batches([replace(empty, tokens=(row[None],)) for row in some], 8) for some in rows]
        estimates.append(cka(*pair).item())
        errors.append(cka_error(*pair).item())
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(estimates), rel=0.25)


@pytest.mark.parametrize(
    ("first", "second", "tokens", "message"),
    [
        (batches(traces(6, 1), 6), batches(traces(6, 1), 6), "mean", "'mean' is not valid; expected one of"),
        (batches(traces(6, 1), 6), batches(traces(5, 1), 5), "all", "6 and 5 images, are not the same"),
        (batches(traces(10, 1), 5), batches(traces(10, 1), 10), "all", "the same batch"),
        ([], [], "all", "batches, 0 and 0 images"),
        (batches(traces(6, 1), 6), batches(traces(6, 1, Grid(1, 2, (4, 4))), 6), "class", "no class token"),
    ],
)  # fmt: skip
def test_incomparable_models_raise(first, second, tokens, message):
    for function in (cka, cka_error):
        with pytest.raises(VitvizError, match=message):
            function(first, second, tokens)


def test_images_in_another_order_raise():
    given = traces(6, 1)
    swapped = grams_of([*given[1:], given[0]], [*image_names(6)[1:], image_names(6)[0]])
    with pytest.raises(VitvizError, match="in the same order"):
        cka(batches(given, 6), [swapped])


def test_too_few_images_raise():
    with pytest.raises(
        VitvizError, match="3 traces do not match 3 names of images; expected as many of each, at least 4"
    ):
        grams_of(traces(3, 1), image_names(3))
    with pytest.raises(VitvizError, match="n at least 4"):
        hsic(gram(3), gram(3))
    with pytest.raises(VitvizError, match="same n images"):
        hsic(gram(5), gram(6))
