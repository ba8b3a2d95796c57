"""CKA between depths for print; with detail also what heads and branches do, block by block, beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vitviz.figures.paper.plates import Matrix, Plate, Scale
from vitviz.record.sentence import Sentence
from vitviz.views.compared import second
from vitviz.views.printing import NARROW, WIDE, over_which

if TYPE_CHECKING:
    from vitviz.views.subject import Subject


def plate(view, subject, settings, asked) -> Plate:
    """The matrix; with detail the chosen curve of every checkpoint in view."""
    matrix, notes = _matrix(view, subject, settings)
    if not asked.detail:
        return Plate(((matrix,),), notes, width=NARROW, second=settings["against"] == "beside")
    chart, more = view.chart(subject, settings), {"second": subject.beside is not None}
    if not chart.series:
        return Plate(((matrix,),), notes + chart.notes, width=NARROW, **more)
    return Plate(((matrix, chart),), notes + chart.notes, ((1.0, 1.1),), WIDE, **more)


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
