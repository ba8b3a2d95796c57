"""Similarity of position embeddings for print: tiles as in figure 7 centre of the paper, or one matrix."""

from __future__ import annotations

import numpy as np

from vitviz.figures.paper.plates import Map, Mark, Matrix, Plate, Scale, Tiles
from vitviz.sentence import Sentence
from vitviz.views.printing import WIDE, joined, patch_name, place_name, shape_of


def plate(view, subject, settings, asked) -> Plate:
    """All patches with all others; with detail the middle patch's tile, enlarged."""
    grid = subject.grid
    similarity = np.asarray(view.item(subject, "similarity", settings), np.float32)
    low, high = _ends(view, subject, settings, similarity)
    scale = Scale("viridis", low, high, Sentence("Cosine similarity"))
    if settings["form"] == "matrix":
        said = Sentence("Input patch number")
        main = Matrix(similarity, scale, said, said, step=grid.cols)
    else:
        each = similarity.reshape(grid.patches, grid.rows, grid.cols)
        numbers = [tuple(str(i + 1) for i in range(count)) for count in (grid.cols, grid.rows)]
        along, down = Sentence("Input patch column"), Sentence("Input patch row")
        main = Tiles(each, grid.cols, "", (), *numbers, along, down, 0.08, grid.rows / grid.cols, scale)
    if not asked.detail:
        return Plate(((main,),), width=112.0)
    middle = grid.rows // 2 * grid.cols + grid.cols // 2
    title = joined(patch_name(middle), place_name(grid, middle))
    values = similarity[middle].reshape(grid.rows, grid.cols)
    one = Map(title, None, values, None, scale, marks=(Mark(middle),), aspect=shape_of(grid))
    return Plate(((main, one),), weights=((1.9, 1.0),), width=WIDE)


def _ends(view, subject, settings, similarity: np.ndarray) -> tuple[float, float]:
    """Of the colours; a patch's likeness of 1 to itself does not stretch them."""
    if settings["scale"] != "data":
        return -1.0, 1.0
    told = view.summary(subject)
    if told["minimum"] < told["maximum"]:
        return told["minimum"], told["maximum"]
    return float(similarity.min()), float(similarity.max())
