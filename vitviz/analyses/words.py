"""Heads in words: the few sentences whose directions explain most of a head's variance over images.

Row k of C is what one head writes into image k's embedding z, through all norms and the projection and
divided by |z|, all held as in the logit attribution: <C_k, t> is the head's contribution to the cosine with
t. Constants, which say nothing about a head, are left out. TextSpan (Gandelsman et al. 2024, arXiv
2310.05916, section 4.1, where |z| is not divided out) projects the sentences' unit vectors R onto the span of
C's rows (C not centred; singular values below 1e-6 of the largest are rounding), and then repeats

    m = argmax_i var_k(<C_k, r_i>),   C <- C - C r_m r_m' / |r_m|^2,   R <- R - R r_m r_m' / |r_m|^2

r is not normalised again, because otherwise the rounding residue of a near-duplicate would win. A sentence of
which less than 1e-6 is left is already expressed. Of equal sentences the first in the list wins. The share of
a sentence is the fraction of the variance of C, the mean over images subtracted, that its step removes;
shares add up to at most 1.

The search stops where a share is no larger than that of the best of as many random unit vectors as there are
sentences, in all of 20 such lists: a head that nothing explains has no words. With few images C has few
dimensions, in which any vector explains much, and this test accounts for that. It does not show that a head
detects what a word means: only the given words can be found, and what a head writes to other heads is not
included.

C is never kept. For every head the mean over images is kept, and as many rows as the head has dimensions,
whose products are those of the centred C (the R of a QR decomposition). Results of separate parts can be
added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.analyses.target import features
from vitviz.errors import VitvizError, quoted, whole_number
from vitviz.traces.classes import Classes
from vitviz.traces.display import NotebookTable

LAST = 4  # layers of a model with attention pooling, where a head has as many features as the model's width
LISTS = 20  # lists of random vectors: chance reaches the best of all of them once in 21 times
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Spread:
    """Number, mean and scatter of images' vectors, for many heads at once.

    >>> both = Spread.from_values(np.array([[[1.0, 0.0]], [[3.0,
    ...     0.0]]])) + Spread.from_values(np.array([[[2.0, 3.0]]]))
    >>> both.count, both.mean.tolist(), (both.rows.mT @ both.rows).round(9).tolist()
    (3, [[2.0, 1.0]], [[[2.0, 0.0], [0.0, 6.0]]])
    """

    count: int
    mean: Float[np.ndarray, "*head feature"]
    rows: Float[np.ndarray, "*head row feature"]  # rows' rows = sum (x - mean)(x - mean)', row <= feature

    @classmethod
    def from_values(cls, values: Float[np.ndarray, "picture *head feature"]) -> Spread:
        """Return the spread of some images' vectors, in float64."""
        mean = values.mean(axis=0, dtype=np.float64)
        return cls(len(values), mean, _smaller_side(np.moveaxis(values - mean, 0, -2)))

    def __add__(self, other: Spread) -> Spread:
        count, apart = self.count + other.count, other.mean - self.mean
        between = apart * np.sqrt(self.count * other.count / count)
        rows = np.concatenate([self.rows, other.rows, between[..., None, :]], axis=-2)
        return Spread(count, self.mean + apart * (other.count / count), _smaller_side(rows))


def _smaller_side(rows: np.ndarray) -> np.ndarray:
    """Return at most as many rows as features, with equal rows^T rows: the rows, or R of their QR."""
    return rows if rows.shape[-2] <= rows.shape[-1] else np.linalg.qr(rows, mode="r")


