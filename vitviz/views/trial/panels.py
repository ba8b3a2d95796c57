"""The two panels of curves: the most relevant patches taken away first, and the least relevant."""

from collections.abc import Sequence

import numpy as np

from vitviz.analyses.protocol import TITLES
from vitviz.analyses.trials.trial import Trial
from vitviz.analyses.trials.verdict import CONTROLS
from vitviz.figures.chart import GREY, SEVERAL, Chart, Series
from vitviz.record.sentence import Sentence
from vitviz.views.shared import target_name
from vitviz.views.subject import Settings, Subject
from vitviz.views.trial import made

DASHES = ("", "dashed", "dotted", "dash-dotted")
SIDES = {
    "most": (
        Sentence("Most relevant first: lower is better"),
        Sentence("{share} % removed, most relevant first"),
    ),
    "least": (
        Sentence("Least relevant first: higher is better"),
        Sentence("{share} % removed, least relevant first"),
    ),
}


def panels(
    trial: Trial, names: Sequence[str], subject: Subject, settings: Settings, held: str = ""
) -> tuple[Chart, Chart]:
    """Both, a line a method, the `held` one thick, on one scale: 0 to 1, logits as far as they go."""
    score = settings["score"]
    lines = {side: _lines(trial, side, score, names, held) for side in SIDES}
    every = [end for side in lines.values() for one in side for end in (one.y, *(one.band or ()))]
    low, high = (0.0, *map(np.min, every)), (1.0, *map(np.max, every))
    ends = (float(min(low)), float(max(high))) if score == "logit" else (0.0, 1.0)
    axes = Sentence("patches taken away"), _watched(subject, settings), (-2.0, 106.0), ends
    ticks = tuple((at, f"{at} %") for at in range(0, 101, 25))
    like = {"percent": score != "logit", "ticks": ticks, "keyed": True}
    return tuple(Chart(*axes, title, lines[side], **like) for side, (title, _) in SIDES.items())


def _lines(trial: Trial, side: str, score: str, names: Sequence[str], held: str) -> tuple[Series, ...]:
    """Five colours, first solid, then dashed, dotted, both; what knows no answer is grey."""
    styles = iter([(colour, dash) for dash in DASHES for colour in SEVERAL])
    grey, found = {"random": (GREY, "dashed"), "centre": (GREY, "dotted")}, []
    told = (Sentence("{method}"), SIDES[side][1], Sentence("{whole}"))
    for name in names:
        y = getattr(trial.curves[name], side)[score].numpy()
        colour, dash = grey[name] if name in CONTROLS else next(styles)
        band = tuple(end.numpy() for end in made.reach(trial, side, score)) if name == "random" else None
        title, x = Sentence(TITLES[name]), 100 * np.asarray(trial.shares)
        more = {"method": [title] * len(x), "share": np.rint(x).astype(int)}
        more["whole"] = [Sentence("the whole picture"), *[""] * (len(x) - 1)]
        thick = 0.7 if name == held else 0.35
        line = Series(x, y, title, colour, True, False, band, dash, thick, told=told, also=more, key=name)
        found.append(line)
    return tuple(found)


def _watched(subject: Subject, settings: Settings) -> Sentence:
    """What is watched, by name: a class, or one rather than another."""
    if settings["score"] == "kept":
        return Sentence("Answer kept")
    told = {"class": target_name(subject, settings["target"])}
    return Sentence("logit of {class}" if settings["score"] == "logit" else "probability of {class}", **told)
