"""Principal components as colours that stay alike from layer to layer.

    z = scores / their standard deviations        colour = sigmoid(2 z R)

of the first three components as red, green and blue: whitened for the eye alone, as in DINOv3's notebook,
because the first would drown the others. R is the identity, or turns the three together (orthogonal
Procrustes, Schönemann 1966): component by component a basis may flip, turn or swap places from one layer to
the next although the tokens hardly changed. So each depth is turned to look like the one before it, and what
enters block 1 like the picture's own colours, which gives the same rule to every frame of a film. Equal
colours mean equal scores within one map; turned colours are mixtures of the three components, and it does
not show what is foreground and what is background.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.components import Basis
from vitviz.analyses.depth import present
from vitviz.trace import Trace


def whitened(basis: Basis, scores: Float[Tensor, "patch component"]) -> Float[Tensor, "patch 3"]:
    """Three scores with a standard deviation of 1 over the tokens that were fitted; 0 where there is no such
    component.

    Raises nothing.

    >>> from vitviz.analyses.components import basis_of
    >>> tokens = torch.tensor([[-5.0, 0.0], [5.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> basis = basis_of(tokens, 2)
    >>> [round(one, 3) for one in whitened(basis, basis.scores(tokens)).std(dim=0).tolist()]
    [1.0, 1.0, 0.0]
    """
    deviations = basis.variances.sqrt()
    usable = basis.shares > 1e-12  # what is left of rounding is no component
    scaled = torch.where(usable, scores / torch.where(usable, deviations, 1.0), 0.0)[:, :3]
    return torch.nn.functional.pad(scaled, (0, 3 - scaled.shape[1]))


def aligned(scores: Float[Tensor, "patch 3"], like: Float[Tensor, "patch 3"]) -> Float[Tensor, "3 3"]:
    """The rotation or reflection R for which scores @ R comes closest to others of the same patches. Raises
    nothing.

    >>> one = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    >>> torch.allclose(one.flip(1) @ aligned(one.flip(1), one), one, atol=1e-6)
    True
    """
    left, _, right = torch.linalg.svd(scores.mT @ like)
    return left @ right


def steady(
    scores: Sequence[Float[Tensor, "patch 3"]], like: Float[Tensor, "patch 3"]
) -> list[Float[Tensor, "patch 3"]]:
    """Whitened scores of neighbouring depths, each turned to be as close as can be to the one before; the
    first to `like`.

    Raises nothing.

    >>> one = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    >>> [torch.allclose(turned, one, atol=1e-6) for turned in steady([-one, one.flip(1)], one)]
    [True, True]
    """
    turned = []
    for own in scores:
        turned.append(own @ aligned(own, turned[-1] if turned else like))
    return turned


def own_colours(trace: Trace) -> Float[Tensor, "patch 3"]:
    """The mean red, green and blue of every patch that has a token, without their mean over the picture; from
    -1 to 1.

    Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> own_colours(example_trace(Grid(1, 2, (4, 4)))).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    grid = trace.grid
    pixels = torch.from_numpy(trace.view.picture).double() / 255
    means = reduce(
        pixels, "(row height) (col width) rgb -> (row col) rgb", "mean", row=grid.rows, col=grid.cols
    )[present(trace)]
    return means - means.mean(dim=0)


def colours_of(scores: Float[Tensor, "patch 3"]) -> Float[Tensor, "patch 3"]:
    """Red, green and blue from 0 to 1; a score of 0 is 1/2. Raises nothing.

    >>> colours_of(torch.zeros(1, 3)).tolist()
    [[0.5, 0.5, 0.5]]
    """
    return torch.sigmoid(2 * scores)
