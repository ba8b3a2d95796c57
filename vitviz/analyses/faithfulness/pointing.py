"""Whether a map points at an object whose box is known: the pointing game, and the energy in the box.

    hit    = share of the map's largest patches whose centre lies in a box        (Zhang et al. 2018)
    energy = sum_i w_i max(0, map_i) / sum_i max(0, map_i)                   (Wang et al. 2020, Score-CAM)

with w_i the share of patch i's area that boxes cover. The pointing game's 15 pixels of tolerance are left
out. What is against the class counts as nothing in the energy. A map with nothing positive points nowhere: it
is counted as one spread evenly, which is chance. Objects lie in the middle of photographs, so that a blob
there does well: compare. Neither shows that a model used the object.
"""

from collections.abc import Sequence

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from vitviz.traces.grid import Grid

# left, top, right, bottom in pixels of the input; the ends are no part of it
Box = tuple[float, float, float, float]


def covered(grid: Grid, boxes: Sequence[Box], finer: int = 8) -> Float[Tensor, "row col"]:
    """The share of each patch's area that lies in any of the boxes, on a raster `finer` times as fine as a
    pixel's eighth of a patch or better: overlapping boxes count once.

    >>> covered(Grid(1, 2, (4, 4)), [(2, 0, 4, 4)]).tolist()
    [[0.5, 0.0]]
    """
    inside = _inside(grid, boxes, finer).double()
    return reduce(inside, "(row down) (col across) -> row col", "mean", row=grid.rows, col=grid.cols)


def hit(values: Float[Tensor, "row col"], grid: Grid, boxes: Sequence[Box]) -> float:
    """1 where the largest patch's centre lies in a box, else 0; between where several are the largest."""
    centres = _inside(grid, boxes, 1)
    return centres[values == values.max()].double().mean().item()


def energy(values: Float[Tensor, "row col"], share: Float[Tensor, "row col"]) -> float:
    """How much of what the map has above zero lies where `share`, from `covered`, is."""
    positive = values.double().clamp(min=0)
    whole = positive.sum().item()
    return (positive * share).sum().item() / whole if whole > 0 else share.mean().item()


def _inside(grid: Grid, boxes: Sequence[Box], finer: int) -> Tensor:
    """Points at the middles of a raster of `finer` cells a patch: whether a box holds them."""
    height, width = grid.patch
    down = (torch.arange(grid.rows * finer, dtype=torch.float64) + 0.5) * height / finer
    across = (torch.arange(grid.cols * finer, dtype=torch.float64) + 0.5) * width / finer
    found = torch.zeros(len(down), len(across), dtype=torch.bool)
    for left, top, right, bottom in boxes:
        rows, cols = (down >= top) & (down < bottom), (across >= left) & (across < right)
        found |= rows[:, None] & cols[None]
    return found
