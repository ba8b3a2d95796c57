"""What a trial on one picture comes to, in one sentence.

A map beats chance where the area between its curves lies more than two standard deviations above that of
random maps; two maps that lie no further apart than that are not put in an order. It is one picture's
verdict.
"""

from __future__ import annotations

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
