"""Filling a model with the tensors of a file, every one of them, or saying which do not fit.

Nothing is left at its random start and nothing is stretched on the way: where timm would resample position embeddings
or drop a classifier in silence, a file of the user's is refused, or the model is built to the file's own size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import timm
from timm.layers import use_fused_attn
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitviz.engine.loading.families import timm_module
from vitviz.engine.loading.formats.inferred import grid_side
from vitviz.engine.record import patch_size
from vitviz.errors import CheckpointError

_RESIZED = ("pos_embed", "patch_embed.proj.weight", "relative_position_bias_table")


class _Unfilled(TorchFunctionMode):
    """Skips the random numbers of a new model's parameters: all are about to be replaced, and they take most of the time."""

    _FILLING = {"uniform_", "normal_", "erfinv_", "mul_", "add_", "div_", "clamp_"}  # torch's and timm's truncated normal

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if args and isinstance(args[0], nn.Parameter) and getattr(func, "__name__", "") in self._FILLING:
            return args[0]
        return func(*args, **(kwargs or {}))


def empty(build: Callable[..., nn.Module], name: str, **changes: Any) -> nn.Module:
    """A new model without weights. Raises CheckpointError where it cannot be built with these arguments."""
    try:
        with _Unfilled():
            model = build(**changes)
    except (TypeError, ValueError, AssertionError, KeyError, RuntimeError, AttributeError, ZeroDivisionError) as error:
        raise CheckpointError(
            f"{name} describes a model that cannot be built: {error or type(error).__name__}. Check its config.json or architecture."
        ) from error
    if not use_fused_attn():  # switched off in this environment, for exports; capturing and speed both rest on it
        for module in model.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = True
    return model


def fill(model: nn.Module, tensors: Mapping[str, Tensor], name: str, what: str) -> None:
    """Loads tensors in timm's layout strictly, in place.

    Raises CheckpointError that names the first three keys that are missing, left over, or of another shape.
    """
    misfits = _misfits(model.state_dict(), tensors)
    if misfits:
        more = f" and {len(misfits) - 3} more" if len(misfits) > 3 else ""
        raise CheckpointError(
            f"{name} does not fit {what}: {'; '.join(misfits[:3])}{more}. "
            "Name the architecture that it was trained with, or leave it out so that it is read from the tensors."
        )
    model.load_state_dict(dict(tensors), strict=True)


def converted(tensors: Mapping[str, Tensor], model: nn.Module, architecture: str) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors after timm's own renaming for a family (CLIP's, DINOv2's, EVA's files, …), and what it resampled."""
    module = sys.modules[timm.models.model_entrypoint(architecture.partition(".")[0]).__module__]
    options = {"adapt_layer_scale": True} if timm_module(architecture) in ("vision_transformer", "deit") else {}
    before = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    try:
        after = module.checkpoint_filter_fn(dict(tensors), model, **options)
    except (AttributeError, RuntimeError, KeyError, IndexError, ValueError, ZeroDivisionError):
        return dict(tensors), []  # a file of another family; the strict check will name its keys
    # A tensor that was only renamed or transposed still lies in the memory of the file's; a resampled one does not.
    resampled = [key for key, tensor in after.items() if key.endswith(_RESIZED) and tensor.untyped_storage().data_ptr() not in before]
    return after, resampled


def own_size(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """How a model must be built differently to take a file of the same architecture: classes, image size, pooling.

    Fine-tuning changes these three and nothing else. Empty where the model fits as it is.
    """
    changes: dict[str, Any] = {}
    classes = len(tensors["head.weight"]) if "head.weight" in tensors else 0
    known_layout = "blocks.0.norm1.weight" in tensors  # elsewhere the classifier may go by another name
    if known_layout and classes != model.num_classes:
        changes["num_classes"] = classes
    if "fc_norm.weight" in tensors and "norm.weight" not in tensors and model.global_pool == "token":
        changes["global_pool"] = "avg"
    table, own = tensors.get("pos_embed"), model.state_dict().get("pos_embed")
    if table is not None and own is not None and table.ndim == 3 and table.shape[1] != own.shape[1]:
        patches = model.patch_embed.num_patches
        side = grid_side(table.shape[1], own.shape[1] - patches)
        if side:
            rows, cols = patch_size(model.patch_embed)
            changes["img_size"] = (side * rows, side * cols)
    return changes


def _misfits(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    found = []
    for name, tensor in expected.items():
        if name not in given:
            found.append(f"{name} {_shape(tensor)} is missing from the file")
        elif given[name].shape != tensor.shape:
            found.append(f"{name} is {_shape(given[name])} in the file and {_shape(tensor)} in the model")
    return found + [
        f"{name} {_shape(tensor)} of the file is not part of the model" for name, tensor in given.items() if name not in expected
    ]


def _shape(tensor: Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"
