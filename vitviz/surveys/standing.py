"""Where methods stand after a trial over a set: an order only as far as differences are more than noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from vitviz.analyses.methods import TITLES
from vitviz.analyses.trials.answers import SCORES
from vitviz.errors import UnsupportedModel
from vitviz.surveys.measures.trial import TrialMeasure


def standing(survey: Any, protocol: int = 0, score: str = "probability") -> list[dict[str, Any]]:
    """Methods by the mean of their gap over pictures, best first: {method, rank, most, least, gap, error,
    ...}.

    `rank` is 1 and as many more as lie ahead by over two standard errors of the difference, picture by
    picture: who cannot be told apart shares it. UnsupportedModel where the survey tried no maps.
    """
    measure = next((one for one in survey.measures if isinstance(one, TrialMeasure)), None)
    if measure is None or "trial.most" not in survey.sums:
        raise UnsupportedModel("This survey tried no maps; ask for the measure 'trial'.")
    k, ahead = SCORES.index(score), survey.moments("trial.ahead")
    most, least = (survey.moments(f"trial.{side}") for side in ("most", "least"))
    chance = measure.methods.index("random")
    found = []
    for j, method in enumerate(measure.methods):
        if np.isnan(most.mean[protocol, j, k]):
            continue
        beaten = _surely(ahead, protocol, slice(None), j)
        found.append(
            {
                "method": method,
                "rank": 1 + int(beaten.sum()),
                "most": float(most.mean[protocol, j, k]),
                "most_error": float(most.error[protocol, j, k]),
                "least": float(least.mean[protocol, j, k]),
                "least_error": float(least.error[protocol, j, k]),
                "gap": float(least.mean[protocol, j, k] - most.mean[protocol, j, k]),
                "beats_chance": bool(_surely(ahead, protocol, j, chance)),
                **{
                    name: float(survey.mean(f"trial.{name}")[j])
                    for name in ("alike", "hit", "energy")
                    if f"trial.{name}" in survey.sums
                },
            }
        )
    return sorted(found, key=lambda row: -row["gap"])


def _surely(ahead: Any, protocol: int, one: Any, other: int) -> np.ndarray:
    """Whether one method lies ahead of the other by more than two standard errors."""
    return (
        np.nan_to_num(ahead.mean[protocol, one, other] - 2 * ahead.error[protocol, one, other], nan=-1)
        > 1e-12
    )


def table(survey: Any, protocol: int = 0) -> list[tuple[str, ...]]:
    """For people: rank, method, areas in %, gap, correlation between two classes, pointing and energy."""

    def share(row, name):
        return f"{100 * row[name]:.1f}" if name in row and row[name] == row[name] else "–"

    return [
        (
            str(row["rank"]),
            TITLES[row["method"]],
            f"{share(row, 'most')} ± {share(row, 'most_error')}",
            f"{share(row, 'least')} ± {share(row, 'least_error')}",
            share(row, "gap"),
            f"{row['alike']:.2f}" if row["alike"] == row["alike"] else "–",
            share(row, "hit"),
            share(row, "energy"),
        )
        for row in standing(survey, protocol)
    ]


HEAD = (
    "rank", "map", "most relevant first ↓", "least relevant first ↑", "gap ↑", "class 1 ~ 2", "hit",
    "energy in box",
)  # fmt: skip

__all__ = ["HEAD", "standing", "table"]
