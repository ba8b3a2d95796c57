"""Folders of Hugging Face transformers: ViT, DeiT, MAE, BEiT, DINOv2 (with and without registers) and DINOv3.

The same networks as timm's under other names, with queries, keys and values apart. What timm cannot compute
exactly as transformers does is refused, never loaded nearly. The oracle of the tests is transformers itself.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from timm.layers import LayerNorm
from torch import Tensor, nn

from vitviz.engine.reading import huggingface_kin as kin
from vitviz.engine.reading import limits
from vitviz.engine.reading.families import transformers_refusal
from vitviz.errors import CheckpointError, UnsupportedModel

# Names on disk (first) and in the library's own modules since version 5 (second) -> timm's.
_RENAMED = [
    (r"^(vit|deit|beit|dinov2|dinov2_with_registers)\.", ""),
    (r"^model\.(?=layer\.)", ""),
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.(projection\.)?", "patch_embed.proj."),
    (r"^(encoder\.relative_position_bias|shared_position_bias)\.", "rel_pos_bias."),
    (r"^(encoder\.)?layers?\.(\d+)\.", r"blocks.\2."),
    (r"(?<=\d)\.(attention\.attention\.)?relative_position_bias\.", ".attn."),
    (r"\.attention\.(attention\.query|q_proj)\.", ".attn.q."),
    (r"\.attention\.(attention\.key|k_proj)\.", ".attn.k."),
    (r"\.attention\.(attention\.value|v_proj)\.", ".attn.v."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".attn.proj."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.(intermediate\.dense|mlp\.weights_in)\.", ".mlp.fc1."),
    (r"(?<=\d)\.(output\.dense|mlp\.weights_out|mlp\.down_proj)\.", ".mlp.fc2."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
    (r"\.lambda_([12])$", r".gamma_\1"),
    (r"^layernorm\.", "norm."),
    (r"^pooler\.layernorm\.", "fc_norm."),
    (r"^(cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
]
_JOINED = {"attn.qkv": ("attn.q", "attn.k", "attn.v"), "mlp.fc1": ("mlp.gate_proj", "mlp.up_proj")}
# What still stands alone: biases of a layer whose keys have none, the projection of an MLP without a gate.
_ALONE = [(r"\.attn\.([qv])\.bias$", r".attn.\1_bias"), (r"\.mlp\.up_proj\.", ".mlp.fc1.")]
# No classifier here reads the pooler's layer; the mask token is for training; the index can be computed.
_LEFT_OUT = re.compile(r"^(\w+\.)?(pooler\.dense\.|embeddings\.mask_token$)|relative_position_index$")


def to_timm(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """The tensors in timm's layout; an unknown name stays as it is, and the strict check will tell it.

    `kind` is transformers' model type. Raises CheckpointError where two tensors would be one of timm's.
    """
    theirs: dict[str, str] = {}  # timm's names -> theirs
    renamed = {}
    for name, value in tensors.items():
        if _LEFT_OUT.search(name) or value.numel() == 0:  # no registers are saved as an empty tensor
            continue
        new = _renamed(name, _RENAMED)
        if new in renamed:
            raise CheckpointError(
                f"Its file holds both {theirs[new]} and {name}, where a {kind} model of timm's has one {new}."
                " Choose another checkpoint."
            )
        renamed[new], theirs[new] = value, name
    for joined, parts in _JOINED.items():
        for name in [name for name in renamed if f".{parts[0]}." in name]:
            names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
            if all(part in renamed for part in names):
                whole = torch.cat([renamed.pop(part) for part in names])
                renamed[name.replace(f".{parts[0]}.", f".{joined}.")] = whole
    # timm builds DINOv3 from EVA, where LayerScale has BEiT's name
    rules = [*_ALONE, (r"\.ls([12])\.gamma$", r".gamma_\1")] if kind == "dinov3_vit" else _ALONE
    renamed = {_renamed(name, rules): value for name, value in renamed.items()}
    if "reg_token" in renamed and "cls_token" in renamed and "pos_embed" in renamed:
        # Registers have no position; timm keeps the class token's position inside of the token itself.
        renamed["cls_token"] = renamed["cls_token"] + renamed["pos_embed"][:, :1]
        renamed["pos_embed"] = renamed["pos_embed"][:, 1:]
    return renamed


def _renamed(name: str, rules: list[tuple[str, str]]) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_HALF = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
_SQUASHED = {"crop_mode": "squash", "crop_pct": 1.0}
_META = {**_IMAGENET, "interpolation": "bicubic", "crop_mode": "center", "crop_pct": 224 / 256}
# What the authors' checkpoints of each type were trained with, where no preprocessor_config.json says it.
_DEFAULTS = {
    "vit": {**_HALF, **_SQUASHED, "interpolation": "bilinear"}, "deit": {**_META, "crop_mode": "squash"},
    "vit_mae": _META, "beit": {**_HALF, **_SQUASHED, "interpolation": "bicubic"}, "dinov2": _META,
    "dinov2_with_registers": _META, "dinov3_vit": {**_IMAGENET, **_SQUASHED, "interpolation": "bilinear"},
}  # fmt: skip
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


def data_config(
    config: Mapping[str, Any], preprocessor: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """The preprocessing as a timm data config, and sentences on what was assumed. Its size is the model's."""
    kind = str(config["model_type"])
    size = pair(config.get("image_size", 224))
    data = {**_DEFAULTS[kind], "input_size": (config.get("num_channels", 3), *size)}
    if preprocessor is None:
        return data, [
            "There is no preprocessor_config.json; the normalisation that is usual for this type was assumed."
        ]
    if preprocessor.get("do_normalize", True):
        told = {name: preprocessor.get(f"image_{name}") for name in ("mean", "std")}
        data |= {name: tuple(value) for name, value in told.items() if value}
    else:
        data |= {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    data["interpolation"] = _RESAMPLING.get(preprocessor.get("resample"), data["interpolation"])
    resized, cropped = preprocessor.get("size"), preprocessor.get("crop_size")
    if isinstance(resized, Mapping):
        data["crop_mode"] = "center" if "shortest_edge" in resized else "squash"
        resized = resized.get("shortest_edge") or resized.get("height")
    if isinstance(cropped, Mapping):
        cropped = cropped.get("height")
    crops = bool(preprocessor.get("do_center_crop", cropped is not None)) and resized and cropped
    data["crop_pct"] = min(1.0, cropped / resized) if crops else 1.0
    seen = cropped if crops else resized
    if seen and seen != size[0]:
        return data, [
            f"Shown at {size[0]} x {size[1]} px, the size in its config.json; its own preprocessing asks for"
            f" {seen} px."
        ]
    return data, []


def pair(size: Any) -> tuple[int, int]:
    """Height and width of a size that is given as one number or two."""
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)


