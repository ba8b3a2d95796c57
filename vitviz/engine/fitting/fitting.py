"""Filling a model with the tensors of a file, every one of them, or saying which do not fit.

timm's own loading is not used, because it forgives: where it would leave weights at their random start,
resample positions or drop a classifier in silence, a file is refused, or the model built to its own size.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import timm
import torch
from timm.layers import use_fused_attn
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitviz.engine import memory
from vitviz.engine.passes.record import patch_size
from vitviz.engine.reading import limits
from vitviz.engine.reading.families import timm_module
from vitviz.engine.reading.folder import refusing
from vitviz.engine.reading.inferred import grid_side
from vitviz.errors import CheckpointError

_BUILT = 3_000  # tensors that are made of any model before its file's count: none of timm's has 2,000
_RESAMPLED_BY_TIMM = 16_000_000  # parameters, of position embeddings for larger pictures
_UNBUILT = (
    TypeError, ValueError, AssertionError, KeyError, IndexError, RuntimeError, AttributeError,
    ArithmeticError, RecursionError, NotImplementedError,
)  # fmt: skip
_RESIZED = ("pos_embed", "patch_embed.proj.weight", "relative_position_bias_table")


class _Counted(TorchFunctionMode):
    """Ends the building of a model that makes more tensors than its file could fill, before it stands."""

    _MAKING = {"empty", "zeros", "ones", "full", "rand", "randn", "tensor", "arange", "linspace"}

    def __init__(self, most: int, sentence: str):
        super().__init__()
        self.left, self.sentence = most, sentence

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in self._MAKING:
            self.left -= 1
            if self.left < 0:
                raise CheckpointError(self.sentence)
        return func(*args, **(kwargs or {}))


def empty(
    build: Callable[..., nn.Module], name: str, tensors: Mapping[str, Tensor], **changes: Any
) -> nn.Module:
    """A new model of shapes alone, on torch's meta device: it takes no memory until it is filled.

    `tensors` are those that are to fill it. Raises CheckpointError where it cannot be built with these
    arguments, or would have far more numbers than these.
    """
    limits.require_depth(changes.get("depth"), tensors, name)
    most = max(_BUILT, 2 * len(tensors))
    too_many = (
        f"{name} describes a model that its file cannot fill: it has more than {most:,} tensors, and the file"
        f" {len(tensors):,}{_asked(changes)}. Correct its config.json or architecture."
    )
    unbuilt = (
        f"{name} describes a model that cannot be built: {{said}}. Check its config.json or architecture."
    )
    with refusing(unbuilt, *_UNBUILT), torch.device("meta"), _Counted(most, too_many):
        model = build(**changes).float()  # whatever torch's default is
    wanted, given = (sum(one.numel() for one in those.values()) for those in (model.state_dict(), tensors))
    if wanted > 2 * given + _RESAMPLED_BY_TIMM:
        raise CheckpointError(
            f"{name} does not fit its config.json or architecture:"
            f" {_first(_misfits(model.state_dict(), tensors))}. That asks for {wanted:,}"
            f" parameters{_asked(changes)}, and the file has {given:,}. Name the architecture that it was"
            " trained with."
        )
    # switched off in this environment, for exports; capturing and speed both rest on it
    if not use_fused_attn():
        for module in model.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = True
    return model


def fill(model: nn.Module, tensors: Mapping[str, Tensor], name: str, what: str) -> None:
    """Gives an `empty` model memory and loads tensors in timm's layout strictly, in place.

    CheckpointError, before it takes memory, with the first three keys missing, left over or of other shape.
    """
    misfits = _misfits(model.state_dict(), tensors)
    if misfits:
        raise CheckpointError(
            f"{name} does not fit {what}: {_first(misfits)}. Name the architecture that it was trained with,"
            " or leave it out so that it is read from the tensors."
        )
    tables = sum(buffer.nbytes for buffer in model.buffers())
    what, advice = f"What {name} looks up about its positions", "Choose a smaller input in its config.json."
    memory.require(tables, torch.device("cpu"), what, advice)
    model.to_empty(device="cpu")
    for module in model.modules():
        # timm's name for it: tables that are computed, not trained
        if hasattr(module, "init_non_persistent_buffers"):
            module.init_non_persistent_buffers()
    model.load_state_dict(dict(tensors), strict=True)


def _asked(changes: Mapping[str, Any]) -> str:
    """The numbers among a model's arguments, in brackets."""
    numbers = int | float | list | tuple
    given = [f"{key} {value}" for key, value in changes.items() if isinstance(value, numbers)]
    return f" ({', '.join(given)[:200]})" if given else ""


def converted(
    tensors: Mapping[str, Tensor], model: nn.Module, architecture: str
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors after timm's renaming for a family (CLIP's, DINOv2's, EVA's, …), and what it resampled."""
    module = sys.modules[timm.models.model_entrypoint(architecture.partition(".")[0]).__module__]
    adapts = timm_module(architecture) in ("vision_transformer", "deit")
    options = {"adapt_layer_scale": True} if adapts else {}
    before = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    try:
        after = module.checkpoint_filter_fn(dict(tensors), model, **options)
    except (AttributeError, RuntimeError, KeyError, IndexError, ValueError, ZeroDivisionError):
        return dict(tensors), []  # a file of another family; the strict check will name its keys
    # A tensor that was only renamed or transposed still lies in the file's memory; a resampled one does not.
    resized = {key: tensor.untyped_storage() for key, tensor in after.items() if key.endswith(_RESIZED)}
    return after, [key for key, storage in resized.items() if storage.data_ptr() not in before]


def own_size(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """How a model must differ to take a file of its architecture: classes, image size, pooling.

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
    left = [f"{name} {_shape(tensor)}" for name, tensor in given.items() if name not in expected]
    return found + [f"{one} of the file is not part of the model" for one in left]


def _first(misfits: list[str]) -> str:
    """The first three, and how many more there are."""
    return "; ".join(misfits[:3]) + (f" and {len(misfits) - 3} more" if len(misfits) > 3 else "")


def _shape(tensor: Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"
