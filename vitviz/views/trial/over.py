"""A trial over a set of pictures, as it travels: JSON, arrays, a table. What it measured is asked of the
survey itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz.analyses.methods import TITLES
from vitviz.analyses.trials.answers import SCORES
from vitviz.analyses.trials.standing import in_all_scores, refused, said_of_refused, standing, trial_in
from vitviz.analyses.trials.verdict import verdict_over
from vitviz.sentence import travelling


def protocol_of(survey: Any, settings: Mapping[str, Any]) -> int:
    """Which of the ways to remove that were tried is in view: the one that is set, else the first."""
    tried = trial_in(survey).protocols
    return tried.index(settings["patches_as"]) if settings["patches_as"] in tried else 0


def told(survey: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The ranking and the verdict, by the score that is watched."""
    place = protocol_of(survey, settings)
    rows = standing(survey, place, settings["score"])
    return {
        "pictures": survey.images,
        "patches_as": trial_in(survey).protocols[place],
        "verdict": travelling(verdict_over(rows, survey.images)),
        "rows": [{name: _known(value) for name, value in row.items()} for row in rows],
        "refused": [travelling(sentence) for sentence in said_of_refused(survey)],
    }


def arrays(survey: Any, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What is taken home: methods best first by probability, and each number of theirs by score."""
    place, measure = protocol_of(survey, settings), trial_in(survey)
    rows = in_all_scores(survey, place)

    def of(name: str) -> np.ndarray:
        return np.asarray([[row[f"{name}_{score}"] for score in SCORES] for row in rows])

    names = ("rank", "most", "most_error", "least", "least_error", "gap", "ahead", "ahead_error")
    return {
        "methods": np.asarray([row["method"] for row in rows]),
        "scores": np.asarray(SCORES),
        "shares": np.asarray(measure.shares),
        "patches_as": np.asarray(measure.protocols[place]),
        "pictures": np.asarray(survey.images),
        **{name: of(name) for name in names},
        "alike": np.asarray([row["alike"] for row in rows]),
        "refused": np.asarray(list(map(str, said_of_refused(survey))), dtype=str),
    }


def rows(survey: Any, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a method, best first, for a table; below them those that have no rank, with the reason."""
    place = protocol_of(survey, settings)
    about = {
        "checkpoint": survey.checkpoint,
        "pictures": survey.images,
        "patches_as": trial_in(survey).protocols[place],
    }
    found = [{**row, "refused": 0, "reason": ""} for row in in_all_scores(survey, place)]
    found += [
        {**dict.fromkeys(found[0], ""), "method": method, "refused": one.pictures, "reason": str(one.reason)}
        for method, one in refused(survey).items()
    ]
    return [{**about, "title": TITLES[row["method"]], **row} for row in found]


def _known(value: Any) -> Any:
    """As JSON has it, which knows no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
