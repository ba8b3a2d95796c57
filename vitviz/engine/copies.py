"""Copies of a model: at another input size, or on another device and in another precision. The given one stays as it is."""

from __future__ import annotations

import copy

import torch
from torch import nn


def sized(model: nn.Module, size: tuple[int, int]) -> nn.Module:
    """The model at another input size (height, width); it shares every weight but the interpolated position embedding."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    variant = copy.deepcopy(model, shared)
    variant.set_input_size(img_size=size)
    return variant.to(next(model.parameters()).device).eval()  # tables were computed anew


def placed(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The model on a device in a precision, weights and tables alike: a family that mixes its tables with tokens fails otherwise.

    The parameters are moved one at a time, so that the copy needs no room beside the given model for more than itself.
    """
    moved = {id(one): nn.Parameter(one.detach().to(device, dtype), requires_grad=False) for one in model.parameters()}
    twin = copy.deepcopy(model, moved).to(device, dtype).eval()
    for module in twin.modules():  # a process forked in the middle of a pass has the recorder's
        module._forward_hooks.clear(), module._forward_pre_hooks.clear()
    return twin
