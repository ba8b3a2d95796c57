"""Principal components of tokens, against scikit-learn, and their colours."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import vitviz
from tests.analyses import oracle
from tests.analyses.helpers import LONG_GRID, SHORT_GRID, random_tokens, with_tokens
from vitviz import analyses
from vitviz.analyses.example import example_trace
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("grid, width", [(SHORT_GRID, 40), (LONG_GRID, 9), (LONG_GRID, 42)])
def test_token_components_match_scikit_learn(grid, width, images):
    traces = [random_tokens(grid, width, seed) for seed in range(images)]
    patches = np.concatenate([trace.tokens[1][grid.prefix :].double().numpy() for trace in traces])
    for solver in ("full", "covariance_eigh"):
        expected = PCA(3, svd_solver=solver).fit(patches)
        result = vitviz.token_components(traces, 1)
        np.testing.assert_allclose(result.basis, expected.components_, atol=1e-5)
        np.testing.assert_allclose(result.shares, expected.explained_variance_ratio_, atol=1e-6)
        np.testing.assert_allclose(result.mean, expected.mean_, atol=1e-6)
        scores = expected.transform(patches).reshape(images, grid.rows, grid.cols, 3)
        np.testing.assert_allclose(result.scores, scores, atol=1e-4)
    variances = analyses.fit_basis(torch.tensor(patches)).variances
    np.testing.assert_allclose(variances, expected.explained_variance_, rtol=1e-6)


@pytest.mark.parametrize("grid, width", [(SHORT_GRID, 40), (LONG_GRID, 9)])
def test_token_components_reconstruct_rank_three_tokens(grid, width):
    random = np.random.default_rng(1)
    tokens = random.normal(size=(grid.tokens, 3)) @ random.normal(size=(3, width)) + random.normal(size=width)
    found = vitviz.token_components(with_tokens(grid, tokens), 0)
    again = found.scores[0].reshape(-1, 3) @ found.basis + found.mean
    np.testing.assert_allclose(again, tokens[grid.prefix :], atol=1e-5)
    assert found.shares.sum() == pytest.approx(1)


def test_component_scores_are_invariant_to_feature_rotation():
    trace = random_tokens(LONG_GRID)
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(9, 9)))
    turned = with_tokens(LONG_GRID, *(one.numpy() @ turn for one in trace.tokens))
    one, two = (vitviz.token_components(each, 1).scores[0].reshape(-1, 3).numpy() for each in (trace, turned))
    np.testing.assert_allclose(np.abs(one), np.abs(two), atol=1e-4)


def test_largest_loading_is_positive_and_prefix_tokens_are_ignored():
    trace = random_tokens(LONG_GRID)
    basis = vitviz.token_components(trace, 0).basis
    assert (basis.gather(1, basis.abs().argmax(dim=1, keepdim=True)) > 0).all()
    wild = trace.tokens[0].clone()
    wild[: LONG_GRID.prefix] *= 1000
    torch.testing.assert_close(vitviz.token_components(with_tokens(LONG_GRID, wild.numpy()), 0).basis, basis)


def test_constant_tokens_have_zero_variance_shares():
    found = vitviz.token_components(with_tokens(SHORT_GRID, np.ones((6, 40))), 0)
    assert found.shares.tolist() == [0, 0, 0] and found.scores.abs().max() < 1e-12


def test_invalid_component_requests_raise():
    trace, other = random_tokens(SHORT_GRID), random_tokens(LONG_GRID)
    with pytest.raises(VitvizError, match="2 x 3 patches 9 numbers wide, 6 x 7 patches"):
        vitviz.token_components([trace, other], 0)
    with pytest.raises(VitvizError, match="no image"):
        vitviz.token_components([], 0)
    for count in (0, 7):
        with pytest.raises(VitvizError, match="from 1 to 6 components of 6 patches"):
            vitviz.token_components(trace, 0, count=count)


def test_align_layers_undoes_rotation_of_scores():
    random = np.random.default_rng(3)
    one = torch.tensor(random.normal(size=(30, 3)))
    turns = [torch.tensor(np.linalg.qr(random.normal(size=(3, 3)))[0]) for _ in range(4)]
    for turned in analyses.align_layers([one @ turn for turn in turns], one):
        torch.testing.assert_close(turned, one)


def test_whitened_scores_have_unit_deviation_or_zero():
    tokens = torch.tensor(np.random.default_rng(4).normal(size=(50, 6)) * [9, 3, 1, 0.1, 0.1, 0.1])
    basis = analyses.fit_basis(tokens)
    np.testing.assert_allclose(
        analyses.whiten_scores(basis, basis.scores(tokens)).std(dim=0), [1, 1, 1], rtol=1e-9
    )
    flat = torch.cat([tokens[:, :1], torch.zeros(50, 5)], dim=1)
    basis = analyses.fit_basis(flat)
    np.testing.assert_allclose(
        analyses.whiten_scores(basis, basis.scores(flat)).std(dim=0), [1, 0, 0], atol=1e-9
    )
    assert analyses.whiten_scores(analyses.fit_basis(flat, 2), basis.scores(flat)[:, :2]).shape == (50, 3)


def test_patch_mean_colours_match_pixel_means():
    grid = Grid(2, 3, (4, 6))
    picture = np.random.default_rng(5).integers(0, 255, (8, 18, 3), dtype=np.uint8)
    trace = example_trace(grid)
    trace = replace(trace, view=replace(trace.view, picture=picture))
    means = np.array(
        [
            picture[4 * r : 4 * r + 4, 6 * c : 6 * c + 6].reshape(-1, 3).mean(axis=0) / 255
            for r, c in oracle.cells(grid)
        ]
    )
    np.testing.assert_allclose(analyses.patch_mean_colours(trace), means - means.mean(axis=0), atol=1e-12)
