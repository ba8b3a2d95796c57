"""Resize a model's position tables to another grid by the rule of the library that the model comes from.

timm resizes a table of absolute positions bicubically with antialiasing, and a relative one on its own kind
of grid. transformers (`interpolate_pos_encoding`) resizes absolute tables without antialiasing (DINOv2
with registers: with antialiasing), and BEiT's relative tables bilinearly; their last three rows, for the
class token, are unchanged. transformers resizes only tables of square grids. Rotary positions have no table.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

from vitviz.errors import UnsupportedModel

_RELATIVE = "relative_position_bias_table"
_ALONE = 3  # rows of a relative table that belong to the class token


def mark_as_transformers(model: nn.Module, antialias: bool) -> nn.Module:
    """Mark a model, in place, as one of transformers; its tables are then resized by transformers' rule."""
    model.position_antialias = antialias
    return model


def resize_table(
    model: nn.Module, table: Float[Tensor, "1 token width"], new: Sequence[int], old: Sequence[int]
) -> Float[Tensor, "1 token2 width"]:
    """Resize a table of absolute positions from an `old` to a `new` (rows, cols) grid by the model's rule."""
    antialias, prefix = getattr(model, "position_antialias", True), table.shape[1] - old[0] * old[1]
    return resample_abs_pos_embed(table, list(new), list(old), prefix, antialias=antialias)


def follow_transformers(variant: nn.Module, model: nn.Module) -> None:
    """Set the tables of a model's `variant` at another grid, in place, to those that transformers would use.

    Does nothing if the model is not one of transformers. Raises UnsupportedModel for a table that
    transformers cannot resize.
    """
    if not hasattr(model, "position_antialias"):
        return
    new, old = (one.patch_embed.grid_size for one in (variant, model))
    tables = {}
    if model.pos_embed is not None:
        tables[variant, "pos_embed"] = resize_table(model, model.pos_embed, new, old)
    for part, own in zip(variant.modules(), model.modules(), strict=True):
        if getattr(own, _RELATIVE, None) is not None:
            tables[part, _RELATIVE] = _bilinear(getattr(own, _RELATIVE), new, old)
    if tables and old[0] != old[1]:
        raise UnsupportedModel(
            f"The position table of this model is for {old[0]} x {old[1]} patches, and transformers resizes"
            " square tables only. Use the model's own input size."
        )
    for (part, name), table in tables.items():
        setattr(part, name, nn.Parameter(table, requires_grad=False))


def _bilinear(
    table: Float[Tensor, "entry head"], new: Sequence[int], old: Sequence[int]
) -> Float[Tensor, "entry2 head"]:
    """Resize a relative-position table, (2 rows - 1)(2 cols - 1) + 3 entries, bilinearly to another grid."""
    (rows, cols), sides = ([2 * side - 1 for side in grid] for grid in (old, new))
    laid = table[:-_ALONE].detach().float().T.reshape(1, -1, rows, cols)
    laid = F.interpolate(laid, size=sides, mode="bilinear").flatten(2)[0].T
    return torch.cat([laid.to(table), table[-_ALONE:].detach()])
