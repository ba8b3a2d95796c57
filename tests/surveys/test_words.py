"""Heads in words, against the definition in numpy on hooked head outputs; resuming and errors."""

import json

import numpy as np
import pytest
import torch

import vitviz
from tests.engine import test_text
from tests.engine.random_inspectors import inspect, noise
from vitviz import analyses
from vitviz.analyses.words import LISTS, Spread, explain_head, random_squares
from vitviz.errors import VitvizError
from vitviz.surveys import surveying

IMAGES = [noise(seed, (48, 48)) for seed in range(14)]


def by_definition(c, vectors, random_lists, most):
    """Decompose C, the output of a head with one image per row, step by step with variances by numpy."""
    _, sizes, span = np.linalg.svd(c, full_matrices=False)
    span = span[: int((sizes > 1e-5 * sizes[0]).sum())]
    r, total, chosen, shares, chance = vectors @ span.T @ span, c.var(axis=0).sum(), [], [], []
    for step in range(min(most, len(span))):
        left = c.var(axis=0).sum()
        scores = [(c @ row).var() if np.linalg.norm(row) > 1e-7 else 0.0 for row in r]
        best = next(i for i, score in enumerate(scores) if score >= max(scores) * (1 - 1e-9))
        after = c - np.outer(c @ r[best], r[best]) / (r[best] @ r[best])
        best_of_lists = []
        _, _, axes = np.linalg.svd(
            c - c.mean(axis=0)
        )  # any axes of the span are equivalent for random vectors
        axes = axes[: len(span) - step]
        for one in random_lists:
            random = np.sqrt(one[:, : len(axes)]) @ axes
            win = max(random, key=lambda row: (c @ row).var())
            removed = c - np.outer(c @ win, win) / (win @ win)
            best_of_lists.append((left - removed.var(axis=0).sum()) / total)
        shares.append((left - after.var(axis=0).sum()) / total)
        chance.append(max(best_of_lists))
        if shares[-1] <= chance[-1]:
            break
        chosen.append(best)
        c, r = after, r - np.outer(r @ r[best], r[best]) / (r[best] @ r[best])
    return chosen, shares, chance


def written_by_hooks(model, inspector, width):
    """Return C of every head (layer, head, image, embedding): the contributions to each embedding axis."""
    traces, axes = [inspector.trace(picture) for picture in IMAGES], torch.eye(width).double()
    pixels = [test_text.pixels_of(inspector, trace) for trace in traces]
    found = [test_text.contributions_by_hooks(model, one, axes)[0] for one in pixels]
    return torch.stack(found, dim=2).detach().double().numpy()


@pytest.mark.parametrize("name", test_text.MODELS)
def test_words_and_shares_match_definition(name):
    model, rng = test_text.small_clip(name), np.random.default_rng(0)
    width = model.num_classes or model.embed_dim
    inspector = inspect(model, name)
    any_classes = vitviz.Classes(["one"], torch.ones(1, width))
    c = written_by_hooks(model, inspector.with_classes(any_classes), width)
    # words that some heads write: their largest directions, perturbed; one word occurs twice
    own = [np.linalg.svd(one - one.mean(axis=0))[2][0] for one in c[1:].reshape(-1, *c.shape[2:])]
    vectors = [one + 0.3 * rng.standard_normal(width) / width**0.5 for one in own]
    vectors = np.array([*vectors, vectors[2], *rng.standard_normal((4, width))])
    labels = [f"word {number}" for number in range(len(vectors))]
    classes = vitviz.Classes(labels, vectors)
    inspector_with_classes = inspector.with_classes(classes)
    survey = vitviz.survey(IMAGES, inspector_with_classes, ["words"], batch=4)
    found = survey.words
    squares = random_squares(len(vectors), survey.spreads["words.written"].mean.shape[-1], width)
    heads = [(layer, head) for layer in (1, 2) for head in range(3)]
    unit, several = classes.vectors.double().numpy(), 0
    for layer, head in heads:
        chosen, shares, chance = by_definition(c[layer, head], unit, squares, 5)
        assert found.words[layer][head] == tuple(labels[one] for one in chosen)
        several += len(chosen)
        for told, expected in ((found.shares, shares), (found.noise, chance)):
            np.testing.assert_allclose(told[layer, head][: len(expected)], expected, atol=2e-4)
            assert told[layer, head][len(expected) :].isnan().all()
        np.testing.assert_allclose(
            found.variance[layer, head], c[layer, head].var(axis=0, ddof=1).sum(), rtol=1e-3
        )
    assert several >= 6  # enough words were compared
    assert "word 6" not in {word for layer in found.words for words in layer for word in words}
    rows = [row for row in found.rows() if row["word"]]
    assert len(rows) == sum(len(words) for layer in found.words for words in layer)
    # another list, of the same survey
    again = vitviz.heads_in_words(inspector, survey, vitviz.Classes(labels[:6], vectors[:6]), most=1)
    assert again.shares.shape[-1] == 1 and again.pictures == len(IMAGES)


