"""Small configurations of MAE, BEiT and DINOv3 in transformers."""

from __future__ import annotations

import pytest

hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")


SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 28,
    "patch_size": 7,
}


DECODER = {
    "decoder_num_hidden_layers": 1,
    "decoder_hidden_size": 32,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 32,
}


BIASES = (
    "use_absolute_position_embeddings",
    "use_relative_position_bias",
    "use_shared_relative_position_bias",
)


def mae(**changes):
    return hf.ViTMAEConfig(**{**SIZES, **DECODER, "mask_ratio": 0.0, **changes})


def beit(**changes):
    return hf.BeitConfig(**{**SIZES, "num_labels": 5, "use_mask_token": True, "vocab_size": 11, **changes})


def dinov3(**changes):
    return hf.DINOv3ViTConfig(**{**SIZES, **changes})
