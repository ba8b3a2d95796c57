"""In which order patches are taken away: by a map's values, the largest first, equal ones in a random order
of their own.

Patches are ranked, never pixels of an enlarged map: there ties would decide. What is removed least relevant
first leaves the same sets that inserting most relevant first passes through, in reverse.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def orders_of(values: Float[Tensor, "*shape"], seed: int, draws: int) -> list[Int[Tensor, " patch"]]:
    """Patches by value, the largest first: one order, or `draws` of them where values are equal.

    >>> [order.tolist() for order in orders_of(torch.tensor([0.1, 3.0, 0.2]), seed=0, draws=4)]
    [[1, 2, 0]]
    """
    values = values.flatten().double()
    if len(values.unique()) == len(values):
        return [values.argsort(descending=True)]
    found = []
    for draw in range(draws):
        shuffled = torch.randperm(len(values), generator=torch.Generator().manual_seed(1000 * seed + draw))
        found.append(shuffled[values[shuffled].argsort(descending=True, stable=True)])
    return found


def kept_sets(order: Int[Tensor, " patch"], counts: list[int], most: bool) -> list[Tensor]:
    """What is left with so many taken away, from the order's front (`most` relevant first) or its end."""
    total = len(order)
    return [order[count:] if most else order[: total - count] for count in counts]


def groups_of(order: Int[Tensor, " patch"], groups: int) -> tuple[Tensor, ...]:
    """The order cut into groups of equal size (as nearly as can be), the most relevant first."""
    return torch.tensor_split(order, min(groups, len(order)))
