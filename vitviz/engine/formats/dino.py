"""Files of DINOv2 and DINOv3 as their own repositories publish and save them."""

import re
from collections.abc import Mapping

from torch import Tensor

_DINOV2 = {(384, 12): "small", (768, 12): "base", (1024, 24): "large", (1536, 40): "giant"}
# Width and depth of DINOv3's published models (its table 2) -> their names in timm.
DINOV3 = {
    (192, 12): "tiny", (384, 12): "small", (768, 12): "base", (1024, 24): "large", (1280, 32): "huge_plus",
    (4096, 40): "7b",
}  # fmt: skip


def published_name(tensors: Mapping[str, Tensor]) -> str | None:
    """Return timm's name of the published model whose tensors have these names and sizes; None for others."""
    patches, token = tensors.get("patch_embed.proj.weight"), tensors.get("mask_token")
    if patches is None or patches.ndim != 4 or token is None or token.ndim != 2:  # MAE's token has 3 axes
        return None
    depth = sum(bool(re.fullmatch(r"blocks\.\d+\.norm1\.weight", name)) for name in tensors)
    size, patch = (len(patches), depth), patches.shape[-1]
    if "storage_tokens" in tensors and patch == 16 and size in DINOV3:
        plus = "_plus" if "blocks.0.mlp.w1.weight" in tensors and DINOV3[size] == "small" else ""
        biased = "_qkvb" if "blocks.0.attn.qkv.bias" in tensors else ""
        return f"vit_{DINOV3[size]}{plus}_patch16_dinov3{biased}"
    positions = tensors.get("pos_embed")
    if patch == 14 and size in _DINOV2 and positions is not None and positions.shape[1] == 1 + 37 * 37:
        registers = "_reg4" if "register_tokens" in tensors else ""
        return f"vit_{_DINOV2[size]}_patch14{registers}_dinov2"
    return None


def to_timm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return DINOv2's tensors in timm's layout; tensors under timm's names stay.

    Registers have no position embedding; timm adds the class token's to the token itself.
    """
    parts = {"mlp.w12.": "mlp.fc1.", "mlp.w3.": "mlp.fc2.", "register_tokens": "reg_token"}
    renamed = {}
    for name, value in tensors.items():
        for theirs, ours in parts.items():
            name = name.replace(theirs, ours)
        renamed[name] = value
    if "register_tokens" in tensors:
        renamed["cls_token"] = renamed["cls_token"] + renamed["pos_embed"][:, :1]
        renamed["pos_embed"] = renamed["pos_embed"][:, 1:]
    return renamed
