"""Copies of a model: at another input size, or on another device and in another precision."""

import torch
from torch import nn

from vitviz.engine.defaults import in_float32
from vitviz.engine.forward import hooks, positions


@in_float32()
def resized_copy(model: nn.Module, size: tuple[int, int]) -> nn.Module:
    """The model at another input size (height, width); it shares all weights but the position table.

    At the size that it was built for, it is the model itself.
    """
    if size_of(model, size) == size:
        return model
    variant = lending(model)
    variant.set_input_size(img_size=size)
    positions.follow_transformers(variant, model)
    return variant.to(next(model.parameters()).device).eval()  # tables were computed anew


def size_of(model: nn.Module, default: tuple[int, int]) -> tuple[int, int]:
    """The input size (height, width) that a model was built for; `default` where it does not say it."""
    return tuple(getattr(getattr(model, "patch_embed", None), "img_size", None) or default)


def lending(model: nn.Module) -> nn.Module:
    """A copy that shares every weight, but no module, so that parts can be exchanged while passes run."""
    return hooks.copied(model, {id(parameter): parameter for parameter in model.parameters()})


def placed_copy(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The model on a device in a precision, weights and tables alike: a family that mixes them else fails.

    The parameters are moved one at a time: beside the given model there is room for the copy alone.
    """
    moved = {
        id(one): nn.Parameter(one.detach().to(device, dtype), requires_grad=False)
        for one in model.parameters()
    }
    return hooks.copied(model, moved).to(device, dtype).eval()
