"""Architectures, ablated parts and tolerances shared by the tests of forward passes."""

from __future__ import annotations

# Covered: plain, distilled, LayerScale, registers, no class token, CLIP's norm before the layers,
# relative bias per layer and shared, rotary embedding, rotary with registers, query-key norm, pooling, hybrid
# stem.
ARCHITECTURES = [
    "vit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "deit3_small_patch16_224",
    "vit_small_patch14_reg4_dinov2",
    "vit_small_patch16_dinov3",
    "vit_base_patch32_clip_224",
    "beit_base_patch16_224",
    "beitv2_base_patch16_224",
    "vit_relpos_small_patch16_224",
    "vit_srelpos_small_patch16_224",
    "eva02_tiny_patch14_224",
    "vit_small_patch16_rope_224",
    "vit_base_patch16_siglip_224",
    "vit_tiny_r_s16_p8_224",
]


QUICK = ("vit_tiny_patch16_224", "vit_srelpos_small_patch16_224", "eva02_tiny_patch14_224")


HEADS, MLPS = [(0, 1), (2, 0), (2, 2)], [1]


TOLERANCES = {"rtol": 1e-5, "atol": 1e-5}