@dataclass(frozen=True)
class HeadsInWords(NotebookTable):
    """Words of each head, with their shares of the head's variance; missing steps are NaN."""

    layers: tuple[int, ...]  # indices of the model's layers, from 0
    words: tuple[tuple[tuple[str, ...], ...], ...]  # by layer and head; empty if nothing explains the head
    shares: Float[Tensor, "layer head step"]  # includes the sentence at which the search stopped
    noise: Float[Tensor, "layer head step"]  # share that random vectors remove in that step
    variance: Float[Tensor, "layer head"]  # variance of what each head writes, in squared cosines
    pictures: int

    def rows(self) -> list[dict]:
        """Return one row per word, layers and heads from 0; an unexplained head has the word None."""
        result = []
        for layer, number in enumerate(self.layers):
            for head, words in enumerate(self.words[layer]):
                about = {"layer": number, "head": head, "variance": self.variance[layer, head].item()}
                for step, word in enumerate(words or (None,)):
                    of = {"share": self.shares[layer, head, step], "noise": self.noise[layer, head, step]}
                    of = {name: None if one.isnan() else one.item() for name, one in of.items()}
                    result.append({**about, "word": word, **of})
        return result

    def said(self) -> list[tuple[str, str, str]]:
        """Return (head from 1, deviation, words) as text for every head, in descending order of variance."""
        details = []
        for layer, head in np.ndindex(*self.variance.shape):
            pairs = zip(self.words[layer][head], self.shares[layer, head].tolist(), strict=False)
            best, noise = self.shares[layer, head, 0].item(), self.noise[layer, head, 0].item()
            none = f"nothing: the best word holds {best:.0%}, the best random vector {noise:.0%}"
            words = ", ".join(f"{word} {share:.0%}" for word, share in pairs) or none
            varies = self.variance[layer, head].item()
            words = words if best == best else "nothing: it writes the same for every image"
            name = f"layer {self.layers[layer] + 1}, head {head + 1}"
            details.append((varies, (name, f"{varies**0.5:.2g}", words)))
        return [one for _, one in sorted(details, key=lambda pair: -pair[0])]


def head_features(ledger: LogitTerms) -> Float[Tensor, "*image layer head feature"]:
    """Return each head's output for one image, as features by slot of the readout: (layer, head, feature).

    Norms and |z| are divided out. A model with attention pooling has only its last layers.
    `head_to_embedding_maps` carries features into the embedding. Raises nothing of its own: the ledger's
    balance has been checked.

    >>> import vitviz
    >>> from vitviz.engine.studies.attribution import checked_logit_terms
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> asked = inspector.with_classes(vitviz.Classes(inspector.labels, torch.eye(200)))
    >>> head_features(checked_logit_terms(asked, asked.trace(vitviz.sample_image("coffee")))).shape
    torch.Size([8, 3, 64])
    """
    trace, readout, result = ledger.trace, ledger.readout, []
    scale = readout.head.length(features(trace, readout)).unsqueeze(-1)
    scale = scale if readout.pooling.fc_norm is None else scale * ledger.carried.deviation
    first = _first(readout)
    for account, attention in zip(ledger.carried.layers[first:], trace.layers[first:], strict=True):
        if account.gated is None:
            handed = account.carried @ attention.v
        else:
            handed = torch.einsum("...hsjd,...hjd->...hsd", account.gated, attention.v)
        result.append((handed / scale.unsqueeze(-3)).flatten(-2))
    return torch.stack(result, dim=-3)


def head_to_embedding_maps(
    readout: ReadoutStage, heads: int, feature: int
) -> Float[Tensor, "layer head embedding feature"]:
    """Return the linear map of each head from its features into the embedding, from the weights alone."""
    head, pooling, own = readout.head, readout.pooling, readout.attention_pooling
    weights = head.length.projection
    weights = torch.eye(readout.features) if weights is None else weights
    basis = torch.stack(weights.double().chunk(len(head.weights), dim=1), dim=1)  # embedding, slot, width
    basis = basis if pooling.fc_norm is None else pooling.fc_norm.back(basis)
    if own is not None:
        slots = feature * heads // readout.layers[0].weight.shape[1]
        along = basis[:, 0] if own.projection is None else basis[:, 0] @ own.projection.double()
        value = own.value.double().unflatten(0, (slots, -1))
        basis = torch.einsum("esd,sdw->esw", along.unflatten(1, (slots, -1)), value)
    basis = (basis if pooling.norm is None else pooling.norm.back(basis)).flatten(0, 1)
    into = "(embedding slot) (head dim) -> head embedding (slot dim)"
    layers = (layer.back(basis)[0] for layer in readout.layers[_first(readout) :])
    return torch.stack([rearrange(one, into, head=heads, embedding=len(weights)) for one in layers])


def _first(readout: ReadoutStage) -> int:
    """Return the first layer whose heads are described, from 0.

    With attention pooling only the last 4 layers are described.
    """
    return 0 if readout.attention_pooling is None else max(0, len(readout.layers) - LAST)


