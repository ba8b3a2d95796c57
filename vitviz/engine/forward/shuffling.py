"""What if: the same picture with its patches shuffled, and the same model without its position embeddings.

A plain Vision Transformer knows where a patch was only from E_pos (paper equation 1). Everything behind the
embedding treats its tokens alike, so without E_pos a permutation of the patches permutes the outputs and
leaves the class token's answer as it is. Here both sides of that sentence can be tried. Neither the picture
nor the model that is given is changed: the first is copied, the second lends its weights to a variant with a
table of zeros. Not shown: what a model trained without positions would answer.
"""

from dataclasses import replace

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from vitviz.analyses.perturbation import permutation
from vitviz.engine.defaults import in_float32
from vitviz.engine.forward import copies, tracing
from vitviz.engine.images.preprocess import Prepared, Preprocessing
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid
from vitviz.traces.trace import ModelInput


@in_float32()
def as_seen(view: ModelInput, preprocessing: Preprocessing) -> Prepared:
    """The model's input from a picture that was resized and cropped already: only normalised."""
    values = view.picture.astype(np.float32) / 255 if view.exact is None else view.exact
    pixels = torch.from_numpy(values).movedim(-1, 0)
    return Prepared(normalised(pixels, preprocessing), view)


@in_float32()
def normalised(
    pixels: Float[Tensor, "*draw 3 height width"], preprocessing: Preprocessing
) -> Float[Tensor, "*draw 3 height width"]:
    """Pixels from 0 to 1, as the model expects them."""
    mean, std = preprocessing.scale()
    return (pixels - mean) / std


def shuffled(prepared: Prepared, grid: Grid, seed: int) -> Prepared:
    """The picture with its patches in another order, as read and as shown; VitvizError for no seed."""
    order = torch.from_numpy(permutation(grid.patches, seed))

    def moved(picture: Shaped[np.ndarray, "height width 3"]) -> Shaped[np.ndarray, "height width 3"]:
        laid = reordered(torch.from_numpy(picture).movedim(-1, 0), grid, order).movedim(0, -1)
        return np.ascontiguousarray(laid.numpy())

    picture, exact = prepared.view.picture, prepared.view.exact
    view = replace(prepared.view, picture=moved(picture), exact=None if exact is None else moved(exact))
    return Prepared(reordered(prepared.tensor, grid, order), view)


def reordered(
    pixels: Shaped[Tensor, "*batch channel height width"], grid: Grid, order: Int[Tensor, " patch"]
) -> Shaped[Tensor, "*batch channel height width"]:
    """Pixels with the patch `order[i]` at place i; a rim that no patch is cut from stays as it is."""
    (height, width), whole = grid.pixels, pixels.clone()
    cut, laid = "... (row col) channel height width", "... channel (row height) (col width)"
    sides = {"row": grid.rows, "col": grid.cols}
    patches = rearrange(pixels[..., :height, :width], f"{laid} -> {cut}", **sides)
    moved = patches[..., order.to(pixels.device), :, :, :]
    whole[..., :height, :width] = rearrange(moved, f"{cut} -> {laid}", **sides)
    return whole


def why_not(model: nn.Module) -> str | None:
    """Why a model's positions cannot be taken away, to end a sentence that its name begins; or None."""
    kind = tracing.position_kind(model)
    if kind == "learned":
        return None
    if kind == "none":
        return "adds no position embedding, so there is nothing to set to zero"
    named = {"learned": "a learned table", "rotary": "rotary embedding", "relative": "relative bias"}
    kinds = " and ".join(named[one] for one in kind.split(" + "))
    reason = "they are not (only) a table that can be zeroed"
    return f"knows positions by {kinds}: not applicable, because {reason}"


def without_positions(model: nn.Module, name: str) -> nn.Module:
    """A variant that shares all weights but its learned position table, now zero; else VitvizError."""
    reason = why_not(model)
    if reason is not None:
        raise VitvizError(f"{name} {reason}.")
    variant = copies.lending(model)
    variant.pos_embed = nn.Parameter(torch.zeros_like(model.pos_embed), requires_grad=False)
    return variant.eval()
