"""Removal curves and SaCo of one or many maps; the model is run once for every set of patches.

Patches are ranked, never pixels of an enlarged map: there ties would decide. Removing the least relevant
patches first leaves the same sets as inserting the most relevant first, in reverse order.

A map with equal values has no unique order. Its curves are the mean over several orders (`draws`), drawn from
the seed. SaCo's groups are cut from the first order, because patches of equal value change it little, and its
ten sets, each of nearly the whole image, are half of a map's cost.

Measures: areas under removal curves, SaCo, and the range of chance.

    area = trapezoid of a score over the share removed, 0 to 100 %
    SaCo = sum_{i<j} +-(s_i - s_j) / sum_{i<j} |s_i - s_j|,   + where D_i >= D_j

with groups from the most relevant to the least, s_i a group's summed value and D_i the drop of the score when
that group alone is removed (Wu et al., CVPR 2024, arXiv 2404.01415). SaCo lies in -1 to 1 and is 0 if the map
assigns all groups the same value. Magnitudes matter: scaling a map changes nothing, clamping does. Neither
shows that a map is right if a model bases its prediction on several regions at once.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby, islice
from math import pi

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.target import score_of
from vitviz.traces import cancellation
from vitviz.traces.head_type import SCORES as SCORES
from vitviz.traces.head_type import HeadType, predictions_of, require_score, scores_of

LogitsOf = Callable[[Int[Tensor, "batch kept"]], Float[Tensor, "batch class"]]
OnStep = Callable[[int, int], None]  # number of sets done, and their total
_SETS = 64  # sets per request


def _compute_logits(
    sets: Iterable[tuple[int, ...]], logits_of: LogitsOf, on_step: OnStep | None
) -> dict[tuple[int, ...], Float[Tensor, " class"]]:
    """Return by set of kept patches its logits; equal sets are computed once, the largest sets first."""
    known, result = sorted(dict.fromkeys(sets), key=len, reverse=True), {}
    for size, same in groupby(known, key=len):
        while some := list(islice(same, _SETS)):
            cancellation.check()
            logits = logits_of(torch.tensor(some, dtype=torch.long).view(len(some), size))
            result.update(zip(some, logits.double(), strict=True))
            if on_step is not None:
                on_step(len(result), len(known))
    return result


def compute_scores(
    logits: Float[Tensor, "set class"], classes: tuple[int, ...], answer: int | None,
    head_type: HeadType = "softmax",
) -> dict[str, Float[Tensor, " set"]]:  # fmt: skip
    """Return by name the scores of each set: "kept" (prediction preserved), "probability" and "logit".

    "kept" is 1 or 0; the others are the explained class's. For a rather than b the logit is the difference,
    and the probability is that of a among the two. `answer` is the prediction as `predictions_of` counts. A
    head of values has only the logit, which is the value.

    >>> found = compute_scores(torch.tensor([[2.0, 1.0], [0.0, 0.0]]), (0, 1), answer=0)
    >>> found["logit"].tolist(), round(found["probability"][0].item(), 3)
    ([1.0, 0.0], 0.731)
    """
    logit = score_of(logits, classes)
    if head_type == "value":
        return {"logit": logit}
    kept = (predictions_of(logits, head_type) == answer).double()
    share = torch.sigmoid(logit) if len(classes) == 2 else scores_of(logits, head_type)[:, classes[0]]
    return {"kept": kept, "probability": share, "logit": logit}


def removal_orders(
    values: Float[Tensor, "*shape"], seed: int, tie_orders: int
) -> list[Int[Tensor, " patch"]]:
    """Return patch numbers by descending value: one order, or `tie_orders` random orders if values are tied.

    >>> [order.tolist() for order in removal_orders(torch.tensor([0.1, 3.0, 0.2]), seed=0, tie_orders=4)]
    [[1, 2, 0]]
    """
    values = values.flatten().double()
    if len(values.unique()) == len(values):
        return [values.argsort(descending=True)]
    result = []
    for draw in range(tie_orders):
        shuffled = torch.randperm(len(values), generator=torch.Generator().manual_seed(1000 * seed + draw))
        result.append(shuffled[values[shuffled].argsort(descending=True, stable=True)])
    return result


def saco(salience: Float[Tensor, " group"], drops: Float[Tensor, " group"]) -> float:
    """Return the salience-guided faithfulness coefficient (SaCo), -1 to 1, of groups' values and score drops.

    >>> saco(torch.tensor([3.0, 2.0, 0.0]), torch.tensor([0.5, 0.1, 0.0]))
    1.0
    """
    first, second = torch.triu_indices(len(salience), len(salience), offset=1)
    differences = (salience[first] - salience[second]).double()
    agrees = torch.where(drops[first] >= drops[second], 1.0, -1.0).double()
    whole = differences.abs().sum().item()
    return (agrees * differences).sum().item() / whole if whole > 0 else 0.0


@lru_cache(maxsize=256)
def t_quantile(tail: float, freedom: int) -> float:
    """Return the value that Student's t with `freedom` degrees of freedom exceeds with probability `tail`.

    The result is infinite without degrees of freedom. (With t = sqrt(freedom) tan a, a's density is as
    cos(a)^(freedom - 1) from -90 to 90 degrees.)

    >>> [round(t_quantile(0.05, freedom), 2) for freedom in (1, 4, 19)]
    [6.31, 2.13, 1.73]
    """
    if freedom < 1:
        return float("inf")
    angles = np.linspace(0, pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return float(freedom**0.5 * np.tan(np.interp(1 - 2 * tail, below / below[-1], angles)))


def sidak_level(methods: int, tail: float = 0.05) -> float:
    """Return the significance level of each of several tests for a family-wise level `tail` (Sidak 1967).

    >>> round(1 - (1 - sidak_level(12)) ** 12, 6)
    0.05
    """
    return 1 - (1 - tail) ** (1 / max(1, methods))


GROUPS = 10  # number of SaCo's groups


@dataclass(frozen=True)
class RemovalCurves:
    """Scores of one map at every fraction removed: mean over its orders if patches have equal values."""

    most: Mapping[str, Float[Tensor, " step"]]  # by score; the most relevant patches removed first
    least: Mapping[str, Float[Tensor, " step"]]
    saco: float

    def areas(self, shares: Sequence[float], score: str = "probability") -> tuple[float, float]:
        """Return the areas under both curves: (most relevant first, least relevant first), in score units.

        A lower first area and a higher second area are better.
        """
        steps, sides = torch.tensor(shares, dtype=torch.float64), (self.most, self.least)
        return tuple(torch.trapezoid(one[score].double(), steps).item() for one in sides)

    def gap(self, shares: Sequence[float], score: str = "probability") -> float:
        """Return the area between both curves: least relevant first minus most relevant first."""
        most, least = self.areas(shares, score)
        return least - most


def mean_curves(several: Sequence[RemovalCurves]) -> RemovalCurves:
    """Return the mean removal curves of several runs: each score's mean per share, and the mean SaCo."""

    def mean(side: str) -> dict[str, Tensor]:
        each = {score: [getattr(one, side)[score] for one in several] for score in several[0].most}
        return {score: torch.stack(some).mean(dim=0) for score, some in each.items()}

    return RemovalCurves(mean("most"), mean("least"), sum(one.saco for one in several) / len(several))


