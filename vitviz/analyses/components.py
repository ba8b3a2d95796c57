"""Principal components of tokens: the directions along which patches differ most.

    t = m + sum_c s_c b_c + rest,   b_c the eigenvectors of the patches' covariance, largest variance first

The covariance is over the patches alone, because prefix tokens would take a component for themselves. Tokens
are centred by the mean over all that are fitted together. Several images, layers or checkpoints of one width
that share a basis can be compared. The theory leaves the sign open: here the loading of largest magnitude is
positive, as in scikit-learn. Shares are fractions of the total variance. Components as colours: Oquab et al.
2023 (DINOv2), figure 1, without its foreground estimate. They do not show which directions later layers use.
Outlying tokens may dominate the first component: check the norms.

Colours of principal components that stay similar from layer to layer.

    z = scores / their standard deviations        colour = sigmoid(2 z R)

of the first three components as red, green and blue. They are whitened for display only, as in DINOv3's
notebook, because the first would dominate the others. R is the identity or an orthogonal matrix (orthogonal
Procrustes, Schönemann 1966): from one layer to the next the components may flip, rotate or swap although the
tokens hardly changed. Each layer is therefore rotated to match the previous one, and the input of block 1 to
match the image's own colours. Every frame of a video follows the same rule. Equal colours mean equal scores
within one map. Rotated colours are mixtures of the three components. They do not show what is foreground and
what is background.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.depth import FinalNorm, patches_at, present_patches, to_grid
from vitviz.errors import VitvizError, quoted
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.trace import Trace


@dataclass(frozen=True)
class Basis:
    """Principal directions fitted to a set of tokens, float64."""

    mean: Float[Tensor, " width"]
    directions: Float[Tensor, "component width"]  # orthonormal
    variances: Float[Tensor, " component"]  # variances of the scores, divided by the number of tokens less 1
    shares: Float[Tensor, " component"]  # fractions of the total variance; 0 where nothing varies

    def scores(self, tokens: Float[Tensor, "token width"]) -> Float[Tensor, "token component"]:
        """Return each token's coordinate along each direction."""
        return (tokens.double() - self.mean) @ self.directions.mT


@dataclass(frozen=True)
class Components(NotebookDisplay):
    """Result of `token_components`: scores, shares of the variance, and the basis."""

    scores: Float[Tensor, "picture row col component"]
    shares: Float[Tensor, " component"]  # fractions of the total variance of all images' patches
    basis: Float[Tensor, "component width"]
    mean: Float[Tensor, " width"]


def token_components(
    traces: Trace | Sequence[Trace], layer: int, count: int = 3, norm: FinalNorm | None = None
) -> Components:
    """Return the first `count` principal components of one layer's patches, with one basis for all images.

    Args:
        traces: one or more traces; checkpoints may differ if their widths and grids agree.
        layer: 0 is the input of block 1, L the raw output of the last block.
        count: number of components, at least 1.
        norm: an inspector, to apply its final norm first; None for raw tokens.

    Returns:
        `Components`: scores (image, row, col, component), shares of the variance from 0 to 1, the basis
            (component, width) and the mean (width).

    Raises:
        VitvizError: no traces, different grids or widths, or too many components.
        IndexError: the layer does not exist.

    Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> found = token_components([example_trace(seed=1)], layer=2, count=2)
    >>> found.scores.shape, found.basis.shape, bool(found.shares[0] >= found.shares[1])
    (torch.Size([1, 1, 3, 2]), torch.Size([2, 8]), True)
    """
    traces = [traces] if isinstance(traces, Trace) else list(traces)
    shapes = {(trace.grid.rows, trace.grid.cols, trace.tokens[0].shape[1]) for trace in traces}
    if len(shapes) != 1:
        details = "{} x {} patches {} numbers wide"
        given = ", ".join(details.format(*one) for one in sorted(shapes))
        expected = "expected one or more traces with the same grid and width"
        raise VitvizError(f"Traces of {given or 'no image'} cannot be combined; {expected}.")
    patches = [patches_at(trace, layer, norm) for trace in traces]
    basis, like = fit_basis(torch.cat(patches), count), traces[0].tokens[0]
    scores = torch.stack([to_grid(*one) for one in zip(traces, map(basis.scores, patches), strict=True)])
    return Components(scores.to(like), basis.shares.to(like), basis.directions.to(like), basis.mean.to(like))


def fit_basis(tokens: Tensor | Sequence[Tensor], count: int = 3) -> Basis:
    """Return the first `count` principal directions of one or several sets of tokens (token, width).

    Raises VitvizError for a count below 1, above the number of tokens, or above the width.

    >>> tokens = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.1], [0.0, -0.1]])
    >>> fit_basis(tokens, count=1).directions.tolist()
    [[1.0, 0.0]]
    """
    parts = [tokens] if isinstance(tokens, Tensor) else list(tokens)
    number, width = sum(len(part) for part in parts), parts[0].shape[1]
    if not 1 <= count <= min(number, width):
        expected = f"expected from 1 to {min(number, width)} components of {number} patches"
        raise VitvizError(f"count={quoted(count)} is not valid; {expected}.")
    if width <= number:
        scatter = Scatter()
        for part in parts:
            scatter.add(part)
        return scatter.basis(count)
    every = torch.cat(parts).double()
    centred = every - every.mean(dim=0)
    # The smaller of the two Gram matrices has the same eigenvalues, and its eigenvectors give the directions.
    # Where nothing varies, any direction is valid.
    values, result = torch.linalg.eigh(centred @ centred.mT)
    directions = torch.linalg.qr(centred.mT @ result.flip(1)[:, :count]).Q.mT
    return _basis(every.mean(dim=0), directions, values.flip(0)[:count], centred.square().sum(), number)


