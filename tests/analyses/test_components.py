"""Principal components of tokens against scikit-learn's, and their colours."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import vitviz
from tests.analyses import oracle
from tests.analyses.helpers import TALL, WIDE, random_tokens, with_tokens
from vitviz import analyses
from vitviz.analyses.example import example_trace
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid


@pytest.mark.parametrize("pictures", [1, 3])
@pytest.mark.parametrize("grid, width", [(WIDE, 40), (TALL, 9), (TALL, 42)])
def test_components_are_scikit_learns(grid, width, pictures):
    traces = [random_tokens(grid, width, seed) for seed in range(pictures)]
    patches = np.concatenate([trace.tokens[1][grid.prefix :].double().numpy() for trace in traces])
    for solver in ("full", "covariance_eigh"):
        theirs = PCA(3, svd_solver=solver).fit(patches)
        ours = vitviz.token_components(traces, 1)
        np.testing.assert_allclose(ours.basis, theirs.components_, atol=1e-5)
        np.testing.assert_allclose(ours.shares, theirs.explained_variance_ratio_, atol=1e-6)
        np.testing.assert_allclose(ours.mean, theirs.mean_, atol=1e-6)
        scores = theirs.transform(patches).reshape(pictures, grid.rows, grid.cols, 3)
        np.testing.assert_allclose(ours.scores, scores, atol=1e-4)
    variances = analyses.fit_basis(torch.tensor(patches)).variances
    np.testing.assert_allclose(variances, theirs.explained_variance_, rtol=1e-6)


@pytest.mark.parametrize("grid, width", [(WIDE, 40), (TALL, 9)])
def test_tokens_of_rank_three_are_reconstructed(grid, width):
    random = np.random.default_rng(1)
    tokens = random.normal(size=(grid.tokens, 3)) @ random.normal(size=(3, width)) + random.normal(size=width)
    found = vitviz.token_components(with_tokens(grid, tokens), 0)
    again = found.scores[0].reshape(-1, 3) @ found.basis + found.mean
    np.testing.assert_allclose(again, tokens[grid.prefix :], atol=1e-5)
    assert found.shares.sum() == pytest.approx(1)


def test_scores_do_not_change_when_features_are_turned():
    trace = random_tokens(TALL)
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(9, 9)))
    turned = with_tokens(TALL, *(one.numpy() @ turn for one in trace.tokens))
    one, two = (vitviz.token_components(each, 1).scores[0].reshape(-1, 3).numpy() for each in (trace, turned))
    np.testing.assert_allclose(np.abs(one), np.abs(two), atol=1e-4)


def test_the_largest_loading_is_positive_and_prefix_tokens_are_not_fitted():
    trace = random_tokens(TALL)
    basis = vitviz.token_components(trace, 0).basis
    assert (basis.gather(1, basis.abs().argmax(dim=1, keepdim=True)) > 0).all()
    wild = trace.tokens[0].clone()
    wild[: TALL.prefix] *= 1000
    torch.testing.assert_close(vitviz.token_components(with_tokens(TALL, wild.numpy()), 0).basis, basis)


def test_what_does_not_vary_has_no_shares():
    found = vitviz.token_components(with_tokens(WIDE, np.ones((6, 40))), 0)
    assert found.shares.tolist() == [0, 0, 0] and found.scores.abs().max() < 1e-12


def test_components_that_cannot_be_are_refused():
    trace, other = random_tokens(WIDE), random_tokens(TALL)
    with pytest.raises(VitvizError, match="2 x 3 patches 9 numbers wide, 6 x 7 patches"):
        vitviz.token_components([trace, other], 0)
    with pytest.raises(VitvizError, match="no picture"):
        vitviz.token_components([], 0)
    for count in (0, 7):
        with pytest.raises(VitvizError, match="from 1 to 6 components of 6 patches"):
            vitviz.token_components(trace, 0, count=count)


def test_colours_stay_where_a_basis_turns():
    random = np.random.default_rng(3)
    one = torch.tensor(random.normal(size=(30, 3)))
    turns = [torch.tensor(np.linalg.qr(random.normal(size=(3, 3)))[0]) for _ in range(4)]
    for turned in analyses.align_layers([one @ turn for turn in turns], one):
        torch.testing.assert_close(turned, one)


def test_whitened_scores_have_unit_deviation_and_nothing_is_divided_by_nothing():
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


def test_the_pictures_own_colours_are_means_of_patches():
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
