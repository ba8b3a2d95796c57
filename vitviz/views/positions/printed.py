"""Similarity of position embeddings for print: tiles as in figure 7 centre of the paper, or one matrix."""

import numpy as np

from vitviz.figures.paper.plates import WIDE, Map, Mark, Matrix, Plate, Scale, Tiles
from vitviz.record.sentence import Sentence
from vitviz.views.printing import joined, patch_name, place_name, shape_of


def plate(view, subject, settings, asked) -> Plate:
    """All patches with all others; with detail the middle patch's tile, enlarged."""
    grid = subject.grid
    similarity = np.asarray(view.item(subject, "similarity", settings), np.float32)
    told = view.summary(subject) if settings["scale"] == "data" else {"minimum": -1.0, "maximum": 1.0}
    low, high = told["minimum"], told["maximum"]
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
