"""Faithfulness of saliency maps on one image: remove patches by relevance and record the prediction.

Samek et al. 2017 and RISE (Petsiuk et al. 2018) on patches, as Chefer et al. 2021 compare maps: if a map is
faithful, removing its top patches first destroys the prediction quickly; removing them last, slowly. Every
way of removing patches is a separate test (`patches_as`). Random maps are tested with the others, because
only the difference from them counts. On one image a difference smaller than the spread of chance says
nothing, and no difference tells how another image would behave.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from vitviz.analyses.faithfulness import curves as removal
from vitviz.analyses.faithfulness.curves import GROUPS, RemovalCurves
from vitviz.analyses.protocol import DENSE
from vitviz.analyses.saliency import METHODS, STEPPED, Passes, SaliencyMap, check_steps, saliency_map
from vitviz.analyses.target import classes_of
from vitviz.errors import Stopped, TooMuch, VitvizError, quoted
from vitviz.traces.display import NotebookChart, NotebookTable
from vitviz.traces.head_type import HeadType, require_score, scores_named
from vitviz.traces.localized_text import message_of
from vitviz.traces.trace import Trace

SHARES = tuple(step / 10 for step in range(11))  # fractions removed, both ends included
DRAWS = 10  # random maps; with five, the threshold of chance is 1.5 times as large
ORDERS = 5  # orders of equal patches
CONVERGENCE = ("steps", "change", "converged")  # of integrated gradients; None for other maps
OnMethod = Callable[[float, str], None]  # fraction done, and the step in progress


@dataclass(frozen=True)
class Faithfulness(NotebookChart, NotebookTable):
    """Faithfulness of saliency methods on one image; inapplicable ones are in `refused`, with the reason."""

    checkpoint: str
    classes: tuple[int, ...]  # explained class, or a rather than b
    answer: int | None  # the model's own prediction
    patches_as: str
    seed: int
    shares: tuple[float, ...]
    maps: Mapping[str, SaliencyMap]
    curves: Mapping[str, RemovalCurves]
    draws: tuple[RemovalCurves, ...]  # single random maps; curves["random"] is their mean
    refused: Mapping[str, str]
    sets: int  # number of sets of patches that were run
    head_type: HeadType = "softmax"  # type of the explained output
    planned: int = 0  # number of methods of the whole test, if this is a part of it

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the recorded scores: "kept", "probability", "logit"; for a head of values only "logit"."""
        return scores_named(self.head_type)

    def score(self, asked: str | None = None) -> str:
        """Return the name of the requested score; None gives "probability", for a head of values "logit".

        Raises VitvizError for an unsupported score.
        """
        return require_score(asked, self.head_type, self.checkpoint)

    def part(self, method: str) -> Faithfulness:
        """Return the results of one method, which `join_results` joins with others.

        The first method keeps the number of sets.
        """

        def choose(several):
            return {name: one for name, one in several.items() if name == method}

        first = next(iter({**self.maps, **self.refused}), method)
        parts = {name: choose(getattr(self, name)) for name in ("maps", "curves", "refused")}
        return replace(self, **parts, sets=self.sets if method == first else 0)

    def areas(self, method: str, score: str | None = None) -> tuple[float, float]:
        """Return the areas under a method's curves: (most relevant patches first, least relevant first)."""
        return self.curves[method].areas(self.shares, self.score(score))

    def ranking(self, score: str | None = None) -> list[tuple[str, float]]:
        """Return (method, gap), the best method first; the gap is the area between the two removal curves."""
        score = self.score(score)
        gaps = {name: curves.gap(self.shares, score) for name, curves in self.curves.items()}
        return sorted(gaps.items(), key=lambda pair: -pair[1])

    def chance(self, score: str | None = None) -> tuple[float, float]:
        """Return mean and standard deviation of the random maps' gaps; the deviation is 0 with one map."""
        score = self.score(score)
        gaps = torch.tensor([one.gap(self.shares, score) for one in self.draws], dtype=torch.float64)
        return gaps.mean().item(), gaps.std().item() if len(gaps) > 1 else 0.0

    def beats_chance(self, score: str | None = None) -> list[str]:
        """Return the methods whose gap exceeds the random maps' mean gap by more than `reach`, best first."""
        mean, reach = self.chance(score)[0], self.reach(score)
        return [name for name, gap in self.ranking(score) if gap > mean + reach and name != "random"]

    def reach(self, score: str | None = None) -> float:
        """Return the 5 % threshold above the mean gap of random maps, corrected for the number of methods.

        If as many random maps as methods were tested, any of them would exceed it in one of twenty tests: t(1
        - a, n - 1) s sqrt(1 + 1/n) of n draws, a by Sidak for all methods of the table. A part of a test
        corrects for all planned methods, so that its threshold holds when the others are added.
        """
        methods = max(self.planned, len(self.curves.keys() - {"random"}))
        draws, tail = len(self.draws), removal.sidak_level(methods)
        return removal.t_quantile(tail, draws - 1) * self.chance(score)[1] * (1 + 1 / max(1, draws)) ** 0.5

    def tied(self, one: str, other: str, score: str | None = None) -> bool:
        """Return True if two methods are statistically tied: their gaps differ by at most `tie_limit`."""
        gaps = dict(self.ranking(score))
        return not abs(gaps[one] - gaps[other]) > self.tie_limit(score)

    def tie_limit(self, score: str | None = None) -> float:
        """Return the largest difference between two gaps within the noise of random maps; see `reach`."""
        return self.reach(score) * (2 / (1 + 1 / max(1, len(self.draws)))) ** 0.5

    def rows(self) -> list[dict]:
        """Return one row per method, best first; then the methods that do not apply, with the reason."""
        result = []
        for rank, (name, _) in enumerate(self.ranking(), start=1):
            one = {"method": name, "rank": rank, "patches_as": self.patches_as, "seed": self.seed}
            for score in self.scores:
                most, least = self.areas(name, score)
                one |= {f"most_{score}": most, f"least_{score}": least, f"gap_{score}": least - most}
            more = {"saco": self.curves[name].saco, "unexplained": self.maps[name].unexplained}
            more |= {one: getattr(self.maps[name], one) for one in CONVERGENCE}
            result.append({**one, **more, "reason": ""})
        without = {"rank": None, "patches_as": self.patches_as, "seed": self.seed}
        return result + [
            {**dict.fromkeys(result[0] if result else ()), "method": name, **without, "reason": str(reason)}
            for name, reason in self.refused.items()
        ]


