"""Step-by-step changes of an image: position, colour, edges, background or texture.

x is the image as the model receives it, before normalisation: from 0 to 1, in float64. m is its mean colour,
s the fraction of a step, y another image.

    shift    by whole pixels to the right, left, down and up; m fills the exposed pixels
    turn     by degrees about the centre, in both directions, bilinear; m fills the exposed pixels
    grey     (1 - s) x + s Y, the luma Y = 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601)
    edges    (1 - s) x + s E, E = min(1, |(gx, gy)| / 4): Sobel's derivatives of Y, its border replicated
    ground   the floor(s N) patches farthest from the centre are y's; among equally far ones, the first
    texture  x - s (x - its mean in each patch) + s (y - y's mean there), clipped to 0 and 1

Sources: Azulay and Weiss 2018 (arXiv 1805.12177) shift by pixels, Xiao et al. 2020 (arXiv 2006.09994) change
backgrounds, Geirhos et al. 2019 (arXiv 1811.12231) textures; they use masks and style transfer, this module
patches. The changes do not show that the object is in the centre, or that a texture ends at a patch's border.
"""

from collections.abc import Callable, Mapping, Sequence
from math import cos, radians, sin
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from vitviz.errors import UnsupportedModel
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import LocalizedText

ImageTensor = Float[Tensor, "3 height width"]
NO_OTHER = "There is no second image to take the background or texture from."


def change_image(
    picture: UInt8[np.ndarray, "height width 3"], way: str, amount: int, grid: Grid,
    others: Sequence[UInt8[np.ndarray, "height width 3"]] = ()
) -> Float[Tensor, "draw 3 height width"]:  # fmt: skip
    """Return copies of an image changed by an `amount` (pixels, degrees, per cent): (draw, 3, height, width).

    `way` is one of CHANGES. Values are float64 from 0 to 1. Each draw has its own direction, or uses one of
    the `others`.
    Raises UnsupportedModel if the change needs another image and none is given.

    >>> red = np.full((4, 4, 3), (255, 0, 0), np.uint8)
    >>> change_image(red, "grey", 100, Grid(2, 2, (2, 2), ()))[0, :, 0, 0].tolist()
    [0.299, 0.299, 0.299]
    """
    x, *rest = (torch.from_numpy(one).double().permute(2, 0, 1) / 255 for one in (picture, *others))
    result = CHANGES[way](x, amount, grid, rest)
    if not result:
        raise UnsupportedModel(LocalizedText(NO_OTHER))
    return torch.stack(result)


def _shift(x: ImageTensor, pixels: int, grid: Grid, others: Sequence[ImageTensor]) -> list[ImageTensor]:
    """Return the image shifted by `pixels` right, left, down and up; the mean colour fills gaps.

    Only right and left if patches are not square.
    """
    tall, wide = grid.patch
    mean = x.mean((1, 2), keepdim=True)
    # the axis marks a patch's width, so patches that are not square shift sideways only
    sides = ((pixels, 0), (-pixels, 0), (0, pixels), (0, -pixels))[: 4 if tall == wide else 2]
    return [F.pad(x - mean, (right, -right, down, -down)) + mean for right, down in sides]


def _rotate(x: ImageTensor, degrees: int, grid: Grid, others: Sequence[ImageTensor]) -> list[ImageTensor]:
    """Return the image turned by `degrees` about its centre, once in each direction, bilinear.

    The mean colour fills exposed pixels.
    """
    height, width = x.shape[1:]
    middles = (torch.arange(size, dtype=x.dtype) - (size - 1) / 2 for size in (height, width))
    down, right = torch.meshgrid(*middles, indexing="ij")
    mean, result = x.mean((1, 2), keepdim=True), []
    for angle in (radians(degrees), -radians(degrees)):
        across = right * cos(angle) - down * sin(angle)  # source position of each pixel
        along = right * sin(angle) + down * cos(angle)
        places = torch.stack([2 * across / width, 2 * along / height], dim=-1)
        result.append(F.grid_sample((x - mean)[None], places[None], align_corners=False)[0] + mean)
    return result


def _luma(x: ImageTensor) -> Float[Tensor, "1 height width"]:
    """Return the image's luma 0.299 R + 0.587 G + 0.114 B (BT.601), with a channel axis of size 1."""
    return torch.einsum("c,cij->ij", x.new_tensor([0.299, 0.587, 0.114]), x)[None]


def _to_grey(x: ImageTensor, percent: int, grid: Grid, others: Sequence[ImageTensor]) -> list[ImageTensor]:
    """Return a list of one image: the image blended with its luma at `percent`; 100 gives pure grey."""
    return [torch.lerp(x, _luma(x).expand_as(x), percent / 100)]


def _edges(x: ImageTensor, percent: int, grid: Grid, others: Sequence[ImageTensor]) -> list[ImageTensor]:
    """Return a list of one image: the image blended with its Sobel edge strength (0 to 1) at `percent`."""
    across = x.new_tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    both = torch.stack([across, across.T])[:, None]
    slopes = F.conv2d(F.pad(_luma(x)[None], (1, 1, 1, 1), mode="replicate"), both)
    edges = (slopes.norm(dim=1) / 4).clamp(max=1)
    return [torch.lerp(x, edges.expand_as(x), percent / 100)]


def _background(x: ImageTensor, percent: int, grid: Grid, others: Sequence[ImageTensor]) -> list[ImageTensor]:
    """Return, for each of `others`, the image with its outermost `percent` % of patches replaced."""
    sides = zip((grid.rows, grid.cols), grid.patch, strict=True)
    down, right = ((2 * torch.arange(count) - (count - 1)) * size for count, size in sides)
    far = (down[:, None] ** 2 + right**2).flatten()  # integers, so that ties are exact
    there = torch.zeros(grid.patches, dtype=torch.bool)
    there[(-far).argsort(stable=True)[: percent * grid.patches // 100]] = True
    place = F.pad(_spread(there.view(grid.rows, grid.cols), grid), _rim(x, grid))
    return [torch.where(place, other, x) for other in others]


def _texture(x: ImageTensor, percent: int, grid: Grid, others: Sequence[ImageTensor]) -> list[ImageTensor]:
    """Return, for each of `others`, the image with `percent` % of its texture replaced by the other's.

    Texture is the deviation of pixels from their patch's mean; results are clipped to 0..1.
    """

    def texture(one: ImageTensor) -> ImageTensor:
        inside = one[:, : grid.pixels[0], : grid.pixels[1]]
        return F.pad(inside - _spread(F.avg_pool2d(inside, grid.patch), grid), _rim(x, grid))

    own = texture(x)
    return [(x + percent / 100 * (texture(other) - own)).clamp(0, 1) for other in others]


def _spread(values: Tensor, grid: Grid) -> Tensor:
    """Return one value per patch, repeated over the patch's pixels."""
    return values.repeat_interleave(grid.patch[0], -2).repeat_interleave(grid.patch[1], -1)


def _rim(x: ImageTensor, grid: Grid) -> tuple[int, int, int, int]:
    """Return the padding (left, right, top, bottom) from the patch grid to the size of the image."""
    return 0, x.shape[2] - grid.pixels[1], 0, x.shape[1] - grid.pixels[0]


CHANGES: Mapping[str, Callable[..., list[ImageTensor]]] = MappingProxyType(
    dict(shift=_shift, turn=_rotate, grey=_to_grey, edges=_edges, ground=_background, texture=_texture)
)
