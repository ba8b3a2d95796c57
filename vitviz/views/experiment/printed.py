"""The experiment for print: curves over the draws with their bands, and what the model was shown."""

from __future__ import annotations

import numpy as np

from vitviz.analyses.protocol import DRAWS, SHARES, WAYS
from vitviz.figures.paper.plates import SEVERAL, Chart, Level, Map, Plate, Series
from vitviz.sentence import Sentence
from vitviz.views.printing import NARROW, WIDE, joined

NAMES = {"dropped": "left out of the sequence", "black": "painted black", "shuffled": "shuffled"}


def plate(view, subject, settings, asked) -> Plate:
    """The curves; with detail also the pictures of the draw and step in view, with what was answered."""
    found = view.whole(subject, settings["kind"])
    step, draw = min(settings["step"], len(found.steps) - 1), settings["draw"]
    chart = _chart(found, settings["score"], step if asked.detail else None)
    notes = [Sentence("Bands: twice the standard error over {count} draws.", count=DRAWS)]
    notes += [Sentence("{name}: {value}", name=_way(way), value=why) for way, why in found.refused.items()]
    if not asked.detail:
        return Plate(((chart,),), tuple(notes), width=NARROW + 14)
    ways = WAYS[settings["kind"]]
    order = view.item(subject, "orders", settings)[0 if settings["kind"] == "drop" else step, draw - 1]
    pictures = [_shown(subject, way, order, found.steps[step]) for way in ways]
    maps = tuple(Map(_way(way), one) for way, one in zip(ways, pictures, strict=True))
    notes.append(Sentence("Shown: {what}, draw {draw}.", what=_done(found, step), draw=draw))
    told = zip(ways, view.answered(subject, settings["kind"], step), strict=True)
    notes += [
        Sentence("{name}: {value}", name=_way(way), value=_said(one[draw - 1])) for way, one in told if one
    ]
    weights = (2.4, *[1.0] * len(maps))
    return Plate(((chart, *maps),), tuple(notes), (weights,), width=WIDE)


def _chart(found, score: str, step: int | None) -> Chart:
    """Mean and band of every way; a dashed line at the step in view."""
    drop = found.kind == "drop"
    x = np.asarray(SHARES if drop else range(1, len(found.steps) + 1), float)
    of = Sentence("probability of {class}", **{"class": found.label})
    series = []
    for way, colour in zip(found.probability, SEVERAL, strict=False):
        mean, error = np.asarray(found.curve(way, score)).T
        band = (np.clip(mean - 2 * error, 0, 1), np.clip(mean + 2 * error, 0, 1))
        series.append(Series(x, mean, _way(way), colour, line=True, dots=True, band=band))
    named = (
        [(at, f"{at:.0f} %") for at in x[::2]] if drop else list(zip(x, map(str, found.steps), strict=True))
    )
    at = () if step is None else (Level(float(x[step]), _done(found, step), upright=True, colour="#7d838e"),)
    return Chart(
        Sentence("patches dropped" if drop else "pieces that change places"),
        Sentence("draws that keep the answer") if score == "kept" else of,
        (-2.0, 106.0) if drop else (0.7, len(x) + 0.3),
        (0.0, 1.0),
        Sentence("{name}: {value}", name=Sentence("The answer to the whole picture"), value=found.label),
        tuple(series),
        levels=at,
        percent=True,
        ticks=tuple(named),
    )


def _way(way: str) -> Sentence:
    return Sentence(NAMES[way])


def _done(found, step: int) -> Sentence:
    """What was done at a point of the curves, as the page says it."""
    if step == 0:
        return Sentence("the whole picture")
    count, patches = found.steps[step], found.patches
    if found.kind == "drop":
        text = "{share} % of the patches dropped: {count} of {patches}"
        return Sentence(text, share=SHARES[step], count=count, patches=patches)
    side = round((patches / count) ** 0.5)
    return Sentence("{count} pieces of {side} × {side} patches shuffled", count=count, side=side)


def _said(answers) -> Sentence:
    """The likeliest classes with their probabilities."""
    return joined(*(f"{name} {100 * share:.1f} %" for name, share in answers))


def _shown(subject, way: str, order: np.ndarray, count: int) -> np.ndarray:
    """The picture as the model got it: what was left out is see-through."""
    grid, picture = subject.grid, subject.trace.view.picture
    (tall, wide), whole = grid.patch, np.dstack([picture, np.full(picture.shape[:2], 255, np.uint8)])
    inside = whole[: grid.pixels[0], : grid.pixels[1]]
    cut = inside.reshape(grid.rows, tall, grid.cols, wide, 4).swapaxes(1, 2).reshape(-1, tall, wide, 4).copy()
    if way == "shuffled":
        cut = cut[order]
    else:
        cut[order[:count]] = 0 if way == "dropped" else (0, 0, 0, 255)
    laid = cut.reshape(grid.rows, grid.cols, tall, wide, 4).swapaxes(1, 2)
    whole[: grid.pixels[0], : grid.pixels[1]] = laid.reshape(inside.shape)
    return whole
