"""Paint over patches with the mean colour, a blurred image, or black, for ablation and faithfulness.

    mean   0 in the model's units: the mean of its normalisation, equal for every image
    blur   the image through a Gaussian whose deviation is a patch, cut off at two; edges are repeated
    black  0 of the image's own values

All fills are computed in float on the model's input; only the displayed copy is rounded to 8 bits. Published
tests remove patches in this way, because a convolutional network cannot leave them out. A painted patch is
still a patch: the model sees a grey, smooth or black square there, and its prediction depends on it.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitviz.engine.defaults import in_float32
from vitviz.engine.images.preprocess import Prepared, Preprocessing
from vitviz.traces.grid import Grid

BLUR = 1.0  # deviation of the Gaussian, in patches: no detail smaller than a patch remains


@in_float32()
def paint_patches(
    prepared: Prepared, preprocessing: Preprocessing, grid: Grid, patches: tuple[int, ...], patches_as: str
) -> Prepared:
    """Return the image with some patches (from 0) painted over, as displayed and as the model's input."""
    picture, (height, width), (rows, cols) = prepared.view.picture, grid.patch, grid.pixels
    over, some = np.zeros(picture.shape[:2], bool), np.isin(np.arange(grid.patches), patches)
    over[:rows, :cols] = some.reshape(grid.rows, grid.cols).repeat(height, axis=0).repeat(width, axis=1)
    new = fill_pixels(prepared.tensor[None], preprocessing, grid, patches_as)[0]
    mean, std = preprocessing.scale()
    values, exact = (new * std + mean).permute(1, 2, 0).numpy(), prepared.view.exact
    pixels = preprocessing.picture(values)
    if exact is None and patches_as != "black":  # the fill has fractions of a grey level
        exact = picture.astype(np.float32) / 255
    exact = None if exact is None else np.where(over[..., None], values, exact)
    view = replace(prepared.view, picture=np.where(over[..., None], pixels, picture), exact=exact)
    return Prepared(torch.where(torch.from_numpy(over), new, prepared.tensor), view)


def fill_pixels(
    pixels: Float[Tensor, "batch channel height width"], preprocessing: Preprocessing, grid: Grid, fill: str
) -> Float[Tensor, "batch channel height width"]:
    """Return images that consist of the fill alone ("mean", "black" or "blur"), in the model's units."""
    if fill == "mean":
        return torch.zeros_like(pixels)
    if fill == "black":
        mean, std = preprocessing.scale()
        return (-mean / std).to(pixels).expand_as(pixels)
    exact, sigma = pixels.to(torch.promote_types(pixels.dtype, torch.float32)), BLUR * max(grid.patch)
    radius = min(int(2 * sigma), min(pixels.shape[-2:]) - 1)
    offsets = torch.arange(-radius, radius + 1, dtype=exact.dtype, device=exact.device)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel = (kernel / kernel.sum()).expand(pixels.shape[1], 1, -1)
    padded = F.pad(exact, (radius,) * 4, mode="replicate")
    across = F.conv2d(padded, kernel[:, :, None], groups=pixels.shape[1])
    return F.conv2d(across, kernel[..., None], groups=pixels.shape[1]).to(pixels)
