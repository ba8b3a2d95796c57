"""Ranking of saliency methods over a set of images, and the result of a faithfulness test in one sentence.

On one image a map beats chance if the area between its curves exceeds that of random maps by more than chance
would give any map of the table in one of twenty tests (`Faithfulness.reach`). Two maps that differ by less
than two random maps may are not ordered. This result holds for one image. Over a set of images the criterion
is the same, in standard errors of the paired difference: methods are ordered only if they differ by more than
noise.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitviz.analyses.faithfulness.curves import SCORES, sidak_level, t_quantile
from vitviz.analyses.faithfulness.evaluation import Faithfulness
from vitviz.analyses.protocol import TITLES, UNTRIED, join_titles
from vitviz.analyses.saliency import CONTROLS
from vitviz.errors import UnsupportedModel
from vitviz.traces.head_type import require_score, scores_named
from vitviz.traces.localized_text import LocalizedText

ALIKE = "alike"
ALSO = (ALIKE, "hit", "energy")  # of a method, independent of the way patches are removed
NO_RANK = (
    "{method} is not ranked: it does not apply to {count} of {pictures} images. The first is {name}: {reason}"
)
NOT_ALIKE = (
    "{method} is not compared between two classes: for {count} of {pictures} images, there is no map of"
    " the second class. The first is {name}: {reason}"
)


def faithfulness_measure(survey: Any) -> Any:
    """Return a survey's faithfulness measure; raises UnsupportedModel for a survey without one."""
    measure = next((one for one in survey.measures if one.name == "trial"), None)
    if measure is None or "trial.most" not in survey.sums:
        raise UnsupportedModel(UNTRIED)
    return measure


def ranking_rows(survey: Any, protocol: int = 0, score: str | None = None) -> list[dict[str, Any]]:
    """Return one row per method, best mean gap first; leave out methods refused for some images.

    Rows have the keys method, rank, most, least, gap, ahead, beats_chance and more.

    `refused_methods` gives the reasons of those left out. `protocol` is an index into the measure's
    protocols.

    `rank`, by the same score, is 1 plus the number of methods that lead by more than two standard errors of
    the paired difference; methods that do not differ significantly share a rank. `ahead` is the gap minus
    that of chance. `beats_chance` is True if `ahead` exceeds the value that chance gives any method of the
    table in one of twenty sets. `most`, `least` and `ahead` have standard errors, NaN for one image. Raises
    UnsupportedModel for a survey without a faithfulness measure.
    """
    measure = faithfulness_measure(survey)
    score = require_score(score, survey.head_type, survey.checkpoint)
    k, ahead = SCORES.index(score), survey.moments("trial.ahead")
    most, least = (survey.moments(f"trial.{side}") for side in ("most", "least"))
    chance = measure.methods.index("random")
    sure = t_quantile(sidak_level(len(measure.methods) - 1), ahead.count - 1)
    result = []
    for j, method in enumerate(measure.methods):
        if np.isnan(most.mean[protocol, j, k]):
            continue
        here, there = (protocol, j, k), (protocol, j, chance, k)
        leading = _leads_significantly(ahead, protocol, slice(None), j, k).sum()
        row = {"method": method, "rank": 1 + int(leading)}
        row |= _with_error("most", most, here) | _with_error("least", least, here)
        row |= {"gap": float(least.mean[here] - most.mean[here])} | _with_error("ahead", ahead, there)
        row |= {"beats_chance": bool(_leads_significantly(ahead, protocol, j, chance, k, sure))}
        also = (name for name in ALSO if f"trial.{name}" in survey.sums)
        result.append(row | {name: float(survey.mean(f"trial.{name}")[j]) for name in also})
    return sorted(result, key=lambda row: -row["gap"])


def _with_error(name: str, one: Any, at: tuple[int, ...]) -> dict[str, float]:
    """Return mean and standard error of moments at index `at`, under keys `name` and `name`_error."""
    return {name: float(one.mean[at]), f"{name}_error": float(one.error[at])}


def refused_methods(survey: Any) -> dict[str, Any]:
    """Return the refusals of methods that do not apply to some images, by method; they are not ranked.

    Each has `pictures`, the number of those images, and `name` and `reason` of the first. Over the other
    images alone, such a method would be compared with methods tested on harder images.
    """
    result = {name: survey.refused.get(f"trial.{name}") for name in faithfulness_measure(survey).methods}
    return {name: one for name, one in result.items() if one is not None}


def refusal_texts(survey: Any) -> list[LocalizedText]:
    """Return a sentence per method that is not ranked, and per method that lacks a map of a second class."""

    def values(method: str, one: Any) -> dict[str, Any]:
        about = {"method": TITLES[method], "count": one.pictures, "pictures": survey.images}
        return {**about, "name": one.name, "reason": one.reason}

    result = [LocalizedText(NO_RANK, **values(*one)) for one in refused_methods(survey).items()]
    names = faithfulness_measure(survey).methods
    alike = {name: survey.refused.get(f"trial.{ALIKE}.{name}") for name in names}
    return result + [LocalizedText(NOT_ALIKE, **values(name, one)) for name, one in alike.items() if one]