class Scatter:
    """Number, mean and scatter matrix of tokens, summed up in float64 (Chan et al. 1983)."""

    def __init__(self):
        self.count, self.mean, self.products = 0, torch.tensor(0.0), torch.tensor(0.0)

    def add(self, tokens: Float[Tensor, "token width"]) -> None:
        """Add the tokens of another image."""
        own = tokens.double()
        apart, number = own.mean(dim=0) - self.mean, self.count + len(own)
        centred = own - own.mean(dim=0)
        between = apart.outer(apart) * (self.count * len(own) / number)
        self.products = self.products + centred.mT @ centred + between
        self.mean, self.count = self.mean + apart * (len(own) / number), number

    def basis(self, count: int = 3) -> Basis:
        """Return the first `count` principal directions of all tokens added so far, as `fit_basis` does."""
        values, result = torch.linalg.eigh(self.products)
        directions, whole = result.mT.flip(0)[:count], self.products.trace()
        return _basis(self.mean, directions, values.flip(0)[:count], whole, self.count)


def _basis(mean: Tensor, directions: Tensor, eigenvalues: Tensor, total: Tensor, count: int) -> Basis:
    """Return the Basis of `count` tokens; the sign of each direction makes its largest loading positive."""
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    squares = eigenvalues.clamp_min(0)
    shares = squares / total if total > 0 else torch.zeros_like(squares)
    return Basis(mean, directions * torch.where(largest < 0, -1.0, 1.0), squares / max(count - 1, 1), shares)


def whiten_scores(basis: Basis, scores: Float[Tensor, "patch component"]) -> Float[Tensor, "patch 3"]:
    """Return each patch's first three scores, divided by their standard deviation over the fitted tokens.

    Components that are missing or do not vary get 0. Raises nothing.

    >>> tokens = torch.tensor([[-5.0, 0.0], [5.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> basis = fit_basis(tokens, 2)
    >>> [round(one, 3) for one in whiten_scores(basis, basis.scores(tokens)).std(dim=0).tolist()]
    [1.0, 1.0, 0.0]
    """
    deviations = basis.variances.sqrt()
    usable = basis.shares > 1e-12  # a component below this share is rounding
    scaled = torch.where(usable, scores / torch.where(usable, deviations, 1.0), 0.0)[:, :3]
    return torch.nn.functional.pad(scaled, (0, 3 - scaled.shape[1]))


def alignment_rotation(
    scores: Float[Tensor, "patch 3"], like: Float[Tensor, "patch 3"]
) -> Float[Tensor, "3 3"]:
    """Return the orthogonal matrix R for which scores @ R is closest to `like`. Raises nothing.

    >>> one = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    >>> torch.allclose(one.flip(1) @ alignment_rotation(one.flip(1), one), one, atol=1e-6)
    True
    """
    left, _, right = torch.linalg.svd(scores.mT @ like)
    return left @ right


def align_layers(
    scores: Sequence[Float[Tensor, "patch 3"]], like: Float[Tensor, "patch 3"]
) -> list[Float[Tensor, "patch 3"]]:
    """Return whitened scores by layer, each rotated to match the previous layer.

    The first is rotated to match `like`. Raises nothing.

    >>> one = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    >>> [torch.allclose(turned, one, atol=1e-6) for turned in align_layers([-one, one.flip(1)], one)]
    [True, True]
    """
    turned = []
    for own in scores:
        turned.append(own @ alignment_rotation(own, turned[-1] if turned else like))
    return turned


def patch_mean_colours(trace: Trace) -> Float[Tensor, "patch 3"]:
    """Return each present patch's mean colour less the mean over the present patches, from -1 to 1.

    Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> patch_mean_colours(example_trace(kept=(0, 2))).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    grid, pixels = trace.grid, torch.from_numpy(trace.view.picture).double() / 255
    cut = "(row height) (col width) rgb -> (row col) rgb"
    means = reduce(pixels, cut, "mean", row=grid.rows, col=grid.cols)[present_patches(trace)]
    return means - means.mean(dim=0)


def scores_to_colours(scores: Float[Tensor, "patch 3"]) -> Float[Tensor, "patch 3"]:
    """Return red, green and blue from 0 to 1; a score of 0 gives 1/2. Raises nothing.

    >>> scores_to_colours(torch.zeros(1, 3)).tolist()
    [[0.5, 0.5, 0.5]]
    """
    return torch.sigmoid(2 * scores)
