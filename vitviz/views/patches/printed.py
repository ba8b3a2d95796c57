"""The picture cut into patches for print (figure 1 of the paper), as a picture or as a sequence."""

import numpy as np

from vitviz.figures.chart import ends
from vitviz.figures.paper.plates import NARROW, WIDE, Map, Plate, Scale, Tiles
from vitviz.record.sentence import Sentence
from vitviz.views.printing import prefix_name, shape_of

NUMBERED = 28  # patches in a row; of more the numbers would be too small to read
CUT = 0.04  # of a patch: the gap that a figure has at least, since paper has no pointer to find the edges
MORE = "{sum} patches of {height} × {width} pixels + {prefix} ({names}) = {tokens} tokens"


def plate(view, subject, settings, asked) -> Plate:
    """The patches as the model gets them; with detail the norms of their embeddings."""
    grid, picture = subject.grid, subject.trace.view.picture
    (high, wide), (rows, cols) = grid.patch, (grid.rows, grid.cols)
    patches = picture.reshape(rows, high, cols, wide, 3).swapaxes(1, 2).reshape(grid.patches, high, wide, 3)
    gap, aspect = CUT + 0.3 * settings["gap"], high / wide
    if settings["form"] == "sequence":
        across = min(grid.patches, max(20, int(np.ceil(np.sqrt(2 * grid.patches)))))
        numbers = tuple(str(i + 1) for i in range(grid.patches)) if across <= NUMBERED else ()
        title = Sentence("In the order of the sequence")
        main = Tiles(patches, across, title, numbers, gap=max(gap, 0.1), aspect=aspect)
    else:
        numbers = [tuple(str(i + 1) for i in range(count)) for count in (cols, rows)]
        along, down = Sentence("Input patch column"), Sentence("Input patch row")
        main = Tiles(patches, cols, "", (), *numbers, along, down, gap, aspect)
    notes = (_counted(grid),)
    if not asked.detail:
        return Plate(((main,),), notes, width=NARROW if settings["form"] == "picture" else WIDE)
    norms = np.asarray(view.item(subject, "norms", settings), float).reshape(2, rows, cols)
    titles = (Sentence("Norm of its embedding"), Sentence("… with position embedding"))
    known = [(one, title) for one, title in zip(norms, titles, strict=True) if np.isfinite(one).any()]
    maps = tuple(
        Map("", None, one, None, Scale("viridis", *ends(one), title), aspect=shape_of(grid))
        for one, title in known
    )
    if settings["form"] == "sequence":
        return Plate(((main,), maps), notes, width=WIDE)
    weights = ((1.5, *[1.0] * len(maps)),)
    return Plate(((main, *maps),), notes, weights, WIDE)


def _counted(grid) -> str:
    """How many tokens the patches make."""
    whole, (tall, wide) = f"{grid.rows} × {grid.cols} = {grid.patches}", grid.patch
    told = {"sum": whole, "height": tall, "width": wide, "tokens": grid.tokens}
    if not grid.prefix:
        return Sentence("{sum} patches of {height} × {width} pixels: {tokens} tokens", **told)
    names = prefix_name(grid.prefix_names[0]) if grid.prefix == 1 else ", ".join(grid.prefix_names)
    return Sentence(MORE, prefix=grid.prefix, names=names, **told)
