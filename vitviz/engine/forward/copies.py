"""Copies of a model for another input size, device or precision."""

from typing import Any

import torch
from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from vitviz.engine.defaults import in_float32
from vitviz.engine.forward import hooks, positions


@in_float32()
def resized_copy(model: nn.Module, size: tuple[int, int]) -> nn.Module:
    """Return a copy for another input size (height, width) that shares all weights but the position table.

    Returns the model itself if it was built for this size.
    """
    if size_of(model, size) == size:
        return model
    variant = copy_sharing_weights(model)
    variant.set_input_size(img_size=size)
    positions.follow_transformers(variant, model)
    return variant.to(next(model.parameters()).device).eval()  # set_input_size created new tables


def size_of(model: nn.Module, default: tuple[int, int]) -> tuple[int, int]:
    """Return the input size (height, width) that a model was built for, or `default` if unknown."""
    return tuple(getattr(getattr(model, "patch_embed", None), "img_size", None) or default)


def copy_sharing_weights(model: nn.Module) -> nn.Module:
    """Return a copy that shares every weight but no module, so that parts can be replaced during passes."""
    return hooks.copy_without_hooks(model, {id(parameter): parameter for parameter in model.parameters()})


_RECOMPUTED = (BasePruningMethod, SpectralNorm, WeightNorm)


def with_permanent_weights(model: nn.Module) -> nn.Module:
    """Return the model, or a copy with plain parameters if hooks (such as weight_norm's) recompute weights.

    Hooks of pruning, weight_norm and spectral_norm compute a weight from other tensors. Such a weight is out
    of date between a training step and the next pass. (Parametrizations compute theirs on each access.)
    """
    if not any(_recomputing(module) for module in model.modules()):
        return model
    twin = hooks.copy_without_hooks(model, {})
    for module in twin.modules():
        for number, hook in _recomputing(module):
            hook.remove(module)
            del module._forward_pre_hooks[number]
    return twin


def _recomputing(module: nn.Module) -> list[tuple[int, Any]]:
    """Return the module's pre-hooks, as (id, hook), that compute a weight anew in every pass."""
    return [one for one in module._forward_pre_hooks.items() if isinstance(one[1], _RECOMPUTED)]


def placed_copy(model: nn.Module, device: torch.device, dtype: torch.dtype, copy: bool = False) -> nn.Module:
    """Return a copy on a device in a precision, including tables such as rotary positions.

    Parameters are moved one at a time, so that peak memory is the given model and the copy. A parameter that
    is there already is shared unless `copy` is set. Tables have the weights' precision, because some
    families mix both.
    """
    moved = {
        id(parameter): nn.Parameter(parameter.detach().to(device, dtype, copy=copy), requires_grad=False)
        for parameter in model.parameters()
    }
    return hooks.copy_without_hooks(model, moved).to(device, dtype).eval()
