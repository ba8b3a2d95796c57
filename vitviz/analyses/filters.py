"""Filters of the linear patch embedding, and their principal components.

    W in R^{D x (P^2 C)}: the D filters as points, centred on their mean; W - mean = U S V^T; the rows of V^T
    are the principal components, each a P x P image, and S_k^2 / sum S^2 is its share of the variance.
    The response of a filter w in patch p is w . x_p, of the normalised pixels x_p and without the bias.

Source: Dosovitskiy et al. 2021, figure 7 left. The paper states neither sign nor scale. Here the entry of
largest magnitude is positive, and each image is scaled to [0, 1] alone for display, so brightness cannot be
compared between images. Filters act on normalised pixels. They do not show what later layers make of a
response. A component is a common direction of the filters; it is not a
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
        expected = f"expected at least 1 component of at least 2 filters. Choose a count of {COMPONENTS}."
        raise VitvizError(f"{count} components of {width} filters cannot be computed; {expected}")
    points = rearrange(weight, "width channel row col -> width (row col channel)")
    basis = fit_basis(points, component_count(weight, count))
    cut = "count (row col channel) -> count row col channel"
    pictures = rearrange(basis.directions, cut, row=height, col=length)
    return FilterComponents(pictures.to(weight), basis.shares.to(weight))


def component_count(weight: Float[Tensor, "width channel row col"], most: int = COMPONENTS) -> int:
    """Return the number of principal components that these filters have, at most `most`. Raises nothing.

    >>> component_count(torch.zeros(5, 3, 2, 2))
    4
    """
    return min(most, len(weight) - 1, weight[0].numel())


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


def filter_responses(
    filters: Float[Tensor, "filter row col channel"], pixels: Float[Tensor, "channel height width"]
) -> Float[Tensor, "filter row2 col2"]:
    """Return the response of each filter in each patch: w . x_p, without the bias.

    Args:
        filters: filters or components of P x P pixels, as in `raw_filters` and `FilterComponents`.
        pixels: the normalised image as the model receives it. A margin beyond the last whole patch is left
            out.

    Returns:
        Sums of weight times normalised pixel, float64, without a unit: (filter, row, col) of the patch grid.

    Source: Dosovitskiy et al. 2021, equation 1 (E x_p). Raises nothing.

    >>> pixels = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 2, 2)
    >>> filter_responses(torch.tensor([1.0, -1.0]).reshape(1, 1, 2, 1), pixels).tolist()
    [[[-1.0], [-1.0]]]
    """
    _, height, width, _ = filters.shape
    rows, cols = pixels.shape[1] // height, pixels.shape[2] // width
    cut = "channel (row2 row) (col2 col) -> row2 col2 (row col channel)"
    patches = rearrange(pixels[:, : rows * height, : cols * width], cut, row=height, col=width)
    return torch.einsum("rcn,fn->frc", patches.double(), filters.flatten(start_dim=1).double())


def display_scaled(
    pictures: Float[Tensor, "count row col channel"],
) -> Float[Tensor, "count row col channel"]:
    """Return the images, each scaled to [0, 1] by its own range over all channels; constant ones mid-grey.

    Source: the paper states no scale; the panel states this one. Raises nothing.

    >>> pictures = torch.tensor([[-1.0, 0.0, 3.0], [7.0, 7.0, 7.0]]).reshape(2, 1, 3, 1)
    >>> display_scaled(pictures).flatten().tolist()
    [0.0, 0.25, 1.0, 0.5, 0.5, 0.5]
    """
    low = reduce(pictures, "count row col channel -> count 1 1 1", "min")
    span = reduce(pictures, "count row col channel -> count 1 1 1", "max") - low
    return torch.where(span > 0, (pictures - low) / torch.where(span > 0, span, 1), 0.5)
