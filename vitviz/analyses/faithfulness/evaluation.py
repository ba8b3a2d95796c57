"""The trial of maps on one picture: patches are taken away, by relevance, and the answer is watched.

Samek et al. 2017 and RISE (Petsiuk et al. 2018) on patches, as Chefer et al. 2021 compare maps: a map that
knows what the answer is made of loses it soon when its best patches go first, and late when they go last.
Every way to remove is another question (`patches_as`); random maps are on trial with the others, because what
tells a map from them is all that counts. On one picture a difference smaller than chance's own spread says
nothing, and none says how another picture would go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from vitviz.analyses.faithfulness.curves import GROUPS, RemovalCurves, beyond, curves_of, mean_of, of_all
from vitviz.analyses.protocol import DENSE
from vitviz.analyses.saliency import METHODS, STEPPED, Passes, SaliencyMap, checked_steps, relevance_of
from vitviz.analyses.target import classes_of
from vitviz.errors import Stopped, TooMuch, VitvizError, quoted
from vitviz.traces.display import NotebookTable
from vitviz.traces.head_type import HeadType, require_score, scores_named
from vitviz.traces.localized_text import message_of
from vitviz.traces.trace import Trace

SHARES = tuple(step / 10 for step in range(11))  # removed, both ends included
DRAWS = 10  # random maps: of five, chance's reach is half as far again
ORDERS = 5  # of equal patches
CONVERGENCE = ("steps", "change", "converged")  # of integrated gradients; None of other maps
OnMethod = Callable[[float, str], None]  # the share that is done, and what is being done


@dataclass(frozen=True)
class Faithfulness(NotebookTable):
    """What was found on one picture. Methods that do not apply are in `refused`, each with the reason."""

    checkpoint: str
    classes: tuple[int, ...]  # what was explained: a class, or a rather than b
    answer: int | None  # the model's own prediction
    patches_as: str
    seed: int
    shares: tuple[float, ...]
    maps: Mapping[str, SaliencyMap]
    curves: Mapping[str, RemovalCurves]
    draws: tuple[RemovalCurves, ...]  # of single random maps; curves["random"] is their mean
    refused: Mapping[str, str]
    sets: int  # how many sets of patches the model was asked about
    head_type: HeadType = "softmax"  # of what was explained

    @property
    def scores(self) -> tuple[str, ...]:
        """What was watched: "kept", "probability", "logit"; of values "logit" alone, which is the value."""
        return scores_named(self.head_type)

    def score(self, asked: str | None = None) -> str:
        """The score that is asked for, the probability by default; of values the value. Else VitvizError."""
        return require_score(asked, self.head_type, self.checkpoint)

    def part(self, method: str) -> Faithfulness:
        """One method's, which `together` joins with others; the first has all sets to its account."""

        def choose(several):
            return {name: one for name, one in several.items() if name == method}

        first = next(iter({**self.maps, **self.refused}), method)
        sets = self.sets if method == first else 0
        return replace(
            self, maps=choose(self.maps), curves=choose(self.curves), refused=choose(self.refused), sets=sets
        )

    def areas(self, method: str, score: str | None = None) -> tuple[float, float]:
        """Most and least relevant first; see `RemovalCurves.areas`."""
        return self.curves[method].areas(self.shares, self.score(score))

    def ranking(self, score: str | None = None) -> list[tuple[str, float]]:
        """Methods with their gap, the best first."""
        score = self.score(score)
        gaps = {name: curves.gap(self.shares, score) for name, curves in self.curves.items()}
        return sorted(gaps.items(), key=lambda pair: -pair[1])

    def chance(self, score: str | None = None) -> tuple[float, float]:
        """Mean and standard deviation of the gap of a random map; the deviation is 0 with one draw."""
        score = self.score(score)
        gaps = torch.tensor([one.gap(self.shares, score) for one in self.draws], dtype=torch.float64)
        return gaps.mean().item(), gaps.std().item() if len(gaps) > 1 else 0.0

    def beats_chance(self, score: str | None = None) -> list[str]:
        """Those whose gap lies above chance's by more than its `reach`."""
        mean, reach = self.chance(score)[0], self.reach(score)
        return [name for name, gap in self.ranking(score) if gap > mean + reach and name != "random"]

    def reach(self, score: str | None = None) -> float:
        """How far above chance's mean gap any of as many random maps as methods are tried would come in one
        of twenty trials: t(1 - a, n - 1) s sqrt(1 + 1/n) of n draws, a by Sidak for all methods of the table.
        """
        draws, tail = len(self.draws), of_all(len(self.curves.keys() - {"random"}))
        return beyond(tail, draws - 1) * self.chance(score)[1] * (1 + 1 / max(1, draws)) ** 0.5

    def tied(self, one: str, other: str, score: str | None = None) -> bool:
        """Whether two methods lie no further apart than two random maps may: then their order is none."""
        gaps, draws = dict(self.ranking(score)), len(self.draws)
        return not abs(gaps[one] - gaps[other]) > self.reach(score) * (2 / (1 + 1 / max(1, draws))) ** 0.5

    def rows(self) -> list[dict]:
        """One row a method, best first, for tables and files; below them what does not apply, and why."""
        found = []
        for rank, (name, _) in enumerate(self.ranking(), start=1):
            one = {"method": name, "rank": rank, "patches_as": self.patches_as, "seed": self.seed}
            for score in self.scores:
                most, least = self.areas(name, score)
                one |= {f"most_{score}": most, f"least_{score}": least, f"gap_{score}": least - most}
            more = {"saco": self.curves[name].saco, "unexplained": self.maps[name].unexplained}
            more |= {one: getattr(self.maps[name], one) for one in CONVERGENCE}
            found.append({**one, **more, "reason": ""})
        without = {"rank": None, "patches_as": self.patches_as, "seed": self.seed}
        return found + [
            {**dict.fromkeys(found[0] if found else ()), "method": name, **without, "reason": str(reason)}
            for name, reason in self.refused.items()
        ]


