"""Perturbations: shuffle the patches of an image, and remove the position embeddings of a model.

In a plain Vision Transformer, only E_pos encodes a patch's position (paper equation 1). All layers after the
embedding treat tokens alike, so without E_pos a permutation of the patches permutes the outputs and leaves
the class token's prediction unchanged. This module provides both perturbations. Image and model are not
changed: the image is copied, and a variant with a table of zeros shares the model's weights. Not shown: the
prediction of a model trained without positions.
"""

from dataclasses import replace

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from vitviz.analyses.perturbation import permutation
from vitviz.engine.defaults import in_float32
from vitviz.engine.forward import copies, tracing
from vitviz.engine.images.preprocess import Prepared, Preprocessing, normalised
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid
from vitviz.traces.trace import ModelInput


@in_float32()
def input_from_view(view: ModelInput, preprocessing: Preprocessing) -> Prepared:
    """Return the model's input from an image that is already resized and cropped, by normalisation only."""
    values = view.picture.astype(np.float32) / 255 if view.exact is None else view.exact
    return Prepared(normalised(torch.from_numpy(values).movedim(-1, 0), preprocessing), view)


def shuffle_patches(prepared: Prepared, grid: Grid, seed: int) -> Prepared:
    """Shuffle the patches of an image, in tensor and view. Raises VitvizError for an invalid seed."""
    order = torch.from_numpy(permutation(grid.patches, seed))

    def moved(picture: Shaped[np.ndarray, "height width 3"]) -> Shaped[np.ndarray, "height width 3"]:
        laid = reorder_patches(torch.from_numpy(picture).movedim(-1, 0), grid, order).movedim(0, -1)
        return np.ascontiguousarray(laid.numpy())

    picture, exact = prepared.view.picture, prepared.view.exact
    view = replace(prepared.view, picture=moved(picture), exact=None if exact is None else moved(exact))
    return Prepared(reorder_patches(prepared.tensor, grid, order), view)


def reorder_patches(
    pixels: Shaped[Tensor, "*batch channel height width"], grid: Grid, order: Int[Tensor, " patch"]
) -> Shaped[Tensor, "*batch channel height width"]:
    """Return images with patch `order[i]` at position i; pixels outside the patch grid stay unchanged."""
    (height, width), whole = grid.pixels, pixels.clone()
    cut, laid = "... (row col) channel height width", "... channel (row height) (col width)"
    sides = {"row": grid.rows, "col": grid.cols}
    patches = rearrange(pixels[..., :height, :width], f"{laid} -> {cut}", **sides)
    moved = patches[..., order.to(pixels.device), :, :, :]
    whole[..., :height, :width] = rearrange(moved, f"{cut} -> {laid}", **sides)
    return whole


def fixed_positions_reason(model: nn.Module) -> str | None:
    """Return the reason why a model's positions cannot be removed, or None if they can.

    The reason completes a sentence that begins with the model's name.
    """
    kind = tracing.position_kind(model)
    if kind == "learned":
        return None
    if kind == "none":
        return "adds no position embedding, so there is nothing to set to zero"
    named = {"learned": "a learned table", "rotary": "rotary embedding", "relative": "relative bias"}
    kinds = " and ".join(named[one] for one in kind.split(" + "))
    reason = "they are not (only) a table that can be zeroed"
    return f"encodes positions by {kinds}: not applicable, because {reason}"


def without_positions(model: nn.Module, name: str) -> nn.Module:
    """Return a variant with a zero position table that shares all other weights; `name` is for errors.

    Raises VitvizError if positions are not only a learned table.
    """
    reason = fixed_positions_reason(model)
    if reason is not None:
        raise VitvizError(f"{name} {reason}.")
    variant = copies.copy_sharing_weights(model)
    variant.pos_embed = nn.Parameter(torch.zeros_like(model.pos_embed), requires_grad=False)
    return variant.eval()