def evaluate_methods(
    passes: Passes, methods: Sequence[str] | None = None, patches_as: str = "dropped", seed: int = 0,
    shares: Sequence[float] = SHARES, draws: int = DRAWS, progress: OnMethod | None = None,
    known_maps: Mapping[str, SaliencyMap] = MappingProxyType({}), chance: bool = True, groups: int = GROUPS,
    steps: int | None = None,
) -> Faithfulness:  # fmt: skip
    """Return the faithfulness of every method's map: removal curves, areas under them and SaCo.

    Args:
        passes: passes of one image and target; they remove patches as `patches_as` says.
        methods: names in `METHODS`; None for all (those of `DENSE` only for given classes). Random maps are
            always included, except without `chance`.
        patches_as: replacement of removed patches.
        seed: seed of random maps and of orders of equal patches.
        shares: fractions removed, ascending from 0 to 1.
        draws: number of random maps.
        progress: called with the fraction done and the current step.
        known_maps: maps that were computed before, by method.
        chance: False for a part of a test, which `join_results` joins with others.
        groups: number of SaCo's groups; 0 for no SaCo.
        steps: steps of integrated gradients; None for as many as they need.

    Raises:
        VitvizError: invalid methods, shares, target or steps.
        Stopped: the computation was cancelled.
    """
    check_steps(steps)
    classes, answer = _classes_and_prediction(passes)
    names, shares = _names(methods, chance, passes.trace), _shares(shares)
    tell = progress or (lambda share, what: None)
    maps, refused = compute_maps(passes, names, known_maps, lambda done, name: tell(0.5 * done, name), steps)
    tried: dict[Hashable, Tensor] = {name: one.map for name, one in maps.items() if name != "random"}
    if "random" in maps:
        for draw in range(draws):
            numbers = torch.Generator().manual_seed(1000 * seed + draw)
            tried[draw] = torch.rand(maps["random"].map.shape, generator=numbers, dtype=torch.float64)
    curves, sets = removal.removal_curves(
        tried, passes.answers, classes, answer, shares, seed, min(draws, ORDERS), groups,
        lambda done, total: tell(0.5 + 0.5 * done / total, "removal"), passes.trace.head_type,
    )  # fmt: skip
    single = tuple(curves.pop(draw) for draw in range(draws) if draw in curves)
    if single:
        curves["random"] = removal.mean_curves(single)
    checkpoint = passes.trace.checkpoint
    result = maps, curves, single, refused, sets, passes.trace.head_type
    return Faithfulness(checkpoint, classes, answer, patches_as, seed, shares, *result)


