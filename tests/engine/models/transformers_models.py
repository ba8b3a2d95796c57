"""Small random models of transformers' image classifiers."""

from __future__ import annotations

import pytest

hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")


SIZES = {"hidden_size": 48, "num_attention_heads": 4, "image_size": 28, "patch_size": 7}


def transformers_models():
    common = {**SIZES, "num_hidden_layers": 2, "num_labels": 5}
    labels = {
        "id2label": {i: f"thing {i}" for i in range(5)},
        "label2id": {f"thing {i}": i for i in range(5)},
    }
    vit = {**common, "intermediate_size": 96, **labels}
    dino = {**common, "mlp_ratio": 2, **labels}
    return {
        "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**vit)),
        "vit without bias, tanh GELU": lambda: hf.ViTForImageClassification(
            hf.ViTConfig(**vit, qkv_bias=False, hidden_act="gelu_new")
        ),
        "deit": lambda: hf.DeiTForImageClassification(hf.DeiTConfig(**vit)),
        "deit with teacher": lambda: hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**vit)),
        "dinov2": lambda: hf.Dinov2ForImageClassification(hf.Dinov2Config(**dino)),
        "dinov2 gated": lambda: hf.Dinov2ForImageClassification(hf.Dinov2Config(**dino, use_swiglu_ffn=True)),
        "dinov2 with registers": lambda: hf.Dinov2WithRegistersForImageClassification(
            hf.Dinov2WithRegistersConfig(**dino, num_register_tokens=3)
        ),
    }
