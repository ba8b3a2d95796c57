"""Principal components of tokens: the directions along which patches differ most.

    t = m + sum_c s_c b_c + rest,   b_c the eigenvectors of the patches' covariance, largest variance first

over the patches alone: prefix tokens would take a component for themselves. The tokens are centred by the
mean over all that are fitted together; several pictures, depths or checkpoints of one width that share a
basis can be compared. The sign, which the theory leaves open, makes the loading of largest magnitude
positive, as scikit-learn does. The shares are of the whole variance. Pictures of them as colours: Oquab et
al. 2023 (DINOv2), figure 1, without its guess at foreground. It does not show what later layers use; outlying
tokens may take the first component, so see the norms.

Principal components as colours that stay alike from layer to layer.

    z = scores / their standard deviations        colour = sigmoid(2 z R)

of the first three components as red, green and blue: whitened for the eye alone, as in DINOv3's notebook,
because the first would drown the others. R is the identity, or turns the three together (orthogonal
Procrustes, Schönemann 1966): component by component a basis may flip, turn or swap places from one layer to
the next although the tokens hardly changed. So each depth is turned to look like the one before it, and what
enters block 1 like the picture's own colours, which gives the same rule to every frame of a film. Equal
colours mean equal scores within one map; turned colours are mixtures of the three components, and it does
not show what is foreground and what is background.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.depth import FinalNorm, over_grid, patches_at, present
from vitviz.errors import VitvizError, quoted
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.trace import Trace


@dataclass(frozen=True)
class Basis:
    """Directions fitted to some tokens, float64."""

    mean: Float[Tensor, " width"]
    directions: Float[Tensor, "component width"]  # of length 1, at right angles
    variances: Float[Tensor, " component"]  # of the scores, divided by the number of tokens less 1
    shares: Float[Tensor, " component"]  # of the whole variance; 0 where nothing varies

    def scores(self, tokens: Float[Tensor, "token width"]) -> Float[Tensor, "token component"]:
        """How far each token goes along each direction."""
        return (tokens.double() - self.mean) @ self.directions.mT


@dataclass(frozen=True)
class Components(NotebookDisplay):
    """What `token_components` finds."""

    scores: Float[Tensor, "picture row col component"]
    shares: Float[Tensor, " component"]  # of the whole variance of all pictures' patches
    basis: Float[Tensor, "component width"]
    mean: Float[Tensor, " width"]


def token_components(
    traces: Trace | Sequence[Trace], layer: int, count: int = 3, norm: FinalNorm | None = None
) -> Components:
    """The first `count` principal components of the patches of one depth, one basis for all pictures.

    `layer` 0 is what enters block 1, L the raw output of the last block; with `norm`, an inspector, through
    its final norm. Traces may be of several checkpoints where their widths and grids agree. Raises
    VitvizError where they do not, for no traces, and for too many components. Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> found = token_components([example_trace(seed=1)], layer=2, count=2)
    >>> found.scores.shape, found.basis.shape, bool(found.shares[0] >= found.shares[1])
    (torch.Size([1, 1, 3, 2]), torch.Size([2, 8]), True)
    """
    traces = [traces] if isinstance(traces, Trace) else list(traces)
    shapes = {(trace.grid.rows, trace.grid.cols, trace.tokens[0].shape[1]) for trace in traces}
    if len(shapes) != 1:
        told = "{} x {} patches {} numbers wide"
        given = ", ".join(told.format(*one) for one in sorted(shapes))
        raise VitvizError(
            f"Given traces of {given or 'no picture'}; expected one or more traces with the same grid and"
            " width."
        )
    patches = [patches_at(trace, layer, norm) for trace in traces]
    basis, like = basis_of(torch.cat(patches), count), traces[0].tokens[0]
    scores = torch.stack([over_grid(*one) for one in zip(traces, map(basis.scores, patches), strict=True)])
    return Components(scores.to(like), basis.shares.to(like), basis.directions.to(like), basis.mean.to(like))


def basis_of(tokens: Tensor | Sequence[Tensor], count: int = 3) -> Basis:
    """The first `count` principal directions of tokens (token, width), or of several sets taken together.

    Raises VitvizError for a count below 1, or above what there are of tokens or of numbers in one.

    >>> tokens = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.1], [0.0, -0.1]])
    >>> basis_of(tokens, count=1).directions.tolist()
    [[1.0, 0.0]]
    """
    parts = [tokens] if isinstance(tokens, Tensor) else list(tokens)
    number, width = sum(len(part) for part in parts), parts[0].shape[1]
    if not 1 <= count <= min(number, width):
        raise VitvizError(
            f"Given count={quoted(count)}; expected from 1 to {min(number, width)} components of"
            f" {number} patches."
        )
    if width <= number:
        scatter = Scatter()
        for part in parts:
            scatter.add(part)
        return scatter.basis(count)
    every = torch.cat(parts).double()
    centred = every - every.mean(dim=0)
    # the smaller of two Gram matrices has the same eigenvalues, and its eigenvectors are carried over; along
    # what does not vary any direction will do
    values, found = torch.linalg.eigh(centred @ centred.mT)
    directions = torch.linalg.qr(centred.mT @ found.flip(1)[:, :count]).Q.mT
    return _basis(every.mean(dim=0), directions, values.flip(0)[:count], centred.square().sum(), number)


class Scatter:
    """A depth's tokens, not kept: number, mean, outer products about it, float64 (Chan et al. 1983)."""

    def __init__(self):
        self.count, self.mean, self.products = 0, torch.tensor(0.0), torch.tensor(0.0)

    def add(self, tokens: Float[Tensor, "token width"]) -> None:
        """Those of a further picture."""
        own = tokens.double()
        apart, number = own.mean(dim=0) - self.mean, self.count + len(own)
        centred = own - own.mean(dim=0)
        between = apart.outer(apart) * (self.count * len(own) / number)
        self.products = self.products + centred.mT @ centred + between
        self.mean, self.count = self.mean + apart * (len(own) / number), number

    def basis(self, count: int = 3) -> Basis:
        """The first `count` principal directions of all of them, as `basis_of` has them."""
        values, found = torch.linalg.eigh(self.products)
        directions, whole = found.mT.flip(0)[:count], self.products.trace()
        return _basis(self.mean, directions, values.flip(0)[:count], whole, self.count)