def _leads_significantly(
    ahead: Any, protocol: int, one: Any, other: int, score: int, errors: float = 2.0
) -> np.ndarray | np.bool_:
    """True if one method leads another by more than `errors` standard errors."""
    at = protocol, one, other, score
    return np.nan_to_num(ahead.mean[at] - errors * ahead.error[at], nan=-1) > 1e-12


def ranking_table(survey: Any, protocol: int = 0) -> list[tuple[str, ...]]:
    """Return the table as text.

    Columns: rank, method, areas, gap, correlation between two classes, pointing game and energy. Areas are in
    per cent; for values they are not scaled.
    """
    per = 1 if survey.head_type == "value" else 100

    def share(row: Mapping[str, Any], name: str, per: float = 100) -> str:
        known, places = name in row and row[name] == row[name], 1 if per > 1 else 3
        return f"{per * row[name]:.{places}f}" if known else "–"

    def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
        sides = ("most", "least")
        areas = (f"{share(row, side, per)} ± {share(row, f'{side}_error', per)}" for side in sides)
        alike = f"{row['alike']:.2f}" if row["alike"] == row["alike"] else "–"
        rest = share(row, "gap", per), alike, share(row, "hit"), share(row, "energy")
        return (str(row["rank"]), TITLES[row["method"]], *areas, *rest)

    return [cells(row) for row in ranking_rows(survey, protocol)]


def ranking_rows_all_scores(survey: Any, protocol: int = 0) -> list[dict[str, Any]]:
    """Return one row per method with the numbers of every score ("gap_logit"), for tables.

    Methods are ordered by probability; for values by value.
    """
    usual, scores = require_score(None, survey.head_type, ""), scores_named(survey.head_type)
    by_score = {score: ranking_rows(survey, protocol, score) for score in (usual, *scores)}
    result = []
    for first in by_score[usual]:
        one: dict[str, Any] = {"method": first["method"]}
        for score, rows in by_score.items():
            (row,) = (row for row in rows if row["method"] == first["method"])
            one |= {f"{name}_{score}": value for name, value in row.items() if name not in ("method", *ALSO)}
        result.append(one | {name: first[name] for name in ALSO if name in first})
    return result


HEAD = (
    "rank", "map", "most relevant first ↓", "least relevant first ↑", "gap ↑", "class 1 ~ 2", "hit",
    "energy in box",
)  # fmt: skip

NOTHING = "No method beats random maps here."
BEST = "{best} ranks first. {count} of {total} methods beat random maps."
TIED = "{best} ranks first, but its lead is within noise. {count} of {total} methods beat random maps."
LEVEL = "Statistically tied with the best (gaps at most {limit} apart): {others}."
OVER_NOTHING = "Over {pictures} images, no method beats random maps."
OVER_BEST = "Over {pictures} images, {best} ranks first. {count} of {total} methods beat random maps."
OVER_TIED = (
    "Over {pictures} images, {best} ranks first, statistically tied with {others}. {count} of {total}"
    " methods beat random maps."
)
OVER_ONE = "One image has no standard error. Choose two or more images, ideally fifty."


def verdict_text(trial: Faithfulness, score: str | None = None) -> LocalizedText:
    """Return the result of a test on one image as a sentence.

    Controls count as competitors, but not among the maps.
    """
    beats = trial.beats_chance(score)
    if not beats:
        return LocalizedText(NOTHING)
    counts = [len([name for name in names if name not in CONTROLS]) for names in (beats, trial.curves)]
    values = {"best": TITLES[beats[0]], "count": counts[0], "total": counts[1]}
    return LocalizedText(TIED if _methods_tied_with_best(trial, score) else BEST, **values)


def tied_methods_text(trial: Faithfulness, score: str | None = None) -> str:
    """Return which other methods are statistically tied with the best; empty if none is."""
    near, limit = _methods_tied_with_best(trial, score), trial.tie_limit(score)
    if not near:
        return ""
    said = f"{limit:.2f}" if trial.score(score) == "logit" else f"{100 * limit:.1f} %"
    return LocalizedText(LEVEL, limit=said, others=join_titles(near))


def _methods_tied_with_best(trial: Faithfulness, score: str | None) -> list[str]:
    """Return the methods statistically tied with the best of those that beat chance; [] if none is."""
    best, *rest = trial.beats_chance(score) or ("",)
    return [name for name in rest if trial.tied(best, name, score)]


def verdict_text_over_images(rows: Sequence[Mapping[str, Any]], pictures: int) -> LocalizedText:
    """Return the result over a set of images as a sentence, from rows of `standing`.

    Methods that share the first rank do not differ significantly from the first.
    """
    if pictures < 2:
        return LocalizedText(OVER_ONE)
    beats = [row for row in rows if row["beats_chance"]]
    if not beats or beats[0]["rank"] > 1:
        return LocalizedText(OVER_NOTHING, pictures=pictures)
    best, *rest = beats
    near = [row["method"] for row in rest if row["rank"] == 1]
    counts = [len([row for row in some if row["method"] not in CONTROLS]) for some in (beats, rows)]
    values = {"pictures": pictures, "best": TITLES[best["method"]], "count": counts[0], "total": counts[1]}
    if near:
        return LocalizedText(OVER_TIED, **values, others=join_titles(near))
    return LocalizedText(OVER_BEST, **values)