def random_lists(count, width, lists=LISTS):
    found = np.random.default_rng(1).standard_normal((lists, count, width)) ** 2
    return found / found.sum(axis=-1, keepdims=True)


def test_planted_words_are_found_in_order():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((30, 12))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[20] = vectors[7]  # a duplicate: the first word of the list must be chosen
    c = 5 * rng.standard_normal((200, 1)) * vectors[7] + 3 * rng.standard_normal((200, 1)) * vectors[3]
    c += 0.05 * rng.standard_normal((200, 12)) + 4 * vectors[1]  # and a constant part, equal for every image
    mean, rows = c.mean(axis=0), c - c.mean(axis=0)
    chosen, shares, _ = explain_head(mean * 200**0.5, rows, vectors, random_lists(30, 12), 6)
    assert chosen[:2] == [7, 3] and 20 not in chosen and 1 not in chosen
    assert sum(shares[:2]) > 0.99 and (len(shares) > len(chosen) or len(shares) == 6)
    alone = 0.05 * np.random.default_rng(2).standard_normal((200, 12))
    chosen, shares, chance = explain_head(
        alone.mean(0) * 200**0.5, alone - alone.mean(0), vectors, random_lists(30, 12), 6
    )
    assert chosen == [] and len(shares) == 1 and shares[0] <= chance[0]
    assert explain_head(np.ones(12), np.zeros((3, 12)), vectors, random_lists(30, 12), 6) == ([], [], [])
    assert explain_head(np.zeros(12), np.zeros((3, 12)), vectors, random_lists(30, 12), 6) == ([], [], [])


def test_random_squares_match_projected_unit_vectors():
    """Compare draws of a head's dimensions with draws of whole vectors."""
    whole = np.random.default_rng(5).standard_normal((20_000, 40))
    whole = (whole / np.linalg.norm(whole, axis=1, keepdims=True)) ** 2
    found = random_squares(1000, 6, 40)
    assert found.shape == (LISTS, 1000, 6) and random_squares(5, 50, 40).shape == (LISTS, 5, 40)
    for one, other in ((found[..., 0], whole[:, 0]), (found.sum(axis=-1), whole[:, :6].sum(axis=1))):
        ranks = np.linspace(0.02, 0.98, 25)
        np.testing.assert_allclose(np.quantile(one, ranks), np.quantile(other, ranks), rtol=0.15, atol=2e-4)
    np.testing.assert_allclose(random_squares(5, 50, 40).sum(axis=-1), 1, rtol=1e-6)


def test_random_words_pass_at_expected_rate():
    rng, passed = np.random.default_rng(0), 0
    for _ in range(400):
        c = rng.standard_normal((40, 6)) * [3, 2, 1, 1, 0.5, 0.2]
        lists = rng.standard_normal((LISTS, 10, 6)) ** 2
        passed += bool(
            explain_head(c.mean(0) * 40**0.5, c - c.mean(0), rng.standard_normal((10, 6)), lists, 1)[0]
        )
    assert 8 <= passed <= 32  # 19 are expected; 2.5 standard deviations below and 3 above


