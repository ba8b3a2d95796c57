"""The trial of maps on one picture: patches are taken away, most and least relevant first, and the answer is
watched.

Samek et al. 2017 and RISE (Petsiuk et al. 2018) on patches, as Chefer et al. 2021 compare maps: a map that
knows what the answer is made of loses it soon when its best patches go first, and late when they go last.
Every way to remove is another question (`patches_as`); random maps are on trial with the others, because what
tells a map from them is all that counts. On one picture a difference smaller than chance's own spread says
nothing, and none says how another picture would go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.relevance import METHODS, Passes, Relevance, relevance_of
from vitviz.analyses.target import class_index
from vitviz.analyses.trials.answers import SCORES, Answers, Asked, scored
from vitviz.analyses.trials.measures import area, saco
from vitviz.analyses.trials.orders import groups_of, kept_sets, orders_of
from vitviz.errors import Stopped, VitvizError
from vitviz.frames import frame_of
from vitviz.shown import Shown

SHARES = tuple(step / 10 for step in range(11))  # removed, both ends included
DRAWS = 5  # random maps, and orders of equal patches
GROUPS = 10  # of SaCo
Progress = Callable[[float, str], None]  # the share that is done, and what is being done


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


@dataclass(frozen=True)
class Trial(Shown):
    """What was found on one picture. Methods that do not apply are in `refused`, each with the reason."""

    checkpoint: str
    classes: tuple[int, ...]  # what was explained: a class, or a rather than b
    answer: int  # the model's own first class
    patches_as: str
    seed: int
    shares: tuple[float, ...]
    maps: Mapping[str, Relevance]
    curves: Mapping[str, Curves]
    draws: tuple[Curves, ...]  # of single random maps; curves["random"] is their mean
    refused: Mapping[str, str]
    sets: int  # how many sets of patches the model was asked about

    def areas(self, method: str, score: str = "probability") -> tuple[float, float]:
        """Most and least relevant first; see `Curves.areas`."""
        return self.curves[method].areas(self.shares, score)

    def ranking(self, score: str = "probability") -> list[tuple[str, float]]:
        """Methods with their gap, the best first."""
        gaps = {name: curves.gap(self.shares, score) for name, curves in self.curves.items()}
        return sorted(gaps.items(), key=lambda pair: -pair[1])

    def chance(self, score: str = "probability") -> tuple[float, float]:
        """Mean and standard deviation of the gap of a random map; the deviation is 0 with one draw."""
        gaps = torch.tensor([one.gap(self.shares, score) for one in self.draws], dtype=torch.float64)
        return gaps.mean().item(), gaps.std().item() if len(gaps) > 1 else 0.0

    def beats_chance(self, score: str = "probability") -> list[str]:
        """Those whose gap lies more than two deviations above chance's."""
        mean, deviation = self.chance(score)
        return [name for name, gap in self.ranking(score) if gap > mean + 2 * deviation and name != "random"]

    def tied(self, one: str, other: str, score: str = "probability") -> bool:
        """Whether two methods lie within two deviations of chance: then their order is none."""
        gaps = dict(self.ranking(score))
        return abs(gaps[one] - gaps[other]) <= 2 * self.chance(score)[1]

    def rows(self) -> list[dict]:
        """One row a method, best first, for tables and files."""
        found = []
        for rank, (name, _) in enumerate(self.ranking(), start=1):
            one = {"method": name, "rank": rank, "patches_as": self.patches_as, "seed": self.seed}
            for score in SCORES:
                most, least = self.areas(name, score)
                one |= {f"most_{score}": most, f"least_{score}": least, f"gap_{score}": least - most}
            found.append({**one, "saco": self.curves[name].saco, "unexplained": self.maps[name].unexplained})
        return found

    def frame(self):
        """The rows as a pandas DataFrame; VitvizError where pandas is not installed."""
        return frame_of(self.rows())


def trial_of(
    passes: Passes,
    methods: Sequence[str] | None = None,
    patches_as: str = "dropped",
    seed: int = 0,
    shares: Sequence[float] = SHARES,
    draws: int = DRAWS,
    progress: Progress | None = None,
) -> Trial:
    """Every method's map (all of them by default, chance always), its curves, areas and SaCo.

    `passes` removes as `patches_as` says. Raises VitvizError for a method or share that cannot be, and for a
    target that is no class; Stopped, between two requests, where nobody waits.
    """
    classes, answer = _classes(passes)
    names, shares = _names(methods), _shares(shares)
    tell = progress or (lambda share, what: None)
    maps, refused = _maps(passes, names, lambda done, name: tell(0.5 * done, name))
    curves, single, sets = _all_curves(maps, passes.answers, classes, answer, shares, seed, draws, tell)
    checkpoint = passes.trace.checkpoint
    return Trial(checkpoint, classes, answer, patches_as, seed, shares, maps, curves, single, refused, sets)


