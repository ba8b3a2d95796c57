"""Copies of a model: at another input size, or on another device and in another precision."""

import torch
from torch import nn

from vitviz.engine.defaults import in_float32
from vitviz.engine.passes import wiring


@in_float32()
def sized(model: nn.Module, size: tuple[int, int]) -> nn.Module:
    """The model at another input size (height, width); it shares all weights but the position table."""
    variant = lending(model)
    variant.set_input_size(img_size=size)
    return variant.to(next(model.parameters()).device).eval()  # tables were computed anew


def lending(model: nn.Module) -> nn.Module:
    """A copy that shares every weight, but no module, so that parts can be exchanged while passes run."""
    return wiring.copied(model, {id(parameter): parameter for parameter in model.parameters()})


def placed(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The model on a device in a precision, weights and tables alike: a family that mixes them else fails.

    The parameters are moved one at a time: beside the given model there is room for the copy alone.
    """
    moved = {
        id(one): nn.Parameter(one.detach().to(device, dtype), requires_grad=False)
        for one in model.parameters()
    }
    return wiring.copied(model, moved).to(device, dtype).eval()
