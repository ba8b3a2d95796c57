"""Centred kernel alignment (CKA): similarity of two checkpoints' or layers' representations of images.

A layer is described by which images it represents alike: K = X X^T over n images, where X has one row per
image. Two layers are alike if their K are, whatever their widths, patch sizes or rotations. With zeroed
diagonals and 1 the vector of ones (Nguyen, Raghu and Kornblith 2021, arXiv 2010.15327; used in Raghu et al.
2021),

    HSIC(K, L) = 1 / (n (n - 3)) [tr(K L) + 1'K1 1'L1 / ((n - 1)(n - 2)) - 2 / (n - 2) 1'K L1]
    CKA = sum_b HSIC(K_b, L_b) / sqrt(sum_b HSIC(K_b, K_b) sum_b HSIC(L_b, L_b))

over minibatches b, of which only K and L are kept. HSIC is unbiased: its mean over minibatches is that of the
whole set, and for unrelated layers it is zero, so an estimate may be slightly negative. CKA is 1 between X
and 3 X Q + shift, Q orthogonal. It does not show what two layers have in common, nor that either is used. A
few directions of large variance can determine it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.errors import VitvizError, quoted
from vitviz.traces.trace import Trace, TraceBatch

# representation of an image: class token, mean patch, all tokens concatenated
TOKENS = ("class", "patches", "all")
LEAST = 4  # images in a minibatch; the unbiased estimate does not exist below
MINIBATCHES = 4  # from this number on, their spread gives the error of the estimate
_SAME = 1e-6  # differences below this fraction of the largest number are float32 rounding


@dataclass(frozen=True)
class Grams:
    """Gram matrices of one minibatch: the similarity of any two of its images in every layer.

    Depth 0 is the input of block 1.
    """

    pictures: tuple[str, ...]  # identifiers of the images, so that different images are never compared
    # by representation of an image, see `TOKENS`; float64
    of: Mapping[str, Float[Tensor, "depth picture picture"]]


def grams_of(traces: Sequence[Trace] | TraceBatch, pictures: Sequence[str]) -> Grams:
    """Return the Gram matrices of one minibatch of traces of one checkpoint at one input size.

    Tokens are those of the residual stream, depth 0 to L. They are centred over the images; this changes no
    CKA and reduces rounding errors. A layer in which all images are equal (the class token at the input of
    block 1) has K = 0.

    Args:
        traces: at least 4 traces, or the batch of one pass.
        pictures: identifiers of their images, in the same order.

    Returns:
        `Grams` with one (depth, image, image) tensor per representation. "class" is missing for a model
            without a class token.

    Raises:
        VitvizError: fewer than 4 traces, or another number of identifiers.

    Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> traces = [example_trace(seed=seed) for seed in range(5)]
    >>> {name: tuple(gram.shape) for name, gram in grams_of(traces, "abcde").of.items()}
    {'class': (3, 5, 5), 'patches': (3, 5, 5), 'all': (3, 5, 5)}
    """
    if len(traces) < LEAST or len(traces) != len(pictures):
        expected = f"expected as many of each, at least {LEAST}: with fewer there is no unbiased estimate"
        raise VitvizError(f"{len(traces)} traces do not match {len(pictures)} names of images; {expected}.")
    result: dict[str, list[Tensor]] = {}
    if isinstance(traces, TraceBatch):
        grid, layers = traces.grid, traces.tokens
    else:
        grid, layers = traces[0].grid, zip(*(one.tokens for one in traces), strict=True)
    for tokens in layers:
        tokens = (torch.stack(tokens) if isinstance(tokens, tuple) else tokens).double()
        rows = {"patches": tokens[:, grid.prefix :].mean(dim=1), "all": tokens.flatten(start_dim=1)}
        if "class" in grid.prefix_names:
            rows = {"class": tokens[:, grid.prefix_names.index("class")], **rows}
        for name, features in rows.items():
            centred = features - features.mean(dim=0)
            same = centred.abs().max() <= _SAME * features.abs().max()
            centred = centred.masked_fill(same, 0)
            result.setdefault(name, []).append(centred @ centred.mT)
    return Grams(tuple(pictures), {name: torch.stack(grams).cpu() for name, grams in result.items()})


def hsic(
    first: Float[Tensor, "depth picture picture"], second: Float[Tensor, "depth2 picture2 picture2"]
) -> Float[Tensor, "depth depth2"]:
    """Return the unbiased HSIC of every pair of Gram matrices of the same images.

    Args:
        first: (depth, n, n).
        second: (depth2, n, n), of the same n images.

    Returns:
        (depth, depth2).

    Raises:
        VitvizError: fewer than 4 images, or different numbers of images.

    Source: see the module.

    >>> one = torch.eye(5)[None]  # five pictures, none like another
    >>> hsic(one, one).tolist()  # with the diagonals zeroed there is nothing left
    [[0.0]]
    """
    count = first.shape[-1]
    if first.shape[1:] != second.shape[1:] or first.shape[-2] != count or count < LEAST:
        raise VitvizError(
            f"Gram matrices of shapes {tuple(first.shape)} and {tuple(second.shape)} cannot be compared;"
            f" expected (depth, n, n) of the same n images, n at least {LEAST}."
        )
    off = 1 - torch.eye(count, dtype=first.dtype, device=first.device)
    first, second = first * off, second * off
    rows, others = first.sum(dim=-1), second.sum(dim=-1)
    both = rearrange(first, "depth i j -> depth (i j)") @ rearrange(second, "depth i j -> (i j) depth")
    sums = torch.outer(rows.sum(dim=-1), others.sum(dim=-1)) / ((count - 1) * (count - 2))
    return (both + sums - 2 / (count - 2) * rows @ others.mT) / (count * (count - 3))


def cka(
    first: Sequence[Grams], second: Sequence[Grams], tokens: str = "patches"
) -> Float[Tensor, "depth depth2"]:
    """Return the CKA of every layer of one checkpoint with every layer of another (or the same) checkpoint.

    Args:
        first: minibatches of one checkpoint, from `grams_of`.
        second: minibatches of the other, of the same images in the same order.
        tokens: representation of an image: "class", "patches" (their mean) or "all".

    Returns:
        (depth, depth2), from -1 to 1; NaN for a layer in which all images are equal.

    Raises:
        VitvizError: the minibatches differ in their images, or a checkpoint has no class token.

    Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> traces = [example_trace(seed=seed) for seed in range(5)]
    >>> batch = [grams_of(traces, "abcde")]
    >>> [round(value, 6) for value in cka(batch, batch).diag().tolist()]
    [1.0, 1.0, 1.0]
    """
    return _ratio(*map(sum, zip(*_parts(first, second, tokens), strict=True)))


def cka_error(
    first: Sequence[Grams], second: Sequence[Grams], tokens: str = "patches"
) -> Float[Tensor, "depth depth2"]:
    """Return the standard error of every number of `cka`, by the jackknife over minibatches.

    Args and Raises are those of `cka`. The images must be independent.

    Returns:
        (depth, depth2); NaN for fewer than 4 minibatches.

    Source: Efron and Stein 1981, equation 1.3.

    >>> from vitviz.analyses.example import example_trace
    >>> traces = [example_trace(seed=seed) for seed in range(16)]
    >>> batches = [grams_of(traces[i : i + 4], "abcd") for i in range(0, 16, 4)]
    >>> bool((cka_error(batches, batches).diag() < 1e-9).all())  # a depth is like itself, whatever is seen
    True
    """
    parts = list(_parts(first, second, tokens))
    whole = [*map(sum, zip(*parts, strict=True))]
    if len(parts) < MINIBATCHES:
        return torch.full_like(whole[0], float("nan"))
    # estimates with one minibatch left out
    estimates = torch.stack([_ratio(*(w - p for w, p in zip(whole, part, strict=True))) for part in parts])
    return ((len(parts) - 1) * estimates.var(dim=0, unbiased=False)).sqrt()


def _parts(first: Sequence[Grams], second: Sequence[Grams], tokens: str) -> Iterator[tuple[Tensor, ...]]:
    """Yield by minibatch HSIC(first, second) of all pairs of depths, and each depth's HSIC with itself."""
    if tokens not in TOKENS:
        raise VitvizError(f"tokens={quoted(tokens)} is not valid; expected one of {', '.join(TOKENS)}.")
    if not first or [one.pictures for one in first] != [one.pictures for one in second]:
        counts = [sum(len(one.pictures) for one in some) for some in (first, second)]
        raise VitvizError(
            f"The surveys' batches, {counts[0]} and {counts[1]} images, are not the same images in the same"
            f" order; expected two surveys of one image set with the same batch, of {LEAST} images or more."
        )
    for one, other in zip(first, second, strict=True):
        if tokens not in one.of or tokens not in other.of:
            expected = "expected 'patches' or 'all'"
            raise VitvizError(
                f"tokens='class' is not applicable, because one of the models has no class token; {expected}."
            )
        one, other = one.of[tokens], other.of[tokens]
        yield hsic(one, other), hsic(one, one).diag(), hsic(other, other).diag()


def _ratio(cross: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the CKA of each pair of depths: cross / sqrt(first * second), from sums of unbiased HSICs.

    NaN if the HSIC of a depth with itself is not positive.
    """
    # zero up to rounding, or positive
    below = torch.outer(first.clamp(min=0).sqrt(), second.clamp(min=0).sqrt())
    return torch.where(below > 0, cross / below, torch.nan)
