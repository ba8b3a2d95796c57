"""Localisation of a saliency map at objects with known boxes: the pointing game, and the energy in the box.

    hit    = share of the map's largest patches whose centre lies in a box        (Zhang et al. 2018)
    energy = sum_i w_i max(0, map_i) / sum_i max(0, map_i)                   (Wang et al. 2020, Score-CAM)

with w_i the fraction of patch i's area that boxes cover. The pointing game's tolerance of 15 pixels is
omitted. Negative values count as zero in the energy. A map without positive values counts as a uniform map,
which is chance. Objects are usually in the centre of photographs, so a centred blob does well: compare with
it. Neither shows that a model used the object.
"""

from collections.abc import Sequence

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from vitviz.traces.grid import Grid

# left, top, right, bottom in pixels of the input, right and bottom excluded
Box = tuple[float, float, float, float]


def box_coverage(grid: Grid, boxes: Sequence[Box], finer: int = 8) -> Float[Tensor, "row col"]:
    """Return the fraction of each patch's area that lies in any of the boxes: (row, col).

    The area is sampled at `finer` x `finer` points per patch; overlapping boxes count once.

    >>> box_coverage(Grid(1, 2, (4, 4)), [(2, 0, 4, 4)]).tolist()
    [[0.5, 0.0]]
    """
    inside = _inside(grid, boxes, finer).double()
    return reduce(inside, "(row down) (col across) -> row col", "mean", row=grid.rows, col=grid.cols)


def pointing_hit(values: Float[Tensor, "row col"], grid: Grid, boxes: Sequence[Box]) -> float:
    """Return 1 if the centre of the patch of largest value lies in a box, else 0; the mean if several tie."""
    return _inside(grid, boxes, 1)[values == values.max()].double().mean().item()


def energy_in_boxes(values: Float[Tensor, "row col"], coverage: Float[Tensor, "row col"]) -> float:
    """Return the fraction of the map's positive sum inside the boxes; `coverage` is from `box_coverage`."""
    positive = values.double().clamp(min=0)
    whole = positive.sum().item()
    return (positive * coverage).sum().item() / whole if whole > 0 else coverage.mean().item()


def _inside(grid: Grid, boxes: Sequence[Box], finer: int) -> Tensor:
    """Return which sample points lie in a box, as a mask with `finer` x `finer` points per patch."""
    height, width = grid.patch
    down = (torch.arange(grid.rows * finer, dtype=torch.float64) + 0.5) * height / finer
    across = (torch.arange(grid.cols * finer, dtype=torch.float64) + 0.5) * width / finer
    result = torch.zeros(len(down), len(across), dtype=torch.bool)
    for left, top, right, bottom in boxes:
        rows, cols = (down >= top) & (down < bottom), (across >= left) & (across < right)
        result |= rows[:, None] & cols[None]
    return result
