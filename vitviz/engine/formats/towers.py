"""Vision towers of transformers' CLIP and SigLIP, alone, with a classifier, or beside their text tower.

CLIP's projection becomes timm's classifier with a bias of zeros, as in timm's own CLIP models. A classifier
reads the mean of the patches: CLIP's without, SigLIP's with the final norm before it. SigLIP's pooling head
is timm's `attn_pool`.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_KINDS = ("clip", "siglip")
_RENAMED = [
    (r"^vision_model\.", ""),
    (r"^embeddings\.class_embedding$", "cls_token"),
    (r"^embeddings\.patch_embedding\.", "patch_embed.proj."),
    (r"^embeddings\.position_embedding\.weight$", "pos_embed"),
    (r"^pre_layrnorm\.", "norm_pre."),
    (r"^post_layernorm\.", "norm."),
    (r"^encoder\.layers\.", "blocks."),
    (r"\.self_attn\.out_proj\.", ".attn.proj."),
    (r"\.self_attn\.([qkv])_proj\.", r".attn.\1."),
    (r"\.layer_norm([12])\.", r".norm\1."),
    (r"^head\.probe$", "attn_pool.latent"),
    (r"^head\.attention\.out_proj\.", "attn_pool.proj."),
    (r"^head\.attention\.in_proj_", "attn_pool.in_proj."),
    (r"^head\.layernorm\.", "attn_pool.norm."),
    (r"^head\.mlp\.", "attn_pool.mlp."),
    (r"^(visual_projection|classifier)\.", "head."),
]
_OTHER_TOWER = re.compile(r"^(text_model|text_projection|logit_(scale|bias))\b|(^|\.)position_ids$")
_DEFAULTS = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224,
    "num_channels": 3,
}  # fmt: skip
_OWN = {  # defaults of the two vision configs that differ
    "clip": {"patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    "siglip": {"patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}


def kind_of(model_type: str) -> str | None:
    """Return "clip" or "siglip" for transformers' model types of these models; None for others.

    >>> kind_of("siglip_vision_model"), kind_of("clip"), kind_of("vit")
    ('siglip', 'clip', None)
    """
    kind = model_type.removesuffix("_vision_model")
    return kind if kind in _KINDS else None


def vision_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the vision tower with all defaults; other configs unchanged."""
    kind = kind_of(str(config["model_type"]))
    if kind is None:
        return config
    return {**_DEFAULTS, **_OWN[kind], **config, **(config.get("vision_config") or {}), "model_type": kind}


def to_timm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the vision tower's tensors under timm's names, with queries, keys and values still apart."""
    renamed = {}
    for name, value in tensors.items():
        if _OTHER_TOWER.search(name):
            continue
        for pattern, replacement in _RENAMED:
            name = re.sub(pattern, replacement, name)
        renamed[name] = value
    for name in ("cls_token", "pos_embed"):
        if name in renamed:
            renamed[name] = renamed[name].reshape(1, -1, renamed[name].shape[-1])
    for kind in ("weight", "bias"):
        if (joined := renamed.pop(f"attn_pool.in_proj.{kind}", None)) is not None:
            query, others = joined.tensor_split([len(joined) // 3])
            renamed |= {f"attn_pool.q.{kind}": query, f"attn_pool.kv.{kind}": others}
    if "head.weight" in renamed and "head.bias" not in renamed:
        renamed["head.bias"] = torch.zeros(len(renamed["head.weight"]))
    elif "head.weight" in renamed:  # a classifier, which reads neither CLIP's last norm nor SigLIP's pooling
        unread = r"norm\." if "cls_token" in renamed else r"attn_pool\."
        renamed = {name: value for name, value in renamed.items() if not re.match(unread, name)}
    return renamed


def model_arguments(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return timm's arguments for tensors of `to_timm`: class token, norms and pooling."""
    if "cls_token" in tensors:
        averaged = "norm.weight" not in tensors
        pool = {"global_pool": "avg" if averaged else "token", "fc_norm": False, "final_norm": not averaged}
        return {"pre_norm": True, **pool}
    pooled = "attn_pool.latent" in tensors
    return {"class_token": False, "global_pool": "map" if pooled else "avg", "fc_norm": False}
