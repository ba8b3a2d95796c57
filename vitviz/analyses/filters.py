"""The filters of the linear embedding: what each patch is compared with before anything else happens.

    W in R^{D x (P^2 C)}: the D filters as points, centred on their mean; W - mean = U S V^T; the rows of V^T
    are the principal components, each a P x P picture, and S_k^2 / sum S^2 is its share of the variance.

Source: Dosovitskiy et al. 2021, figure 7 left. The paper states neither sign nor scale: here the entry of
largest magnitude is positive, and each picture is scaled to [0, 1] alone for display, so brightness says
nothing between two of them. Filters act on normalised pixels. They do not show what a filter answers to in
photographs, nor what later layers make of it; a component is a common direction, and no filter of the model.
"""

from dataclasses import dataclass

import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.components import basis_of
from vitviz.errors import VitvizError
from vitviz.traces.display import NotebookDisplay

COMPONENTS = 28  # the paper's figure 7 left shows 28


@dataclass(frozen=True)
class FilterComponents(NotebookDisplay):
    """Principal components, most variance first: pictures of unit norm, not yet scaled; their shares."""

    pictures: Float[Tensor, "count row col channel"]
    variance: Float[Tensor, " count"]


def principal_filters(
    weight: Float[Tensor, "width channel row col"], count: int = COMPONENTS
) -> FilterComponents:
    """The first `count` principal components of the patch projection's filters (figure 7 left).

    At most width - 1 of them (centring takes one away) and at most row * col * channel. Where fewer filters
    differ, the rest have no variance and any direction. Raises VitvizError for a count below 1 or 1 filter.

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
    basis = basis_of(points, min(count, width - 1, points.shape[1]))
    cut = "count (row col channel) -> count row col channel"
    pictures = rearrange(basis.directions, cut, row=height, col=length)
    return FilterComponents(pictures.to(weight), basis.shares.to(weight))


def raw_filters(
    weight: Float[Tensor, "width channel row col"],
) -> tuple[Float[Tensor, "width row col channel"], Float[Tensor, " width"]]:
    """All filters as they are, and their norms, largest norm first (equal ones in the model's order).

    Source: what figure 7 left is made from. Raises nothing.

    >>> pictures, norms = raw_filters(torch.tensor([1.0, -3.0, 2.0]).reshape(3, 1, 1, 1))
    >>> pictures.flatten().tolist(), norms.tolist()
    ([-3.0, 2.0, 1.0], [3.0, 2.0, 1.0])
    """
    norms, order = weight.flatten(start_dim=1).norm(dim=1).sort(descending=True, stable=True)
    return rearrange(weight[order], "width channel row col -> width row col channel"), norms


def display_scaled(
    pictures: Float[Tensor, "count row col channel"],
) -> Float[Tensor, "count row col channel"]:
    """Each picture alone stretched to [0, 1], all channels together; a constant one becomes mid-grey.

    Source: the paper states no scale; this is the one that the panel names. Raises nothing.

    >>> pictures = torch.tensor([[-1.0, 0.0, 3.0], [7.0, 7.0, 7.0]]).reshape(2, 1, 3, 1)
    >>> display_scaled(pictures).flatten().tolist()
    [0.0, 0.25, 1.0, 0.5, 0.5, 0.5]
    """
    low = reduce(pictures, "count row col channel -> count 1 1 1", "min")
    span = reduce(pictures, "count row col channel -> count 1 1 1", "max") - low
    return torch.where(span > 0, (pictures - low) / torch.where(span > 0, span, 1), 0.5)