# of MAE the encoder, which then sees all patches: masking is for training
_BUILDERS = {
    "vit": kin.vit, "deit": kin.deit, "vit_mae": kin.vit, "beit": kin.beit, "dinov2": kin.dinov2,
    "dinov2_with_registers": kin.dinov2, "dinov3_vit": kin.dinov3,
}  # fmt: skip
_ACTIVATIONS = {
    "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu", "relu": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip


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
    activation, known = str(config.get("hidden_act", "gelu")), ", ".join(_ACTIVATIONS)
    if activation not in _ACTIVATIONS:
        raise CheckpointError(f"{name} uses the activation {activation!r}; {known} are read.")
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
        "img_size": pair(config.get("image_size", 224)), "in_chans": config.get("num_channels", 3),
        "patch_size": patch[0] if patch[0] == patch[1] else patch, "embed_dim": width,
        "depth": config["num_hidden_layers"], "num_heads": config["num_attention_heads"],
        "mlp_ratio": (len(hidden) + 0.5) / width,  # timm takes the floor of ratio * width
        "qkv_bias": bool(config.get("qkv_bias", True)), "act_layer": _ACTIVATIONS[activation],
        "norm_layer": partial(LayerNorm, eps=config.get("layer_norm_eps", 1e-12)),
        "num_classes": len(tensors["head.weight"]) if "head.weight" in tensors else 0,
    }  # fmt: skip
    return _BUILDERS[kind](args, config, tensors, name)


def labels(config: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """The class names in order; none where they are only numbered, or are not as many as the classes."""
    given = config.get("id2label") or {}
    named = {int(index): str(label) for index, label in given.items() if label is not None}
    ordered = tuple(named.get(index, f"class {index}") for index in range(len(given)))
    numbered = all(re.fullmatch(r"(LABEL_|class )\d+", label) for label in ordered)
    return () if numbered or len(ordered) != classes else ordered
