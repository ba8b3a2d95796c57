"""Folders of Hugging Face transformers: ViT, DeiT, MAE, BEiT, DINOv2 (with and without registers) and DINOv3.

The same networks as timm's under other names, with queries, keys and values apart. What timm cannot compute
exactly as transformers does is refused, never loaded nearly. The oracle of the tests is transformers itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from timm.layers import LayerNorm
from torch import Tensor, nn

from vitviz.engine.models.families import transformers_refusal
from vitviz.engine.models.formats import huggingface_kin as kin
from vitviz.engine.models.formats import limits
from vitviz.engine.models.formats.huggingface_names import to_timm
from vitviz.engine.models.formats.preprocessor import pair
from vitviz.errors import CheckpointError, UnsupportedModel

_BUILDERS = {
    "vit": kin.vit,
    "deit": kin.deit,
    "vit_mae": kin.mae,
    "beit": kin.beit,
    "dinov2": kin.dinov2,
    "dinov2_with_registers": kin.dinov2,
    "dinov3_vit": kin.dinov3,
}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def is_transformers(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is one of transformers' (timm's has an `architecture` instead)."""
    return "model_type" in config and "architecture" not in config


def builder(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str
) -> tuple[Callable[[], nn.Module], str]:
    """What builds the empty model, and timm's name for the architecture nearest to it.

    `tensors` are those of `to_timm`. Raises UnsupportedModel or CheckpointError for another type or
    activation, and for a config that asks for what timm's model of this type does not do.
    """
    kind = str(config["model_type"])
    if kind not in _BUILDERS:
        reason = transformers_refusal(kind)
        if reason:
            raise UnsupportedModel(f"{name}: {kind} {reason}. Choose a plain Vision Transformer.")
        raise CheckpointError(
            f"{name} is of transformers' type {kind!r}; {', '.join(_BUILDERS)} are read. Convert it to timm's"
            " layout, or choose another."
        )
    activation = str(config.get("hidden_act", "gelu"))
    if activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{name} uses the activation {activation!r}; {', '.join(_ACTIVATIONS)} are read."
        )
    hidden = tensors.get("blocks.0.mlp.fc1.weight")
    if hidden is None:
        raise CheckpointError(
            f"{name} does not hold the weights of a {kind} model: its file begins with"
            f" {', '.join(list(tensors)[:3])}."
        )
    limits.require_depth(config["num_hidden_layers"], tensors, name)
    width = config["hidden_size"]
    patch = pair(config.get("patch_size", 16))
    args: dict[str, Any] = {
        "img_size": pair(config.get("image_size", 224)),
        "patch_size": patch[0] if patch[0] == patch[1] else patch,
        "in_chans": config.get("num_channels", 3),
        "embed_dim": width,
        "depth": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "mlp_ratio": (len(hidden) + 0.5) / width,  # timm takes the floor of ratio * width
        "qkv_bias": bool(config.get("qkv_bias", True)),
        "norm_layer": partial(LayerNorm, eps=config.get("layer_norm_eps", 1e-12)),
        "act_layer": _ACTIVATIONS[activation],
        "num_classes": len(tensors["head.weight"]) if "head.weight" in tensors else 0,
    }
    return _BUILDERS[kind](args, config, tensors, name)


def labels(config: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """The class names in order; none where they are only numbered, or are not as many as the classes."""
    given = config.get("id2label") or {}
    named = {int(index): str(label) for index, label in given.items() if label is not None}
    ordered = tuple(named.get(index, f"class {index}") for index in range(len(given)))
    numbered = all(re.fullmatch(r"(LABEL_|class )\d+", label) for label in ordered)
    return () if numbered or len(ordered) != classes else ordered


__all__ = ["builder", "is_transformers", "labels", "to_timm"]
