"""Rank correlation of two maps: whether they put the patches in the same order.

Spearman's coefficient is Pearson's of the ranks, where equal values share the mean of their ranks; breaking
ties by place instead makes maps with many zeros seem alike. Signed values are ranked as they are, never their
magnitudes. It does not show whether two maps agree on their largest patches, nor that either is right.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def pearson(one: Float[Tensor, "*shape"], other: Float[Tensor, "*shape"]) -> float:
    """-1 to 1, over what is a number in both; NaN where fewer than two are, or all are alike."""
    both = torch.stack([one.double().flatten(), other.double().flatten()]).cpu()
    both = both[:, both.isfinite().all(dim=0)]
    return round(torch.corrcoef(both)[0, 1].item(), 12) if both.shape[1] > 1 else float("nan")


def ranks(values: Float[Tensor, " value"]) -> Float[Tensor, " value"]:
    """From 0, equal values by the mean of their places.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0])).tolist()
    [1.5, 0.0, 1.5]
    """
    _, group, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    return (ends - (counts + 1) / 2)[group]


def spearman(one: Float[Tensor, "*shape"], other: Float[Tensor, "*shape"]) -> float | None:
    """-1 to 1; None where one of them is constant and has no order.

    >>> spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([9.0, 4.0, 1.0]))
    -1.0
    """
    found = pearson(*(ranks(values.double().flatten()) for values in (one, other)))
    return found if found == found else None


def agreement(maps: dict[str, Float[Tensor, "row col"]]) -> dict[tuple[str, str], float | None]:
    """Of every pair of maps, by name; what has no order is None."""
    names = list(maps)
    return {(a, b): spearman(maps[a], maps[b]) for i, a in enumerate(names) for b in names[i + 1 :]}