def _basis(mean: Tensor, directions: Tensor, values: Tensor, whole: Tensor, number: int) -> Basis:
    """Each direction with the sign that makes its largest loading positive, and its shares of the whole."""
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    squares = values.clamp_min(0)
    shares = squares / whole if whole > 0 else torch.zeros_like(squares)
    return Basis(mean, directions * torch.where(largest < 0, -1.0, 1.0), squares / max(number - 1, 1), shares)


def whitened(basis: Basis, scores: Float[Tensor, "patch component"]) -> Float[Tensor, "patch 3"]:
    """Three scores of unit deviation over the fitted tokens; 0 for a component there is not. Raises nothing.

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
    """The rotation or reflection R for which scores @ R comes closest to others. Raises nothing.

    >>> one = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    >>> torch.allclose(one.flip(1) @ aligned(one.flip(1), one), one, atol=1e-6)
    True
    """
    left, _, right = torch.linalg.svd(scores.mT @ like)
    return left @ right


def steady(
    scores: Sequence[Float[Tensor, "patch 3"]], like: Float[Tensor, "patch 3"]
) -> list[Float[Tensor, "patch 3"]]:
    """Whitened scores by depth, each turned close to the one before, the first to `like`. Raises nothing.

    >>> one = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    >>> [torch.allclose(turned, one, atol=1e-6) for turned in steady([-one, one.flip(1)], one)]
    [True, True]
    """
    turned = []
    for own in scores:
        turned.append(own @ aligned(own, turned[-1] if turned else like))
    return turned


def own_colours(trace: Trace) -> Float[Tensor, "patch 3"]:
    """Each present patch's mean red, green and blue less their mean, from -1 to 1. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> own_colours(example_trace(kept=(0, 2))).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    grid, pixels = trace.grid, torch.from_numpy(trace.view.picture).double() / 255
    cut = "(row height) (col width) rgb -> (row col) rgb"
    means = reduce(pixels, cut, "mean", row=grid.rows, col=grid.cols)[present(trace)]
    return means - means.mean(dim=0)


def colours_of(scores: Float[Tensor, "patch 3"]) -> Float[Tensor, "patch 3"]:
    """Red, green and blue from 0 to 1; a score of 0 is 1/2. Raises nothing.

    >>> colours_of(torch.zeros(1, 3)).tolist()
    [[0.5, 0.5, 0.5]]
    """
    return torch.sigmoid(2 * scores)
