"""transformers' names of tensors as timm's: other words for the same layers, and queries, keys and values
apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from vitviz.errors import CheckpointError

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
# What then still stands alone: biases of a layer whose keys have none, and the one projection of an MLP
# without a gate.
_ALONE = [(r"\.attn\.([qv])\.bias$", r".attn.\1_bias"), (r"\.mlp\.up_proj\.", ".mlp.fc1.")]
# The pooler's layer is one that no classifier here reads; the mask token is for training; the index can be
# computed.
_LEFT_OUT = re.compile(r"^(\w+\.)?(pooler\.dense\.|embeddings\.mask_token$)|relative_position_index$")


def to_timm(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """The tensors in timm's layout; a name that is not known stays as it is, and the strict check will tell
    it.

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
                renamed[name.replace(f".{parts[0]}.", f".{joined}.")] = torch.cat(
                    [renamed.pop(part) for part in names]
                )
    renamed = {_renamed(name, _ALONE): value for name, value in renamed.items()}
    if kind == "dinov3_vit":  # timm builds it from EVA, where LayerScale has BEiT's name
        renamed = {
            re.sub(r"\.ls([12])\.gamma$", r".gamma_\1", name): value for name, value in renamed.items()
        }
    if "reg_token" in renamed and "cls_token" in renamed and "pos_embed" in renamed:
        # Registers have no position; timm keeps the class token's position inside of the token itself.
        renamed["cls_token"] = renamed["cls_token"] + renamed["pos_embed"][:, :1]
        renamed["pos_embed"] = renamed["pos_embed"][:, 1:]
    return renamed


def _renamed(name: str, rules: list[tuple[str, str]]) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name