def join_results(parts: Sequence[Faithfulness]) -> Faithfulness:
    """Return one test from parts computed one after the other, for one image, target and protocol."""
    maps, curves, refused, draws, sets = {}, {}, {}, (), 0
    for one in parts:
        maps, curves, refused = maps | dict(one.maps), curves | dict(one.curves), refused | dict(one.refused)
        draws, sets = draws or one.draws, sets + one.sets
    return replace(parts[0], maps=maps, curves=curves, refused=refused, draws=draws, sets=sets)


def compute_maps(
    passes: Passes, names: Sequence[str], known_maps: Mapping[str, SaliencyMap] = MappingProxyType({}),
    progress: OnMethod = lambda share, what: None, steps: int | None = None,
) -> tuple[dict[str, SaliencyMap], dict[str, str]]:  # fmt: skip
    """Return two dictionaries: the map of each method that applies, and the reason why each other does not.

    `known_maps` are not computed again. `progress` is called with the fraction done and the next method.
    Raises Stopped if the computation was cancelled and TooMuch if it exceeds the server's limits.
    """
    maps, refused = {}, {}
    for number, name in enumerate(names):
        progress(number / len(names), name)
        try:
            own = steps if name == STEPPED else None
            maps[name] = known_maps[name] if name in known_maps else saliency_map(passes, name, steps=own)
        except (Stopped, TooMuch):
            raise
        except VitvizError as reason:
            refused[name] = message_of(reason)
    return maps, refused


def _classes_and_prediction(passes: Passes) -> tuple[tuple[int, ...], int | None]:
    """Return the target's class, or both of (a, b), and the prediction; raise VitvizError for a direction."""
    if isinstance(passes.target, Tensor) or passes.trace.logits is None:
        detail = "hand in a class, or (a, b) for a rather than b"
        raise VitvizError(f"A trial asks about classes, whose scores it watches; {detail}.")
    return tuple(classes_of(passes.trace, passes.target)), passes.trace.prediction


def _names(methods: Sequence[str] | None, chance: bool, trace: Trace) -> list[str]:
    """Return the names of the methods to compare, without duplicates; `methods` None selects all that apply.

    Add "random" if `chance`. Raise VitvizError for an unknown name or an empty choice.
    """
    usual = [name for name in METHODS if trace.classes is not None or name not in DENSE]
    names = usual if methods is None else [methods] if isinstance(methods, str) else list(methods)
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise VitvizError(f"methods={quoted(methods)} is not valid; expected some of {', '.join(METHODS)}.")
    return [*dict.fromkeys([*names, "random"] if chance else names)]


def _shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Return the shares of removed patches as floats.

    Raise VitvizError unless they grow from 0 to 1, both included.
    """
    result = tuple(float(share) for share in shares)
    growing = all(a < b for a, b in zip(result, result[1:], strict=False))
    if len(result) < 2 or (result[0], result[-1]) != (0, 1) or not growing:
        raise VitvizError(
            f"shares={quoted(shares)} is not valid; expected values that increase from 0 to 1, both included."
        )
    return result
