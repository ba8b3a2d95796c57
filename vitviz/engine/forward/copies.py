"""Copies of a model for another input size, device or precision."""

import torch
from torch import nn

from vitviz.engine.defaults import in_float32
from vitviz.engine.forward import hooks, positions


@in_float32()
def resized_copy(model: nn.Module, size: tuple[int, int]) -> nn.Module:
    """Return a copy for another input size (height, width) that shares all weights but the position table.

    Returns the model itself if it was built for this size.
    """
    if size_of(model, size) == size:
        return model
    variant = lending(model)
    variant.set_input_size(img_size=size)
    positions.follow_transformers(variant, model)
    return variant.to(next(model.parameters()).device).eval()  # set_input_size created new tables


def size_of(model: nn.Module, default: tuple[int, int]) -> tuple[int, int]:
    """Return the input size (height, width) that a model was built for, or `default` if unknown."""
    return tuple(getattr(getattr(model, "patch_embed", None), "img_size", None) or default)


def lending(model: nn.Module) -> nn.Module:
    """Return a copy that shares every weight but no module, so that parts can be replaced during passes."""
    return hooks.copied(model, {id(parameter): parameter for parameter in model.parameters()})


def placed_copy(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Return a copy on a device in a precision; tables move with weights, as families that mix both require.

    Parameters are moved one at a time, so that peak memory is the given model and the copy.
    """
    moved = {
        id(one): nn.Parameter(one.detach().to(device, dtype), requires_grad=False)
        for one in model.parameters()
    }
    return hooks.copied(model, moved).to(device, dtype).eval()
