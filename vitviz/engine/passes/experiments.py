"""What if: the same picture with its patches shuffled, and the same model without its position embeddings.

A plain Vision Transformer knows where a patch was only from E_pos (paper equation 1). Everything behind the
embedding treats its tokens alike, so without E_pos a permutation of the patches permutes the outputs and
leaves the class token's answer as it is. Here both sides of that sentence can be tried. Neither the picture
nor the model that is given is changed: the first is copied, the second lends its weights to a variant with a
table of zeros. Not shown: what a model trained without positions would answer.
"""

from __future__ import annotations

import operator
from dataclasses import replace

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Int
from torch import nn

from vitviz.engine.defaults import in_float32
from vitviz.engine.passes import copies, record
from vitviz.engine.pictures.preprocess import Prepared, Preprocessing
from vitviz.errors import VitvizError
from vitviz.grid import Grid
from vitviz.trace import View


@in_float32()
def as_seen(view: View, preprocessing: Preprocessing) -> Prepared:
    """The model's input from a picture that has already been resized and cropped; nothing but the
    normalisation.
    """
    pixels = rearrange(
        torch.from_numpy(view.picture).float() / 255, "height width channel -> channel height width"
    )
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    return Prepared((pixels - mean) / std, view)


def permutation(patches: int, seed: int) -> Int[np.ndarray, " patch"]:
    """Which patch (row-major, from 0) comes to stand at each place; the same for the same seed.

    VitvizError for what is no seed.

    >>> permutation(5, seed=1).tolist() == permutation(5, seed=1).tolist()
    True
    >>> sorted(permutation(5, seed=2).tolist())
    [0, 1, 2, 3, 4]
    """
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0 or isinstance(seed, bool):
        raise VitvizError(
            f"Given shuffle={seed!r}; expected a seed, a whole number from 0, which is the same order each"
            " time."
        )
    return np.random.default_rng(number).permutation(patches)


def shuffled(prepared: Prepared, grid: Grid, seed: int) -> Prepared:
    """The picture with its patches in another order, in pixels: what the model reads and what can be shown of
    it.
    """
    order, (rows, cols) = permutation(grid.patches, seed), (grid.rows, grid.cols)

    height, width = grid.pixels

    def moved(pixels):  # a rim that no patch is cut from stays as it is
        whole = pixels.clone() if isinstance(pixels, torch.Tensor) else pixels.copy()
        whole[:, :height, :width] = reordered(pixels[:, :height, :width])
        return whole

    def reordered(pixels):
        patches = rearrange(
            pixels, "channel (row height) (col width) -> (row col) channel height width", row=rows, col=cols
        )
        return rearrange(
            patches[order],
            "(row col) channel height width -> channel (row height) (col width)",
            row=rows,
            col=cols,
        )

    picture = rearrange(
        moved(rearrange(prepared.view.picture, "height width channel -> channel height width")),
        "channel height width -> height width channel",
    )
    return Prepared(moved(prepared.tensor), replace(prepared.view, picture=np.ascontiguousarray(picture)))


def why_not(model: nn.Module) -> str | None:
    """Why a model's positions cannot be taken away, as the end of a sentence that begins with its name; None
    if they can.
    """
    kind = record.position_kind(model)
    if kind == "learned":
        return None
    if kind == "none":
        return "adds no position embedding, so there is nothing to set to zero"
    kinds = (
        kind.replace("learned", "a learned table")
        .replace("rotary", "rotary embedding")
        .replace("relative", "relative bias")
        .replace(" + ", " and ")
    )
    return (
        f"knows positions by {kinds}: not applicable, because they are not (only) a table that can be zeroed"
    )


def without_positions(model: nn.Module, name: str) -> nn.Module:
    """A variant that shares every weight but its learned position table, which is zero; VitvizError where
    there is none.
    """
    reason = why_not(model)
    if reason is not None:
        raise VitvizError(f"{name} {reason}.")
    variant = copies.lending(model)
    variant.pos_embed = nn.Parameter(torch.zeros_like(model.pos_embed), requires_grad=False)
    return variant.eval()
