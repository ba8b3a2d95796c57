"""The experiment for print: curves over the draws with their bands, and what the model was shown."""

from dataclasses import replace

import numpy as np

from vitviz.analyses.protocol import SHARES, WAYS
from vitviz.figures.chart import GREY, Level
from vitviz.figures.paper.plates import Map, Plate
from vitviz.record.sentence import Sentence
from vitviz.views.experiment import done_at, way_name
from vitviz.views.printing import NARROW, WIDE, joined


def plate(view, subject, settings, asked) -> Plate:
    """The curves; with detail also the pictures of the draw and step in view, with what was answered."""
    chart = view.chart(subject, {**settings, "known": len(SHARES)})
    if not asked.detail:
        return Plate(((chart,),), chart.notes, width=NARROW + 14)
    kind, draw, counts = settings["kind"], settings["draw"], view.item(subject, "steps", settings)
    step, ways = min(settings["step"], len(counts) - 1), WAYS[kind]
    done = done_at(subject.grid, kind, step)
    at = float(SHARES[step] if kind == "drop" else step + 1)
    chart = replace(chart, levels=(Level(at, done, upright=True, colour=GREY),))
    order = view.item(subject, "orders", settings)[0 if kind == "drop" else step, draw - 1]
    maps = tuple(Map(way_name(way), _shown(subject, way, order, counts[step])) for way in ways)
    notes = [*chart.notes, Sentence("Shown: {what}, draw {draw}.", what=done, draw=draw)]
    told = zip(ways, view.answered(subject, kind, step), strict=True)
    notes += [
        Sentence("{name}: {value}", name=way_name(way), value=_said(one[draw - 1]))
        for way, one in told
        if one
    ]
    weights = (2.4, *[1.0] * len(maps))
    return Plate(((chart, *maps),), tuple(notes), (weights,), width=WIDE)


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