def trial_of(
    passes: Passes, methods: Sequence[str] | None = None, patches_as: str = "dropped", seed: int = 0,
    shares: Sequence[float] = SHARES, draws: int = DRAWS, progress: OnMethod | None = None,
    made: Mapping[str, SaliencyMap] = MappingProxyType({}), chance: bool = True, groups: int = GROUPS,
    steps: int | None = None,
) -> Faithfulness:  # fmt: skip
    """Every method's map (all of them by default, chance always), its curves, areas and SaCo.

    `passes` removes as `patches_as` says; `made` are maps that are known already. Without `chance` it is a
    part of a trial, which `together` joins with others; without `groups` SaCo is not asked about; `steps` are
    those of integrated gradients, None for as many as they need. Raises VitvizError for a method, share,
    target or steps that cannot be; Stopped, between requests, where nobody waits.
    """
    checked_steps(steps)
    classes, answer = _classes(passes)
    names, shares = _names(methods, chance, passes.trace), _shares(shares)
    tell = progress or (lambda share, what: None)
    maps, refused = maps_of(passes, names, made, lambda done, name: tell(0.5 * done, name), steps)
    tried: dict[Hashable, Tensor] = {name: one.map for name, one in maps.items() if name != "random"}
    if "random" in maps:
        for draw in range(draws):
            numbers = torch.Generator().manual_seed(1000 * seed + draw)
            tried[draw] = torch.rand(maps["random"].map.shape, generator=numbers, dtype=torch.float64)
    curves, sets = curves_of(
        tried, passes.answers, classes, answer, shares, seed, min(draws, ORDERS), groups,
        lambda done, total: tell(0.5 + 0.5 * done / total, "removal"), passes.trace.head_type,
    )  # fmt: skip
    single = tuple(curves.pop(draw) for draw in range(draws) if draw in curves)
    if single:
        curves["random"] = mean_of(single)
    checkpoint = passes.trace.checkpoint
    found = maps, curves, single, refused, sets, passes.trace.head_type
    return Faithfulness(checkpoint, classes, answer, patches_as, seed, shares, *found)


def together(parts: Sequence[Faithfulness]) -> Faithfulness:
    """The trial whose parts were made one after the other, of one picture, target and protocol."""
    maps, curves, refused, draws, sets = {}, {}, {}, (), 0
    for one in parts:
        maps, curves, refused = maps | dict(one.maps), curves | dict(one.curves), refused | dict(one.refused)
        draws, sets = draws or one.draws, sets + one.sets
    return replace(parts[0], maps=maps, curves=curves, refused=refused, draws=draws, sets=sets)


def maps_of(
    passes: Passes, names: Sequence[str], made: Mapping[str, SaliencyMap] = MappingProxyType({}),
    tell: OnMethod = lambda share, what: None, steps: int | None = None,
) -> tuple[dict[str, SaliencyMap], dict[str, str]]:  # fmt: skip
    """The maps of some methods, and why the others do not apply; `made` are known, `tell` as in `trial_of`.

    Raises Stopped or TooMuch where nobody waits, or nobody may.
    """
    maps, refused = {}, {}
    for number, name in enumerate(names):
        tell(number / len(names), name)
        try:
            own = steps if name == STEPPED else None
            maps[name] = made[name] if name in made else relevance_of(passes, name, steps=own)
        except (Stopped, TooMuch):
            raise
        except VitvizError as reason:
            refused[name] = message_of(reason)
    return maps, refused


def _classes(passes: Passes) -> tuple[tuple[int, ...], int | None]:
    if isinstance(passes.target, Tensor) or passes.trace.logits is None:
        raise VitvizError(
            "A trial asks about classes, whose scores it watches; hand in a class, or (a, b) for a"
            " rather than b."
        )
    return tuple(classes_of(passes.trace, passes.target)), passes.trace.prediction


def _names(methods: Sequence[str] | None, chance: bool, trace: Trace) -> list[str]:
    usual = [name for name in METHODS if trace.classes is not None or name not in DENSE]
    names = usual if methods is None else [methods] if isinstance(methods, str) else list(methods)
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise VitvizError(f"Given methods={quoted(methods)}; expected some of {', '.join(METHODS)}.")
    return [*dict.fromkeys([*names, "random"] if chance else names)]


def _shares(shares: Sequence[float]) -> tuple[float, ...]:
    found = tuple(float(share) for share in shares)
    growing = all(a < b for a, b in zip(found, found[1:], strict=False))
    if len(found) < 2 or (found[0], found[-1]) != (0, 1) or not growing:
        raise VitvizError(f"Given shares={quoted(shares)}; expected them growing from 0 to 1, both included.")
    return found
