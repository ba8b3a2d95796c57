"""Where methods stand after a trial over a set: an order only as far as differences are more than noise."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz.analyses.protocol import TITLES, UNTRIED
from vitviz.analyses.trials.curves import SCORES, beyond, of_all
from vitviz.errors import UnsupportedModel
from vitviz.record.sentence import Sentence

ALIKE = "alike"
ALSO = (ALIKE, "hit", "energy")  # of a method, whatever way patches are removed
NO_RANK = (
    "{method} is not ranked: it does not apply to {count} of {pictures} pictures. The first is {name}:"
    " {reason}"
)
NOT_ALIKE = (
    "{method} is not compared between two classes: for {count} of {pictures} pictures it has no map of the"
    " second. The first is {name}: {reason}"
)


def trial_in(survey: Any) -> Any:
    """The measure by which a survey tried maps; UnsupportedModel where it did not."""
    measure = next((one for one in survey.measures if one.name == "trial"), None)
    if measure is None or "trial.most" not in survey.sums:
        raise UnsupportedModel(UNTRIED)
    return measure


def standing(survey: Any, protocol: int = 0, score: str = "probability") -> list[dict[str, Any]]:
    """Methods by the mean of their gap over pictures, best first: {method, rank, most, least, gap, ahead,
    ...}. Those that do not apply to every picture are not among them; `refused` says why.

    `rank`, by the same score, is 1 and as many more as lie ahead by over two standard errors of the
    difference, picture by picture: who cannot be told apart shares it. `ahead` is the gap less chance's, and
    `beats_chance` whether that is more than chance gives any method of the table in one set of twenty. Of
    `most`, `least` and `ahead` there are standard errors, NaN for one picture. UnsupportedModel for no trial.
    """
    measure = trial_in(survey)
    k, ahead = SCORES.index(score), survey.moments("trial.ahead")
    most, least = (survey.moments(f"trial.{side}") for side in ("most", "least"))
    chance = measure.methods.index("random")
    sure = beyond(of_all(len(measure.methods) - 1), ahead.count - 1)
    found = []
    for j, method in enumerate(measure.methods):
        if np.isnan(most.mean[protocol, j, k]):
            continue
        here, there = (protocol, j, k), (protocol, j, chance, k)
        row = {"method": method, "rank": 1 + int(_surely(ahead, protocol, slice(None), j, k).sum())}
        row |= _with_error("most", most, here) | _with_error("least", least, here)
        row |= {"gap": float(least.mean[here] - most.mean[here])} | _with_error("ahead", ahead, there)
        row |= {"beats_chance": bool(_surely(ahead, protocol, j, chance, k, sure))}
        also = (name for name in ALSO if f"trial.{name}" in survey.sums)
        found.append(row | {name: float(survey.mean(f"trial.{name}")[j]) for name in also})
    return sorted(found, key=lambda row: -row["gap"])


def _with_error(name: str, one: Any, at: tuple[int, ...]) -> dict[str, float]:
    return {name: float(one.mean[at]), f"{name}_error": float(one.error[at])}


def refused(survey: Any) -> dict[str, Any]:
    """Methods that do not apply to some of the pictures, and so have no rank: each with `pictures`, on how
    many, and `name` and `reason`, of the first.

    Over the other pictures alone they would be compared with methods that were tried on harder ones.
    """
    found = {name: survey.refused.get(f"trial.{name}") for name in trial_in(survey).methods}
    return {name: one for name, one in found.items() if one is not None}


def said_of_refused(survey: Any) -> list[Sentence]:
    """The same in sentences, and of which methods maps of two classes could not be compared."""

    def values(method: str, one: Any) -> dict[str, Any]:
        about = {"method": TITLES[method], "count": one.pictures, "pictures": survey.images}
        return {**about, "name": one.name, "reason": one.reason}

    found = [Sentence(NO_RANK, **values(*one)) for one in refused(survey).items()]
    alike = {name: survey.refused.get(f"trial.{ALIKE}.{name}") for name in trial_in(survey).methods}
    return found + [Sentence(NOT_ALIKE, **values(name, one)) for name, one in alike.items() if one]


def _surely(
    ahead: Any, protocol: int, one: Any, other: int, score: int, errors: float = 2.0
) -> np.ndarray | np.bool_:
    """Whether one method lies ahead of the other by more than so many standard errors."""
    at = protocol, one, other, score
    return np.nan_to_num(ahead.mean[at] - errors * ahead.error[at], nan=-1) > 1e-12


def table(survey: Any, protocol: int = 0) -> list[tuple[str, ...]]:
    """For people: rank, method, areas in %, gap, correlation between two classes, pointing and energy."""

    def share(row: Mapping[str, Any], name: str) -> str:
        return f"{100 * row[name]:.1f}" if name in row and row[name] == row[name] else "–"

    def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
        areas = (f"{share(row, side)} ± {share(row, f'{side}_error')}" for side in ("most", "least"))
        alike = f"{row['alike']:.2f}" if row["alike"] == row["alike"] else "–"
        rest = share(row, "gap"), alike, share(row, "hit"), share(row, "energy")
        return (str(row["rank"]), TITLES[row["method"]], *areas, *rest)

    return [cells(row) for row in standing(survey, protocol)]


def in_all_scores(survey: Any, protocol: int = 0) -> list[dict[str, Any]]:
    """A row a method, best first by probability, with every score's numbers ("gap_logit"): for tables."""
    by_score = {score: standing(survey, protocol, score) for score in ("probability", *SCORES)}
    found = []
    for first in by_score["probability"]:
        one: dict[str, Any] = {"method": first["method"]}
        for score, rows in by_score.items():
            (row,) = (row for row in rows if row["method"] == first["method"])
            one |= {f"{name}_{score}": value for name, value in row.items() if name not in ("method", *ALSO)}
        found.append(one | {name: first[name] for name in ALSO if name in first})
    return found


HEAD = (
    "rank", "map", "most relevant first ↓", "least relevant first ↑", "gap ↑", "class 1 ~ 2", "hit",
    "energy in box",
)  # fmt: skip
