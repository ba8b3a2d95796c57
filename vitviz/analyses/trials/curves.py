"""Curves of removal, and SaCo, of one map or of many at once: every set of patches is asked about once.

A map with equal values has no one order: its curves are the mean over several (`draws`), drawn from the seed.
SaCo's groups are cut from the first of them, since patches of equal value move it little and its ten sets,
each of nearly the whole picture, are half of what a map costs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.trials.answers import SCORES, Answers, Asked, scored
from vitviz.analyses.trials.measures import area, saco
from vitviz.analyses.trials.orders import groups_of, kept_sets, orders_of

GROUPS = 10  # of SaCo


@dataclass(frozen=True)
class Curves:
    """One map's scores at every share removed: the mean over its orders, where equal patches had several."""

    most: Mapping[str, Float[Tensor, " step"]]  # by score; the most relevant removed first
    least: Mapping[str, Float[Tensor, " step"]]
    saco: float

    def areas(self, shares: Sequence[float], score: str = "probability") -> tuple[float, float]:
        """Under both curves: of the first lower is better, of the second higher."""
        steps = torch.tensor(shares, dtype=torch.float64)
        return area(steps, self.most[score]), area(steps, self.least[score])

    def gap(self, shares: Sequence[float], score: str = "probability") -> float:
        """How much later the answer is lost with the least relevant first: the area between both curves."""
        most, least = self.areas(shares, score)
        return least - most


def mean_of(several: Sequence[Curves]) -> Curves:
    """The mean of curves, point by point."""

    def mean(side: str) -> dict[str, Tensor]:
        return {
            score: torch.stack([getattr(one, side)[score] for one in several]).mean(dim=0) for score in SCORES
        }

    return Curves(mean("most"), mean("least"), sum(one.saco for one in several) / len(several))


def curves_of(
    maps: Mapping[Hashable, Float[Tensor, "row col"]],
    answers: Answers,
    classes: tuple[int, ...],
    answer: int,
    shares: Sequence[float],
    seed: int,
    draws: int,
    groups: int = GROUPS,
    told: Callable[[int, int], None] | None = None,
) -> tuple[dict[Hashable, Curves], int]:
    """Every map's curves, and how many sets of patches were asked about; without `groups` no SaCo."""
    asked, plans = Asked(), {}
    for name, values in maps.items():
        orders = orders_of(values, seed, draws)
        sides = [_sides(asked, order, shares) for order in orders]
        plans[name] = sides, _groups(asked, values, orders[0], groups)
    sets = asked.ask(answers, told)
    found = {}
    for name, (sides, single) in plans.items():
        agreement = _saco(asked, single, classes, answer)
        found[name] = mean_of([_curves(asked, one, classes, answer, agreement) for one in sides])
    return found, sets


@dataclass(frozen=True)
class _Sides:
    most: list[tuple[int, ...]]
    least: list[tuple[int, ...]]


@dataclass(frozen=True)
class _Groups:
    without: list[tuple[int, ...]]  # one group each, and in the last place none
    salience: Float[Tensor, " group"]


def _sides(asked: Asked, order: Tensor, shares: Sequence[float]) -> _Sides:
    counts = [round(share * len(order)) for share in shares]
    return _Sides(
        asked.add(kept_sets(order, counts, most=True)), asked.add(kept_sets(order, counts, most=False))
    )


def _groups(asked: Asked, values: Tensor, order: Tensor, count: int) -> _Groups:
    if not count:
        return _Groups([], values.flatten()[:0])
    groups, values = groups_of(order, count), values.flatten()
    others = [
        torch.cat([one for j, one in enumerate(groups) if j != i] or [order[:0]]) for i in range(len(groups))
    ]
    return _Groups(asked.add([*others, order]), torch.stack([values[group].sum() for group in groups]))


def _saco(asked: Asked, groups: _Groups, classes: tuple[int, ...], answer: int) -> float:
    if not groups.without:
        return float("nan")
    probability = scored(asked.logits(groups.without), classes, answer)["probability"]
    return saco(groups.salience, probability[-1] - probability[:-1])


def _curves(asked: Asked, sides: _Sides, classes: tuple[int, ...], answer: int, agreement: float) -> Curves:
    most, least = (scored(asked.logits(keys), classes, answer) for keys in (sides.most, sides.least))
    return Curves(most, least, agreement)