def removal_curves(
    maps: Mapping[Hashable, Float[Tensor, "row col"]], logits_of: LogitsOf, classes: tuple[int, ...],
    answer: int | None, shares: Sequence[float], seed: int, tie_orders: int, groups: int = GROUPS,
    told: OnStep | None = None, head_type: HeadType = "softmax",
) -> tuple[dict[Hashable, RemovalCurves], int]:  # fmt: skip
    """Return each map's removal curves and the number of patch sets run; `tie_orders` orders break ties.

    SaCo is NaN if `groups` is 0. It uses the drop of the probability when a group is removed; for
    a head of values, the drop of the value.
    """
    plans, sets = {}, []
    for name, values in maps.items():
        orders, patches = removal_orders(values, seed, tie_orders), values.numel()
        counts = [round(share * patches) for share in shares]
        # remaining patches, with the most and the least relevant removed first
        sides = [
            (_keys(one[n:] for n in counts), _keys(one[: patches - n] for n in counts)) for one in orders
        ]
        salience, without = _groups(values.flatten(), orders[0], groups) if groups else (None, [])
        sets += chain(*chain(*sides), without)
        plans[name] = sides, salience, without
    answered, result = _compute_logits(sets, logits_of, told), {}

    def scores(keys: list[tuple[int, ...]]) -> dict[str, Tensor]:
        return compute_scores(torch.stack([answered[key] for key in keys]), classes, answer, head_type)

    for name, (sides, salience, without) in plans.items():
        agreement = float("nan")
        if without:
            watched = scores(without)[require_score(None, head_type, "")]
            agreement = saco(salience, watched[-1] - watched[:-1])
        result[name] = mean_curves([RemovalCurves(*map(scores, one), agreement) for one in sides])
    return result, len(answered)


def _keys(sets: Iterable[Tensor]) -> list[tuple[int, ...]]:
    """Return each set of patches as a sorted tuple of patch numbers, usable as a dictionary key."""
    return [tuple(sorted(one.tolist())) for one in sets]


def _groups(
    values: Float[Tensor, " patch"], order: Tensor, count: int
) -> tuple[Float[Tensor, " group"], list[tuple[int, ...]]]:
    """Return each group's summed value, most relevant first; and the patches left without it, then all."""
    groups = torch.tensor_split(order, min(count, len(order)))
    others = [torch.cat([order[:0], *groups[:i], *groups[i + 1 :]]) for i in range(len(groups))]
    return torch.stack([values[group].sum() for group in groups]), _keys([*others, order])