def _maps(passes: Passes, names: list[str], tell: Progress) -> tuple[dict[str, Relevance], dict[str, str]]:
    maps, refused = {}, {}
    for number, name in enumerate(names):
        tell(number / len(names), name)
        try:
            maps[name] = relevance_of(passes, name)
        except Stopped:
            raise
        except VitvizError as reason:
            refused[name] = str(reason)
    return maps, refused


def _all_curves(
    maps: Mapping[str, Relevance],
    answers: Answers,
    classes,
    answer: int,
    shares,
    seed: int,
    draws: int,
    tell: Progress,
) -> tuple[dict[str, Curves], tuple[Curves, ...], int]:
    """Of all maps and of random ones, with every set of patches asked about once."""
    chance = [_random_like(maps["random"], 1000 * seed + draw) for draw in range(draws)]
    asked, plans = Asked(), {}
    for name, found in [*maps.items(), *enumerate(chance)]:
        if name != "random":
            plans[name] = [
                _plan(asked, found.map, order, shares) for order in orders_of(found.map, seed, draws)
            ]
    sets = asked.ask(answers, lambda done, total: tell(0.5 + 0.5 * done / total, "removal"))
    everything = {
        name: _mean([_curves(asked, plan, classes, answer) for plan in several])
        for name, several in plans.items()
    }
    single = tuple(everything.pop(draw) for draw in range(draws))
    return {**everything, "random": _mean(single)}, single, sets


@dataclass(frozen=True)
class _Plan:
    most: list[tuple[int, ...]]
    least: list[tuple[int, ...]]
    without: list[tuple[int, ...]]  # one group each
    salience: Float[Tensor, " group"]


def _plan(asked: Asked, values: Tensor, order: Tensor, shares: Sequence[float]) -> _Plan:
    counts, values = [round(share * len(order)) for share in shares], values.flatten()
    groups = groups_of(order, GROUPS)
    others = [
        torch.cat([one for j, one in enumerate(groups) if j != i] or [order[:0]]) for i in range(len(groups))
    ]
    return _Plan(
        most=asked.add(kept_sets(order, counts, most=True)),
        least=asked.add(kept_sets(order, counts, most=False)),
        without=asked.add([*others, order]),
        salience=torch.stack([values[group].sum() for group in groups]),
    )


def _curves(asked: Asked, plan: _Plan, classes: tuple[int, ...], answer: int) -> Curves:
    most, least = (scored(asked.logits(keys), classes, answer) for keys in (plan.most, plan.least))
    probability = scored(asked.logits(plan.without), classes, answer)["probability"]
    return Curves(most, least, saco(plan.salience, probability[-1] - probability[:-1]))


def _mean(several: Sequence[Curves]) -> Curves:
    def mean(side: str) -> dict[str, Tensor]:
        return {
            score: torch.stack([getattr(one, side)[score] for one in several]).mean(dim=0) for score in SCORES
        }

    return Curves(mean("most"), mean("least"), sum(one.saco for one in several) / len(several))


def _random_like(found: Relevance, seed: int) -> Relevance:
    numbers = torch.rand(found.map.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return replace(found, map=numbers)


def _classes(passes: Passes) -> tuple[tuple[int, ...], int]:
    if isinstance(passes.target, Tensor) or passes.trace.logits is None:
        raise VitvizError(
            "A trial asks about classes, whose probability it watches; hand in a class, or (a, b) for a"
            " rather than b."
        )
    pair = passes.target if isinstance(passes.target, tuple) else (passes.target,)
    return tuple(class_index(passes.trace, one) for one in pair), int(passes.trace.logits.argmax())


def _names(methods: Sequence[str] | None) -> list[str]:
    names = list(METHODS) if methods is None else [methods] if isinstance(methods, str) else list(methods)
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise VitvizError(f"Given methods={methods!r}; expected some of {', '.join(METHODS)}.")
    return [*dict.fromkeys([*names, "random"])]


def _shares(shares: Sequence[float]) -> tuple[float, ...]:
    found = tuple(float(share) for share in shares)
    if (
        len(found) < 2
        or found[0] != 0
        or found[-1] != 1
        or any(a >= b for a, b in zip(found, found[1:], strict=False))
    ):
        raise VitvizError(f"Given shares={shares!r}; expected them growing from 0 to 1, both included.")
    return found
