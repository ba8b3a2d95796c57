"""CKA between depths for print; with detail also what heads and branches do, block by block, beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vitviz.figures.paper.plates import BLUE, ORANGE, Chart, Matrix, Plate, Scale, Series
from vitviz.sentence import Sentence
from vitviz.views.compared import curves, second
from vitviz.views.printing import NARROW, WIDE, joined, over_which

if TYPE_CHECKING:
    from vitviz.views.subject import Subject

UP = {
    "distance": "Distance of attention (px)",
    "distance_of_even": "Distance, of that of even attention",
    "entropy": "Entropy of attention (nats)",
    "attention": "Skip over attention",
    "mlp": "Skip over MLP",
}
LOST = "{checkpoint} has no such curve: its blocks are not understood, or it has no class token."


def plate(view, subject, settings, asked) -> Plate:
    """The matrix; with detail the chosen curve of every checkpoint in view."""
    matrix, notes = _matrix(view, subject, settings)
    if not asked.detail:
        return Plate(((matrix,),), notes, width=NARROW, second=settings["against"] == "beside")
    chart, lost = _chart(view, subject, settings)
    rows, weights = ((matrix, chart),) if chart else ((matrix,),), ((1.0, 1.1),) if chart else ()
    return Plate(rows, notes + lost, weights, WIDE if chart else NARROW, subject.beside is not None)


def _matrix(view, subject, settings) -> tuple[Matrix, tuple[Sentence, ...]]:
    """As on the page; below it over which pictures, how sure it is, and what empty squares are."""
    values, error = (np.asarray(view.item(subject, name, settings)) for name in ("cka", "error"))
    film, other = settings["against"] == "film", subject
    if settings["against"] == "beside":
        other = second(subject)
    steps = view.item(subject, "steps", settings) if film else range(values.shape[1])
    title = "Each depth with itself during the training" if film else "How alike depths tell pictures apart"
    matrix = Matrix(
        values,
        Scale("viridis", 0.0, 1.0, Sentence("Likeness (CKA)")),
        Sentence("step of the training") if film else _depth(other),
        _depth(subject),
        Sentence(title),
        rows=tuple(map(str, range(len(values)))),
        cols=tuple(map(str, steps)),
    )
    notes = [over_which(subject)]
    if np.isfinite(error).any():
        notes.append(Sentence("Standard error: at most ± {error}.", error=f"{np.nanmax(error):.3f}"))
    if np.isnan(values).any():
        notes.append(Sentence("Empty squares: no CKA, as all pictures are the same at this depth."))
    return matrix, tuple(notes)


def _depth(subject: Subject) -> Sentence:
    return Sentence("depth of {checkpoint}", checkpoint=subject.checkpoint)


def _chart(view, subject, settings) -> tuple[Chart | None, tuple[Sentence, ...]]:
    """A line for each checkpoint that has such a curve, and who has none.

    Of different inputs distances are a share of even attention's, as on the page; checkpoints with different
    numbers of blocks stand over the relative depth.
    """
    shown = [subject, *([subject.beside] if subject.beside else [])]
    curve, name, whose = settings["curve"], settings["curve"], "mean over a layer’s heads"
    if curve == "distance" and len({one.grid.pixels for one in shown}) > 1:
        curve = name = "distance_of_even"
    if curve in ("attention", "mlp"):
        of_class = settings["tokens"] == "class"
        name = f"{curve}_{'class' if of_class else 'patches'}"
        whose = "of the class token" if of_class else "mean over the patches"
    found = [curves(one)[name] for one in shown]
    relative = len({len(values) for values in found}) > 1
    series, lost = [], []
    for one, values, colour in zip(shown, found, (BLUE, ORANGE), strict=False):
        known, blocks = np.isfinite(values), np.arange(1, len(values) + 1)
        if not known.any():
            lost.append(Sentence(LOST, checkpoint=one.checkpoint))
            continue
        x = blocks / len(blocks) if relative else blocks
        series.append(Series(x[known], values[known], one.checkpoint, colour, line=True, dots=True))
    if not series:
        return None, tuple(lost)
    options = next(dict(control.options) for control in view.controls if control.name == "curve")
    along = Sentence("relative depth (block / number of blocks)")
    chart = Chart(
        along if relative else Sentence("number of the block"),
        Sentence(UP[curve]),
        (0.0, 1.03) if relative else (0.4, max(map(len, found)) + 0.6),
        (0.0, 1.08 * max(float(one.y.max()) for one in series) or 1.0),
        joined(Sentence(options[settings["curve"]]), Sentence(whose)),
        tuple(series),
        whole=not relative,
        aspect=0.78,
    )
    return chart, tuple(lost)
