"""Folders of Hugging Face transformers: ViT, DeiT and DINOv2 (with and without registers).

The same networks as timm's under other names, with queries, keys and values apart. Two read-outs that timm does not
have are built here: DINOv2's classifier sees the class token and the mean of the patches side by side, and a DeiT
classifier without a teacher ignores the distillation token. The oracle of the tests is transformers itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from timm.layers import LayerNorm, SwiGLUPacked
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vitviz.engine.families import transformers_refusal
from vitviz.engine.formats.preprocessor import pair
from vitviz.errors import CheckpointError, UnsupportedModel

_TYPES = ("vit", "deit", "dinov2", "dinov2_with_registers")
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
# Names on disk (first) and in the library's own modules since version 5 (second) -> timm's.
_RENAMED = [
    (r"^(vit|deit|dinov2|dinov2_with_registers)\.", ""),
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^(encoder\.)?layers?\.(\d+)\.", r"blocks.\2."),
    (r"\.attention\.(attention\.query|q_proj)\.", ".attn.q."),
    (r"\.attention\.(attention\.key|k_proj)\.", ".attn.k."),
    (r"\.attention\.(attention\.value|v_proj)\.", ".attn.v."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".attn.proj."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.(intermediate\.dense|mlp\.weights_in)\.", ".mlp.fc1."),
    (r"(?<=\d)\.(output\.dense|mlp\.weights_out|mlp\.down_proj)\.", ".mlp.fc2."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
    (r"^layernorm\.", "norm."),
    (r"^(cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
]
_JOINED = {"attn.qkv": ("attn.q", "attn.k", "attn.v"), "mlp.fc1": ("mlp.gate_proj", "mlp.up_proj")}
# The pooler is a layer that no classifier here reads; the mask token and the pixel decoder are for training.
_LEFT_OUT = re.compile(r"^((vit|deit|dinov2|dinov2_with_registers)\.)?(pooler\.|embeddings\.mask_token$|decoder\.)")


class ClassAndMeanReadout(VisionTransformer):
    """Its classifier reads [class token, mean of the patches], as in transformers' DINOv2."""

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        return torch.cat([x[:, 0], x[:, self.num_prefix_tokens :].mean(dim=1)], dim=-1)


class ClassOnlyReadout(VisionTransformerDistilled):
    """Has a distillation token, but its classifier reads the class token alone."""

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.head_drop(x[:, 0])
        return x if pre_logits else self.head(x)


def is_transformers(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is one of transformers' (timm's has an `architecture` instead)."""
    return "model_type" in config and "architecture" not in config


def builder(config: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str) -> tuple[Callable[[], nn.Module], dict[str, Any]]:
    """What builds the empty model, and the arguments that describe it (timm's names; sizes in pixels).

    `tensors` are those of `to_timm`. Raises UnsupportedModel or CheckpointError for another type or activation.
    """
    kind = str(config["model_type"])
    if kind not in _TYPES:
        reason = transformers_refusal(kind)
        if reason:
            raise UnsupportedModel(f"{name}: {kind} {reason}. Choose a plain Vision Transformer.")
        raise CheckpointError(
            f"{name} is of transformers' type {kind!r}; {', '.join(_TYPES)} are read. Convert it to timm's layout, or choose another."
        )
    activation = str(config.get("hidden_act", "gelu"))
    if activation not in _ACTIVATIONS:
        raise CheckpointError(f"{name} uses the activation {activation!r}; {', '.join(_ACTIVATIONS)} are read.")
    hidden = tensors.get("blocks.0.mlp.fc1.weight")
    if hidden is None:
        raise CheckpointError(f"{name} does not hold the weights of a {kind} model: its file begins with {', '.join(list(tensors)[:3])}.")
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
    if not kind.startswith("dinov2"):
        model_class = (
            VisionTransformer if kind == "vit" else VisionTransformerDistilled if "head_dist.weight" in tensors else ClassOnlyReadout
        )
        return partial(_built, model_class, args), args
    args |= {"init_values": 1e-5, "reg_tokens": config.get("num_register_tokens", 0) if "reg_token" in tensors else 0}
    args["no_embed_class"] = args["reg_tokens"] > 0
    if config.get("use_swiglu_ffn"):
        args |= {"mlp_layer": SwiGLUPacked, "act_layer": "silu"}
    return partial(_built, ClassAndMeanReadout if args["num_classes"] else VisionTransformer, args), args


def _built(model_class: type[VisionTransformer], args: dict[str, Any]) -> nn.Module:
    classes = args["num_classes"]
    model = model_class(**args)
    if model_class is ClassAndMeanReadout:
        model.head = nn.Linear(2 * args["embed_dim"], classes)
    if model_class is ClassOnlyReadout:
        model.head_dist = nn.Identity()
    return model


def to_timm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in timm's layout; a name that is not known stays as it is, and the strict check will tell it."""
    renamed = {}
    for name, value in tensors.items():
        if _LEFT_OUT.match(name):
            continue
        for pattern, replacement in _RENAMED:
            name = re.sub(pattern, replacement, name)
        renamed[name] = value
    for joined, parts in _JOINED.items():
        for name in [name for name in renamed if f".{parts[0]}." in name]:
            names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
            if all(part in renamed for part in names):
                renamed[name.replace(f".{parts[0]}.", f".{joined}.")] = torch.cat([renamed.pop(part) for part in names])
    if "reg_token" in renamed and "cls_token" in renamed and "pos_embed" in renamed:
        # Registers have no position; timm keeps the class token's position inside of the token itself.
        renamed["cls_token"] = renamed["cls_token"] + renamed["pos_embed"][:, :1]
        renamed["pos_embed"] = renamed["pos_embed"][:, 1:]
    return renamed


def labels(config: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """The class names in order; none where they are only numbered, or are not as many as the classes."""
    named = {int(index): str(label) for index, label in (config.get("id2label") or {}).items()}
    ordered = tuple(named.get(index, f"class {index}") for index in range(len(named)))
    numbered = all(re.fullmatch(r"LABEL_\d+", label) for label in ordered)
    return () if numbered or len(ordered) != classes else ordered
