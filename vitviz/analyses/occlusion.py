"""Occlusion and shuffling: how much of a picture a model needs, and whether it minds where the patches stand.

Draw d has a random order pi_d of the N patches. With a share p dropped, the first floor(p N) patches of pi_d
are taken away, so that what is missing only grows along a draw; either their tokens are left out of the
sequence, or the patches are painted black. Shuffled in pieces of k x k patches, the pieces change places by
a random order other than the picture's own, and inside a piece everything stays where it was. Both ends are
known beforehand: with nothing dropped the answer is the plain one, and with everything dropped it is what the
model says to an empty picture, whatever was on it.

Source: Naseer et al. 2021 (arXiv 2105.10497), random PatchDrop and the shuffles, there with one random set
for a batch of pictures and pieces of whole pixels; here every draw has its own, pieces are of whole patches,
and the curves are one picture's. They do not show what a model would have learned from such pictures, nor
what it does with other holes: missing objects are not missing squares.
"""

from math import gcd
from typing import Any

import numpy as np
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.errors import VitvizError, whole_number
from vitviz.record.grid import Grid


def permutation(patches: int, seed: Any) -> Int[np.ndarray, " patch"]:
    """Which patch (row-major, from 0) comes to stand at each place; the same for the same seed.

    Raises VitvizError for what is no seed.

    >>> permutation(5, seed=1).tolist() == permutation(5, seed=1).tolist()
    True
    >>> sorted(permutation(5, seed=2).tolist())
    [0, 1, 2, 3, 4]
    """
    number = whole_number(seed)
    if number is None:
        raise VitvizError(
            f"Given shuffle={seed!r}; expected a seed, a whole number from 0, which is the same order each"
            " time."
        )
    return np.random.default_rng(number).permutation(patches)


def patches_kept(grid: Grid, share: int, seed: int) -> Int[np.ndarray, " kept"]:
    """The patches that are left, by number from 0 and in order, when `share` per cent are dropped.

    Raises VitvizError for a share that is none, and for what is no seed.

    >>> grid = Grid(2, 5, (16, 16), ("class",))
    >>> len(patches_kept(grid, 30, seed=0)), set(patches_kept(grid, 40, 0)) < set(patches_kept(grid, 30, 0))
    (7, True)
    """
    if not 0 <= share <= 100:
        raise VitvizError(f"Given share={share!r}; expected the per cent of patches to drop, from 0 to 100.")
    return np.sort(permutation(grid.patches, seed)[int(share) * grid.patches // 100 :])


def piece_sides(grid: Grid) -> tuple[int, ...]:
    """How many patches a side a piece can have, the largest first; none where there is nothing to shuffle.

    A piece is square and the pieces fill the grid. Raises nothing.

    >>> piece_sides(Grid(14, 14, (16, 16), ("class",))), piece_sides(Grid(10, 14, (16, 16), ()))
    ((7, 2, 1), (2, 1))
    """
    most = gcd(grid.rows, grid.cols)
    return tuple(side for side in range(most, 0, -1) if most % side == 0 and side * side < grid.patches)


def shuffled_pieces(grid: Grid, side: int, seed: int) -> Int[np.ndarray, " patch"]:
    """Which patch comes to stand at each place when pieces of `side` x `side` patches change places.

    Raises VitvizError for pieces that do not fill the grid, and for what is no seed.

    >>> shuffled_pieces(Grid(2, 4, (16, 16), ()), side=2, seed=0).tolist()
    [2, 3, 0, 1, 6, 7, 4, 5]
    """
    sides = piece_sides(grid)
    if side not in sides:
        known = ", ".join(map(str, sides)) or "none"
        raise VitvizError(
            f"Given side={side!r}; expected one of {known}, since pieces are squares that fill the grid of"
            f" {grid.rows} x {grid.cols} patches."
        )
    rows, cols = grid.rows // side, grid.cols // side
    order = permutation(rows * cols, seed)
    while (order == np.arange(len(order))).all():  # of few pieces, one draw in some would move nothing
        seed += 1_000
        order = permutation(rows * cols, seed)
    cut = "(row down col across) -> (row col) down across"
    pieces = rearrange(np.arange(grid.patches), cut, down=side, col=cols, across=side)
    return rearrange(pieces[order], "(row col) down across -> (row down col across)", col=cols)


def mean_and_error(values: Float[Tensor, " draw"]) -> tuple[float, float]:
    """The mean over draws and its standard error, which is 0 where all draws agree. Raises nothing.

    >>> import torch
    >>> mean_and_error(torch.tensor([0.0, 1.0, 0.0, 1.0]))
    (0.5, 0.28867513459481287)
    """
    values = values.double()
    spread = values.std().item() if len(values) > 1 else 0.0
    return values.mean().item(), spread / len(values) ** 0.5
