"""Rank correlation: how far two maps put the patches in the same order.

Spearman's coefficient is Pearson's coefficient of the ranks, with equal values sharing the mean of their
ranks. Breaking ties by position instead would make maps with many zeros seem alike. Signed values are ranked
as they are, not by magnitude. The coefficient does not show whether two maps agree on their largest patches,
nor whether either is right.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def pearson(one: Float[Tensor, "*shape"], other: Float[Tensor, "*shape"]) -> float:
    """Return Pearson's correlation, from -1 to 1, over the entries that are finite in both tensors.

    The result is NaN if fewer than two entries remain, or if one tensor is constant there.
    """
    both = torch.stack([one.double().flatten(), other.double().flatten()]).cpu()
    both = both[:, both.isfinite().all(dim=0)]
    return round(torch.corrcoef(both)[0, 1].item(), 12) if both.shape[1] > 1 else float("nan")


def ranks(values: Float[Tensor, " value"]) -> Float[Tensor, " value"]:
    """Return ranks from 0; equal values share the mean of their ranks.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0])).tolist()
    [1.5, 0.0, 1.5]
    """
    _, group, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    return (ends - (counts + 1) / 2)[group]


def spearman(one: Float[Tensor, "*shape"], other: Float[Tensor, "*shape"]) -> float | None:
    """Return Spearman's correlation, from -1 to 1; None if one of the tensors is constant.

    >>> spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([9.0, 4.0, 1.0]))
    -1.0
    """
    result = pearson(*(ranks(values.double().flatten()) for values in (one, other)))
    return result if result == result else None


def agreement(maps: dict[str, Float[Tensor, "row col"]]) -> dict[tuple[str, str], float | None]:
    """Return Spearman's correlation of every pair of maps, by name; None where a map is constant."""
    names = list(maps)
    return {(a, b): spearman(maps[a], maps[b]) for i, a in enumerate(names) for b in names[i + 1 :]}