def heads_in_words(spread: Spread, readout: ReadoutStage, classes: Classes, most: int = 5) -> HeadsInWords:
    """Return up to `most` of the classes' labels for each head, from what it wrote over a set of images.

    Args:
        spread: spread of `head_features` over the images.
        readout: the model's readout.
        classes: the labels to choose from, with their vectors.
        most: maximum number of words per head, from 1.

    Returns:
        `HeadsInWords`: words by layer and head, shares (layer, head, step) from 0 to 1.

    Raises:
        VitvizError: fewer than two images, or `most` is not a number from 1 on.

    See the module.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> asked = inspector.with_classes(vitviz.Classes(inspector.labels, torch.eye(200)))  # its own, unit
    >>> survey = vitviz.survey([vitviz.sample_image(one) for one in ("chelsea", "coffee")], asked, ["words"])
    >>> survey.words.shares.shape  # (layer, head, word); of few pictures little is beyond chance
    torch.Size([8, 3, 5])
    """
    if spread.count < 2 or whole_number(most, least=1) is None:
        raise VitvizError(
            f"{spread.count} images and most={quoted(most)} are not valid; expected at least two images and"
            " at least one word for each head."
        )
    layers, heads, feature = spread.mean.shape
    vectors = classes.vectors.double().numpy()
    drawn = random_squares(len(vectors), feature, vectors.shape[1])
    shares, noise = np.full((2, layers, heads, most), np.nan)
    words, variance = [[()] * heads for _ in range(layers)], np.zeros((layers, heads))
    for layer, by_head in enumerate(head_to_embedding_maps(readout, heads, feature).numpy()):
        for head, onto in enumerate(by_head):
            mean, rows = spread.mean[layer, head] @ onto.T, spread.rows[layer, head] @ onto.T
            chosen, *result = explain_head(mean * spread.count**0.5, rows, vectors, drawn, most)
            words[layer][head] = tuple(classes.labels[one] for one in chosen)
            variance[layer, head] = np.square(rows).sum() / (spread.count - 1)
            for values, into in zip(result, (shares, noise), strict=True):
                into[layer, head, : len(values)] = values
    first = len(readout.layers) - layers
    details = (torch.from_numpy(one) for one in (shares, noise, variance))
    return HeadsInWords(tuple(range(first, first + layers)), tuple(map(tuple, words)), *details, spread.count)


def random_squares(words: int, feature: int, width: int) -> Float[np.ndarray, "list word axis"]:
    """Return squared coordinates, along a head's axes, of random unit vectors in lists of `words` vectors."""
    rng, axes = np.random.default_rng(0), min(feature, width)
    squares = rng.standard_normal((LISTS, words, axes), dtype=np.float32) ** 2
    # squared length along all other axes
    rest = rng.chisquare(width - axes, (LISTS, words, 1)) if width > axes else 0.0
    return squares / (squares.sum(axis=-1, keepdims=True) + rest)


def explain_head(
    mean: Float[np.ndarray, " embedding"], rows: Float[np.ndarray, "row embedding"],
    vectors: Float[np.ndarray, "word embedding"], drawn: Float[np.ndarray, "list word axis"], most: int,
) -> tuple[list[int], list[float], list[float]]:  # fmt: skip
    """Return one head's words by index, their shares, and the shares of random vectors.

    The shares include the step at which the search stops. `mean` is sqrt(images) times that of C, `rows` are
    those of `Spread`, `drawn` is the result of `random_squares`.
    """
    _, sizes, span = np.linalg.svd(np.vstack([rows, mean]), full_matrices=False)
    span = span[sizes > _ROUNDING * sizes[0]].T
    left, words = rows @ span, vectors @ span
    total, whole, result = np.square(left).sum(), np.square(words).sum(axis=1), ([], [], [])
    if not total > (_ROUNDING * sizes[0]) ** 2:  # equal for every image
        return result
    for step in range(min(most, span.shape[1])):
        lengths = np.square(words).sum(axis=1)
        scores = np.where(lengths > _ROUNDING**2 * whole, np.square(left @ words.T).sum(axis=0), 0.0)
        best = int((scores >= scores.max() * (1 - 1e-9)).argmax())
        share = scores[best] / (lengths[best] or 1.0) / total
        powers = np.square(np.linalg.svd(left, compute_uv=False))[: span.shape[1] - step] / total
        squares = drawn[..., : span.shape[1] - step]
        by_list = squares[..., : len(powers)] @ powers
        winners = np.take_along_axis(by_list / squares.sum(-1), by_list.argmax(1)[:, None], axis=1)
        result[1].append(float(share))
        result[2].append(float(winners.max()))
        if not share > winners.max() * (1 + _ROUNDING):  # along a single axis all remove the same
            break
        result[0].append(best)
        unit = words[best] / lengths[best] ** 0.5
        left, words = left - np.outer(left @ unit, unit), words - np.outer(words @ unit, unit)
    return result
