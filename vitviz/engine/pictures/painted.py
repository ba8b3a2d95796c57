"""Patches painted over, in pixels: with the picture's mean colour, blurred, or black.

Published tests take patches away so, because a convolutional network cannot leave them out. A painted
patch is still a patch: the model sees that something grey, smooth or black stands there, and answers to
that too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from PIL import Image, ImageFilter

from vitviz.engine.defaults import in_float32
from vitviz.engine.pictures.preprocess import Prepared, Preprocessing
from vitviz.grid import Grid

BLUR = 1.0  # deviation of the Gaussian, in patches: nothing smaller than one is left


@in_float32()
def painted(
    prepared: Prepared, preprocessing: Preprocessing, grid: Grid, patches: tuple[int, ...], how: str
) -> Prepared:
    """The picture with some of its patches (numbers from 0) painted over, in what is shown and in what the
    model gets."""
    picture = prepared.view.picture
    over = np.zeros(picture.shape[:2], bool)
    for patch in patches:
        row, col = divmod(patch, grid.cols)
        over[
            row * grid.patch[0] : (row + 1) * grid.patch[0], col * grid.patch[1] : (col + 1) * grid.patch[1]
        ] = True
    new = np.where(over[..., None], _instead(picture, grid, how), picture)
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    pixels = (torch.from_numpy(new).permute(2, 0, 1).float() / 255 - mean) / std
    tensor = torch.where(torch.from_numpy(over), pixels, prepared.tensor)
    return Prepared(tensor, replace(prepared.view, picture=new))


def _instead(picture: np.ndarray, grid: Grid, how: str) -> np.ndarray:
    if how == "mean":
        return np.broadcast_to(picture.mean(axis=(0, 1)).round().astype(np.uint8), picture.shape)
    if how == "blur":
        return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(BLUR * max(grid.patch))))
    return np.zeros_like(picture)
