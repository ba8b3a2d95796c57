"""Similarity, components and norms of a layer's tokens, against plain loops and scikit-learn."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import vitviz
from tests.analyses import oracle
from tests.analyses.helpers import LONG_GRID, SHORT_GRID, random_tokens, with_tokens
from vitviz import analyses
from vitviz.errors import VitvizError
from vitviz.traces.trace import Trace


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(
        sum(x * x for x in a) * sum(y * y for y in b)
    )


class KnownNorm:
    """Final norm that multiplies channel i by i + 1."""

    def final_norm(self, trace, layer):
        return trace.tokens[layer] * torch.arange(1.0, trace.tokens[layer].shape[1] + 1)


# similarity


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_token_similarity_matches_cosine(grid, centred, normed):
    trace = random_tokens(grid)
    tokens = trace.tokens[2].double().numpy() * (np.arange(1, 10) if normed else 1)
    patches = tokens[grid.prefix :] - (tokens[grid.prefix :].mean(axis=0) if centred else 0)
    norm = KnownNorm() if normed else None
    for patch in (0, grid.patches - 1):
        found = vitviz.token_similarity(trace, 2, patch, centred=centred, norm=norm)
        expected = np.array([cosine(one, patches[patch]) for one in patches]).reshape(grid.rows, grid.cols)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert found.flatten()[patch] == pytest.approx(1)
    every = analyses.token_cosines(trace, 2, centred, norm).numpy()
    np.testing.assert_allclose(every, every.T, atol=1e-7)
    shifted = tokens - (tokens[grid.prefix :].mean(axis=0) if centred else 0)
    np.testing.assert_allclose(every, [[cosine(a, b) for b in shifted] for a in shifted], atol=1e-6)
    np.testing.assert_allclose(
        analyses.token_cosines(trace, 2, centred, norm, rows=[1, 0]), every[[1, 0]], atol=1e-7
    )


def test_token_similarity_ignores_scale_and_is_zero_for_zero_token():
    trace = random_tokens(LONG_GRID)
    scaled = with_tokens(LONG_GRID, *(one.numpy() * 7 for one in trace.tokens))
    np.testing.assert_allclose(
        vitviz.token_similarity(scaled, 1, 5), vitviz.token_similarity(trace, 1, 5), atol=1e-6
    )
    empty = trace.tokens[1].clone().numpy()
    empty[LONG_GRID.prefix + 3] = 0
    found = vitviz.token_similarity(with_tokens(LONG_GRID, empty), 0, 3)
    assert (found == 0).all()


def test_token_similarity_with_patch_of_second_image():
    one, two = random_tokens(LONG_GRID, seed=1), random_tokens(LONG_GRID, seed=2)
    a, b = (trace.tokens[1][LONG_GRID.prefix :].double().numpy() for trace in (one, two))
    mean = np.concatenate([a, b]).mean(axis=0)
    expected = np.array([cosine(x - mean, b[4] - mean) for x in a]).reshape(LONG_GRID.rows, LONG_GRID.cols)
    np.testing.assert_allclose(
        vitviz.token_similarity(one, 1, (0, 4), centred=True, of=two), expected, atol=1e-6
    )
    with pytest.raises(VitvizError, match="has 4 values, and a token of example has 9"):
        vitviz.token_similarity(one, 1, 0, of=random_tokens(LONG_GRID, width=4))


@pytest.mark.parametrize("patch", [-1, 6, True, (2, 0), (0, 3)])
def test_unknown_patch_raises(patch):
    with pytest.raises(VitvizError, match="expected a patch's number from 0 to 5"):
        vitviz.token_similarity(random_tokens(SHORT_GRID), 0, patch)


@pytest.mark.parametrize("layer", [-1, 3])
def test_unknown_layer_raises(layer):
    trace = random_tokens(SHORT_GRID)
    for call in (
        lambda: vitviz.token_similarity(trace, layer, 0),
        lambda: vitviz.token_components(trace, layer),
        lambda: analyses.largest_activations(trace, layer),
    ):
        with pytest.raises(IndexError, match="entering|enters block 1"):
            call()


# norms


@pytest.mark.parametrize("grid", oracle.GRIDS, ids=oracle.grid_id)
def test_token_norms_and_typical_norms_match_numpy(grid):
    trace = random_tokens(grid)
    expected = np.array(
        [[math.sqrt(sum(x * x for x in token)) for token in one.double().numpy()] for one in trace.tokens]
    )
    np.testing.assert_allclose(vitviz.token_norms(trace), expected, rtol=1e-6)
    typical, patches = analyses.typical_norms(trace), expected[:, grid.prefix :]
    median = np.median(patches, axis=1)
    mad = np.median(np.abs(patches - median[:, None]), axis=1)
    np.testing.assert_allclose(typical.median, median, rtol=1e-6)
    np.testing.assert_allclose(typical.mad, mad, rtol=1e-5)
    np.testing.assert_allclose(typical.limit(3), median + 3 * mad, rtol=1e-5)


def test_largest_activations_report_tokens_and_channels():
    tokens = np.random.default_rng(6).normal(size=(LONG_GRID.tokens, 8))
    tokens[5, 3], tokens[0, 7] = -90, 50
    found = analyses.largest_activations(with_tokens(LONG_GRID, tokens), 0, count=2)
    assert (
        found.values.tolist() == [-90, 50]
        and found.tokens.tolist() == [5, 0]
        and found.channels.tolist() == [3, 7]
    )
    assert found.typical == pytest.approx(np.median(np.abs(tokens)))
    with pytest.raises(VitvizError, match="expected from 1 to 352 numbers"):
        analyses.largest_activations(with_tokens(LONG_GRID, tokens), 0, count=0)


# removed patches


@dataclass(frozen=True, eq=False)
class TraceWithRemovedPatches(Trace):
    """Trace with removed patches."""

    kept: tuple[int, ...] = ()


def test_removed_patches_are_ignored_and_nan_in_maps():
    whole, kept = random_tokens(LONG_GRID), (0, 3, 4, 9, 20, 21, 40)
    positions = [0, 1, *(LONG_GRID.prefix + one for one in kept)]
    trace = TraceWithRemovedPatches(
        **{**vars(whole), "tokens": tuple(one[positions] for one in whole.tokens), "kept": kept}
    )
    cells = np.array(kept)
    found = vitviz.token_similarity(trace, 1, 9).numpy().ravel()
    patches = trace.tokens[1][2:].double().numpy()
    np.testing.assert_allclose(found[cells], [cosine(one, patches[3]) for one in patches], atol=1e-6)
    assert np.isnan(np.delete(found, cells)).all()
    scores = vitviz.token_components(trace, 1).scores.reshape(-1, 3).numpy()
    np.testing.assert_allclose(scores[cells], PCA(3).fit_transform(patches), atol=1e-4)
    assert np.isnan(np.delete(scores, cells, axis=0)).all()
    norms = analyses.to_sequence(trace, vitviz.token_norms(trace)).numpy()
    np.testing.assert_allclose(norms[1, positions], np.linalg.norm(trace.tokens[1], axis=1), rtol=1e-5)
    assert np.isnan(np.delete(norms, positions, axis=1)).all()
    with pytest.raises(VitvizError, match="Patch 1 was withheld"):
        vitviz.token_similarity(trace, 1, 1)