def test_spread_of_parts_is_order_independent_and_bounded():
    values = np.random.default_rng(0).standard_normal((50, 2, 3, 7)) + 3
    whole = Spread.from_values(values)
    for cuts in ([1, 2, 30], [25], list(range(1, 50))):
        parts = [Spread.from_values(one) for one in np.split(values, cuts)]
        for order in (parts, parts[::-1]):
            found = order[0]
            for part in order[1:]:
                found = found + part
                assert found.rows.shape[-2] <= 7
            assert found.count == 50
            np.testing.assert_allclose(found.mean, values.mean(0))
            for one in (whole, found):
                products = np.swapaxes(one.rows, -1, -2) @ one.rows
                expected = np.einsum("kabi,kabj->abij", values - values.mean(0), values - values.mean(0))
                np.testing.assert_allclose(products, expected, atol=1e-10)


@pytest.fixture(scope="module")
def inspector_with_classes():
    model = test_text.small_clip("class token and projection")
    return inspect(model, "small").with_classes(test_text.random_classes(model))


def test_resumed_survey_gives_equal_words(inspector_with_classes, tmp_path):
    whole = vitviz.survey(IMAGES[:7], inspector_with_classes, ["words", "distance"], part=3, batch=2)
    begun = vitviz.survey(IMAGES[:7], inspector_with_classes, ["words", "distance"], part=3, batch=2,
                          out=tmp_path, progress=lambda done, _: done < 5)  # fmt: skip
    assert not (tmp_path / "report.html").exists() and begun.images < 7
    found = vitviz.survey(
        IMAGES[:7], inspector_with_classes, ["words", "distance"], part=3, batch=2, out=tmp_path
    )
    assert found.words.words == whole.words.words and found.images == 7
    torch.testing.assert_close(found.words.shares, whole.words.shares, equal_nan=True)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["words"] == found.words.rows() and "words.written" not in summary["averages"]
    page = (tmp_path / "report.html").read_text()
    assert "Heads in words" in page and all(one in page for one in found.words.said()[0])
    running = list(surveying(IMAGES[:5], inspector_with_classes, ["words"], batch=2))
    again = vitviz.heads_in_words(inspector_with_classes, running[-1])
    assert again.pictures == 5 and again.layers == (0, 1, 2)


def test_words_of_insufficient_surveys_raise(inspector_with_classes):
    one = vitviz.survey(IMAGES[:1], inspector_with_classes, ["words"])
    assert one.words is None
    with pytest.raises(VitvizError, match="1 images and .* at least two images"):
        vitviz.heads_in_words(inspector_with_classes, one)
    two = vitviz.survey([IMAGES[0]] * 2, inspector_with_classes, ["words"])  # an image twice
    assert all(words == () for layer in two.words.words for words in layer)
    assert "same for every image" in two.words.said()[0][2]
    with pytest.raises(VitvizError, match="most=0"):
        vitviz.heads_in_words(inspector_with_classes, two, most=0)
    with pytest.raises(VitvizError, match='expected classes, and a survey that measured "words"'):
        vitviz.heads_in_words(
            inspector_with_classes, vitviz.survey(IMAGES[:2], inspector_with_classes, ["distance"])
        )
    with pytest.raises(VitvizError, match="no words to compare with"):
        vitviz.survey(IMAGES[:2], vitviz.load("vitviz-tiny"), ["words"])
    assert analyses.HeadsInWords is type(two.words)


@pytest.mark.parametrize("seed", range(8))
def test_rank_one_writes_give_no_word(seed):
    """Any vector removes all variance along one axis, so rounding must not select a word."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((2, 1)) * rng.standard_normal((1, 12))
    vectors = rng.standard_normal((9, 12))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    chosen, shares, chance = explain_head(np.zeros(12), rows, vectors, random_squares(9, 4, 12), 5)
    assert chosen == [] and shares == pytest.approx([1.0]) == chance
