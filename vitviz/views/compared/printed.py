"""CKA between depths for print; with detail also what heads and branches do, block by block, beside it."""

import numpy as np

from vitviz.figures.paper.plates import NARROW, WIDE, Plate
from vitviz.record.sentence import Sentence
from vitviz.views.printing import over_which


def plate(view, subject, settings, asked) -> Plate:
    """The matrix; with detail the chosen curve of every checkpoint in view."""
    matrix, notes = view.matrix(subject, settings), _notes(view, subject, settings)
    if not asked.detail:
        return Plate(((matrix,),), notes, width=NARROW, second=settings["against"] == "beside")
    chart, more = view.chart(subject, settings), {"second": subject.beside is not None}
    if not chart.series:
        return Plate(((matrix,),), notes + chart.notes, width=NARROW, **more)
    return Plate(((matrix, chart),), notes + chart.notes, ((1.0, 1.1),), WIDE, **more)


def _notes(view, subject, settings) -> tuple[Sentence, ...]:
    """Over which pictures it is, how sure, and what empty squares are."""
    values, error = (np.asarray(view.item(subject, name, settings)) for name in ("cka", "error"))
    notes = [over_which(subject)]
    if np.isfinite(error).any():
        notes.append(Sentence("Standard error: at most ± {error}.", error=f"{np.nanmax(error):.3f}"))
    if np.isnan(values).any():
        notes.append(Sentence("Empty squares: no CKA, as all pictures are the same at this depth."))
    return tuple(notes)
