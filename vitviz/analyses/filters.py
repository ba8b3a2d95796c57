"""Filters of the linear patch embedding, and their principal components.

    W in R^{D x (P^2 C)}: the D filters as points, centred on their mean; W - mean = U S V^T; the rows of V^T
    are the principal components, each a P x P image, and S_k^2 / sum S^2 is its share of the variance.

Source: Dosovitskiy et al. 2021, figure 7 left. The paper states neither sign nor scale. Here the entry of
largest magnitude is positive, and each image is scaled to [0, 1] alone for display, so brightness cannot be
compared between images. Filters act on normalised pixels. They do not show which photographs a filter
responds to, nor what later layers make of it. A component is a common direction of the filters; it is not a
filter of the model.
"""

from dataclasses import dataclass

import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.components import fit_basis
from vitviz.errors import VitvizError
from vitviz.traces.display import NotebookDisplay

COMPONENTS = 28  # as in figure 7 left of the paper


@dataclass(frozen=True)
class FilterComponents(NotebookDisplay):
    """Principal components of the filters, largest variance first, and their shares of the variance.

    `pictures` have unit norm and are not scaled for display. `variance` holds fractions of the total
    variance.
    """

    pictures: Float[Tensor, "count row col channel"]
    variance: Float[Tensor, " count"]


def principal_filters(
    weight: Float[Tensor, "width channel row col"], count: int = COMPONENTS
) -> FilterComponents:
    """Return the first `count` principal components of the patch projection's filters (figure 7 left).

    Args:
        weight: weight of the patch projection, (width, channel, row, col).
        count: number of components. At most width - 1 (centring removes one) and row * col * channel are
            returned.

    Returns:
        `FilterComponents`: `pictures` (count, row, col, channel), of unit norm, and `variance` (count),
            fractions of the total variance. If fewer filters differ, the remaining components have no
            variance and an arbitrary direction.

    Raises:
        VitvizError: `count` is below 1, or there is only one filter.

    >>> weight = torch.zeros(3, 1, 1, 2)
    >>> weight[0, 0, 0, 0], weight[1, 0, 0, 0] = -6.0, 6.0
    >>> found = principal_filters(weight, count=1)
    >>> found.pictures.flatten().tolist(), found.variance.tolist()
    ([1.0, 0.0], [1.0])
    """
    width, _, height, length = weight.shape
    if count < 1 or width < 2:
        raise VitvizError(
            f"Given count={count} for {width} filters; expected at least 1 component of at least 2 filters."
            f" Choose a count of {COMPONENTS}."
        )
    points = rearrange(weight, "width channel row col -> width (row col channel)")
    basis = fit_basis(points, min(count, width - 1, points.shape[1]))
    cut = "count (row col channel) -> count row col channel"
    pictures = rearrange(basis.directions, cut, row=height, col=length)
    return FilterComponents(pictures.to(weight), basis.shares.to(weight))


def raw_filters(
    weight: Float[Tensor, "width channel row col"],
) -> tuple[Float[Tensor, "width row col channel"], Float[Tensor, " width"]]:
    """Return all filters unscaled and their norms, in descending order of norm.

    Filters of equal norm keep the model's order. Source: the input of figure 7 left. Raises nothing.

    >>> pictures, norms = raw_filters(torch.tensor([1.0, -3.0, 2.0]).reshape(3, 1, 1, 1))
    >>> pictures.flatten().tolist(), norms.tolist()
    ([-3.0, 2.0, 1.0], [3.0, 2.0, 1.0])
    """
    norms, order = weight.flatten(start_dim=1).norm(dim=1).sort(descending=True, stable=True)
    return rearrange(weight[order], "width channel row col -> width row col channel"), norms


def display_scaled(
    pictures: Float[Tensor, "count row col channel"],
) -> Float[Tensor, "count row col channel"]:
    """Return each image scaled to [0, 1] alone, all channels together; a constant image becomes mid-grey.

    Source: the paper states no scale; the panel states this one. Raises nothing.

    >>> pictures = torch.tensor([[-1.0, 0.0, 3.0], [7.0, 7.0, 7.0]]).reshape(2, 1, 3, 1)
    >>> display_scaled(pictures).flatten().tolist()
    [0.0, 0.25, 1.0, 0.5, 0.5, 0.5]
    """
    low = reduce(pictures, "count row col channel -> count 1 1 1", "min")
    span = reduce(pictures, "count row col channel -> count 1 1 1", "max") - low
    return torch.where(span > 0, (pictures - low) / torch.where(span > 0, span, 1), 0.5)
