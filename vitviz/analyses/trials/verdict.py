"""What a trial comes to, in one sentence: on one picture, or over a set.

On one picture a map beats chance where the area between its curves lies above that of random maps by more
than chance alone would bring any map of the table in one of twenty trials (`Trial.reach`); two maps that lie
no further apart than that are not put in an order. It is one picture's verdict. Over a set it is as much, in
standard errors of the difference, picture by picture.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vitviz.analyses.protocol import TITLES, listed
from vitviz.analyses.relevance import CONTROLS
from vitviz.analyses.trials.trial import Trial
from vitviz.record.sentence import Sentence

NOTHING = "No map is better than chance here."
BEST = "{best} is best here; {count} of {total} maps beat chance."
TIED = "{best} is best here, but not by more than chance; {count} of {total} maps beat it."
LEVEL = "No further behind the best than chance reaches: {others}."
OVER_NOTHING = "Over {pictures} pictures no map tells better than chance which patches the answer hangs on."
OVER_BEST = (
    "Over {pictures} pictures {best} tells best which patches the answer hangs on; {count} of {total} maps"
    " beat chance."
)
OVER_TIED = (
    "Over {pictures} pictures {best} lies first and cannot be told from {others}; {count} of {total} maps"
    " beat chance."
)
OVER_ONE = (
    "One picture says nothing about others, and has no standard error: choose two or more, better fifty."
)


def verdict(trial: Trial, score: str = "probability") -> Sentence:
    """Which map told best what the answer hangs on; controls count as rivals, and not among the maps."""
    beats = trial.beats_chance(score)
    if not beats:
        return Sentence(NOTHING)
    counts = [len([name for name in names if name not in CONTROLS]) for names in (beats, trial.curves)]
    values = {"best": TITLES[beats[0]], "count": counts[0], "total": counts[1]}
    return Sentence(TIED, **values) if _near(trial, score) else Sentence(BEST, **values)


def level(trial: Trial, score: str = "probability") -> str:
    """Which others cannot be told from the best; empty for none."""
    near = _near(trial, score)
    return Sentence(LEVEL, others=listed(near)) if near else ""


def _near(trial: Trial, score: str) -> list[str]:
    best, *rest = trial.beats_chance(score) or ("",)
    return [name for name in rest if trial.tied(best, name, score)]


def verdict_over(rows: Sequence[Mapping[str, Any]], pictures: int) -> Sentence:
    """The same of a set, from rows of `standing`: who shares the first rank is not told from the first."""
    if pictures < 2:
        return Sentence(OVER_ONE)
    beats = [row for row in rows if row["beats_chance"]]
    if not beats or beats[0]["rank"] > 1:
        return Sentence(OVER_NOTHING, pictures=pictures)
    best, *rest = beats
    near = [row["method"] for row in rest if row["rank"] == 1]
    counts = [len([row for row in some if row["method"] not in CONTROLS]) for some in (beats, rows)]
    values = {"pictures": pictures, "best": TITLES[best["method"]], "count": counts[0], "total": counts[1]}
    return Sentence(OVER_TIED, **values, others=listed(near)) if near else Sentence(OVER_BEST, **values)
