"""How alike two checkpoints, or two depths of one, tell pictures apart: centred kernel alignment (CKA).

A depth is described by which pictures it represents alike: K = X X^T over n pictures, X a row a picture. Two
depths are alike where their K are, whatever their widths, patch sizes or rotations. With zeroed diagonals and
1 the vector of ones (Nguyen, Raghu and Kornblith 2021, arXiv 2010.15327; used in Raghu et al. 2021),

    HSIC(K, L) = 1 / (n (n - 3)) [tr(K L) + 1'K1 1'L1 / ((n - 1)(n - 2)) - 2 / (n - 2) 1'K L1]
    CKA = sum_b HSIC(K_b, L_b) / sqrt(sum_b HSIC(K_b, K_b) sum_b HSIC(L_b, L_b))

over minibatches b, of which only K and L are kept. HSIC is unbiased: its mean over minibatches is that of the
whole set, and of unrelated depths it is zero, so that an estimate may fall a little below. It is 1 between X
and 3 X Q + shift, Q orthogonal. It does not show what two depths have in common, nor that either is used; a
few directions of much variance can decide it alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.errors import VitvizError, quoted
from vitviz.traces.trace import Trace

# what stands for a picture: class token, mean patch, all tokens in a row
TOKENS = ("class", "patches", "all")
LEAST = 4  # pictures of a minibatch: below, the unbiased estimate does not exist
MINIBATCHES = 4  # from so many on their spread says how far off the estimate may be
_SAME = 1e-6  # differences below this share of the largest number are float32's rounding


@dataclass(frozen=True)
class Grams:
    """One minibatch: how alike any two of its pictures are, at every depth (0 enters block 1)."""

    pictures: tuple[str, ...]  # marks of the pictures, so that nothing is compared over different ones
    of: Mapping[str, Float[Tensor, "depth picture picture"]]  # by what stands for a picture; float64


def grams_of(traces: Sequence[Trace], pictures: Sequence[str]) -> Grams:
    """The Gram matrices of some pictures' traces, all of one checkpoint at one size.

    Tokens are those of the residual stream, depth 0 to L, centred over the pictures, which changes no CKA but
    keeps rounding away. There is no "class" for a model without that token. A depth at which all pictures are
    the same (the class token entering block 1) has K = 0. Raises VitvizError for less than 4. See the module.

    >>> from vitviz.analyses.example import example_trace
    >>> traces = [example_trace(seed=seed) for seed in range(5)]
    >>> {name: tuple(gram.shape) for name, gram in grams_of(traces, "abcde").of.items()}
    {'class': (3, 5, 5), 'patches': (3, 5, 5), 'all': (3, 5, 5)}
    """
    if len(traces) < LEAST or len(traces) != len(pictures):
        raise VitvizError(
            f"Given {len(traces)} traces and {len(pictures)} names of pictures; expected as many of each, at"
            f" least {LEAST}: with fewer there is no unbiased estimate."
        )
    grid = traces[0].grid
    found: dict[str, list[Tensor]] = {}
    for depth in range(len(traces[0].tokens)):
        tokens = torch.stack([trace.tokens[depth] for trace in traces]).double()
        rows = {"patches": tokens[:, grid.prefix :].mean(dim=1), "all": tokens.flatten(start_dim=1)}
        if "class" in grid.prefix_names:
            rows = {"class": tokens[:, grid.prefix_names.index("class")], **rows}
        for name, features in rows.items():
            centred = features - features.mean(dim=0)
            if centred.abs().max() <= _SAME * features.abs().max():
                centred = torch.zeros_like(centred)
            found.setdefault(name, []).append((centred @ centred.mT).cpu())
    return Grams(tuple(pictures), {name: torch.stack(grams) for name, grams in found.items()})


def hsic(
    first: Float[Tensor, "depth picture picture"], second: Float[Tensor, "depth2 picture2 picture2"]
) -> Float[Tensor, "depth depth2"]:
    """The unbiased HSIC of every two of these Gram matrices, which are of the same pictures.

    Raises VitvizError for fewer than 4 pictures or for different numbers of them. Source: see the module.

    >>> one = torch.eye(5)[None]  # five pictures, none like another
    >>> hsic(one, one).tolist()  # with the diagonals zeroed there is nothing left
    [[0.0]]
    """
    count = first.shape[-1]
    if first.shape[1:] != second.shape[1:] or first.shape[-2] != count or count < LEAST:
        raise VitvizError(
            f"Given Gram matrices of shapes {tuple(first.shape)} and {tuple(second.shape)}; expected (depth,"
            f" n, n) of the same n pictures, n at least {LEAST}."
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
    """CKA of every depth of one checkpoint with each of another, or of the same, over the same pictures.

    Between -1 and 1; not a number where all pictures are the same at a depth. `tokens`: "class", "patches"
    (their mean) or "all". Raises VitvizError where the minibatches are not of the same pictures in the same
    order, or a checkpoint has no such token. Source: see the module.

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
    """The standard error of `cka` by the jackknife over independent pictures: minibatches left out in turn.

    Not a number for fewer than 4 minibatches. Raises as `cka`. Source: Efron and Stein 1981, equation 1.3.

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
    # each made without one minibatch
    estimates = torch.stack([_ratio(*(w - p for w, p in zip(whole, part, strict=True))) for part in parts])
    return ((len(parts) - 1) * estimates.var(dim=0, unbiased=False)).sqrt()


def _parts(first: Sequence[Grams], second: Sequence[Grams], tokens: str) -> Iterator[tuple[Tensor, ...]]:
    """Each minibatch's share of the numerator, and of what is under either root."""
    if tokens not in TOKENS:
        raise VitvizError(f"Given tokens={quoted(tokens)}; expected one of {', '.join(TOKENS)}.")
    if not first or [one.pictures for one in first] != [one.pictures for one in second]:
        counts = [sum(len(one.pictures) for one in some) for some in (first, second)]
        raise VitvizError(
            f"Given minibatches of {counts[0]} and {counts[1]} pictures that are not the same ones in the"
            f" same order; expected two surveys of one set with the same batch, of {LEAST} pictures or more."
        )
    for one, other in zip(first, second, strict=True):
        if tokens not in one.of or tokens not in other.of:
            raise VitvizError(
                "Given tokens='class', but one of the models has no class token; expected 'patches' or 'all'."
            )
        one, other = one.of[tokens], other.of[tokens]
        yield hsic(one, other), hsic(one, one).diag(), hsic(other, other).diag()


def _ratio(both: Tensor, one: Tensor, other: Tensor) -> Tensor:
    below = torch.outer(one.clamp(min=0).sqrt(), other.clamp(min=0).sqrt())  # zero but for rounding, or more
    return torch.where(below > 0, both / below, torch.nan)
