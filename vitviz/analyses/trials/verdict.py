"""What a trial comes to, in one sentence: on one picture, or over a set.

On one picture a map beats chance where the area between its curves lies more than two standard deviations
above that of random maps; two maps that lie no further apart than that are not put in an order. It is one
picture's verdict. Over a set it is two standard errors of the difference, picture by picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vitviz.analyses.methods import TITLES, listed
from vitviz.analyses.trials.trial import Trial
from vitviz.sentence import Sentence

CONTROLS = ("random", "centre")
NOTHING = "On this picture no map tells better than chance which patches the answer hangs on."
BEST = (
    "On this picture {best} tells best which patches the answer hangs on; {count} of {total} maps beat"
    " chance."
)
TIED = (
    "On this picture {best} lies first, no further ahead of {others} than chance reaches; {count} of {total}"
    " maps beat chance."
)
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
    """Which map told best what the answer hangs on, and which others cannot be told from it; controls count
    as rivals, and not among the maps.
    """
    beats = trial.beats_chance(score)
    if not beats:
        return Sentence(NOTHING)
    best, *rest = beats
    near = [name for name in rest if trial.tied(best, name, score)]
    counts = [len([name for name in names if name not in CONTROLS]) for names in (beats, trial.curves)]
    values = {"best": TITLES[best], "count": counts[0], "total": counts[1]}
    return Sentence(TIED, **values, others=listed(near)) if near else Sentence(BEST, **values)


def verdict_over(rows: Sequence[Mapping[str, Any]], pictures: int) -> Sentence:
    """The same of a set, from the rows of `standing`: who shares the first rank cannot be told from the
    first.
    """
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
