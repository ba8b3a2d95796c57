"""LoRA adapters as PEFT saves them, against weights merged in float64."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from tests.engine.small_models import logits, perturbed, save_model, small_vit
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.errors import CheckpointError

CONFIG = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "model_args": {
    "img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 2}}  # fmt: skip
TARGETS = ("blocks.0.attn.qkv", "blocks.1.mlp.fc2", "patch_embed.proj")
SETTINGS = {
    "plain": ({"lora_alpha": 3}, lambda target, rank: 3 / rank),
    "rank-stabilised": ({"lora_alpha": 3, "use_rslora": True}, lambda target, rank: 3 / math.sqrt(rank)),
    "own alpha": ({"lora_alpha": 3, "alpha_pattern": {"qkv": 8}},
                  lambda target, rank: (8 if target.endswith("qkv") else 3) / rank),
}  # fmt: skip


def save_and_load_adapter(folder, tensors, **config):
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config}))
    return load(find_checkpoint(str(folder)))


def save_base(folder):
    folder.mkdir()
    model = small_vit()
    save_model(model, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return model


@pytest.mark.parametrize("kind", SETTINGS)
def test_adapter_is_merged_into_base_weights(kind, tmp_path):
    model = save_base(tmp_path / "base")
    settings, scale = SETTINGS[kind]
    tensors, state = {}, model.double().state_dict()
    for rank, target in enumerate(TARGETS, start=2):
        weight = state[f"{target}.weight"]
        a, b = torch.randn(rank, *weight.shape[1:]), torch.randn(len(weight), rank) / 10
        conv = (1,) * (weight.ndim - 2)
        tensors |= {
            f"base_model.model.{target}.lora_A.weight": a,
            f"base_model.model.{target}.lora_B.weight": b.reshape(len(weight), rank, *conv).contiguous(),
        }
        weight += scale(target, rank) * torch.einsum("or,r...->o...", b.double(), a.double())
    loaded = save_and_load_adapter(
        tmp_path / "adapter", tensors, base_model_name_or_path="../base", **settings
    )
    with torch.no_grad():
        pixels = torch.randn(2, 3, 32, 32)
        torch.testing.assert_close(loaded.model(pixels), model(pixels.double()).float(), atol=1e-5, rtol=1e-5)
    assert "LoRA adapter, merged into" in loaded.checkpoint.note


def test_transformers_adapter_replaces_classifier(tmp_path):
    hf = pytest.importorskip("transformers")
    config = hf.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96, image_size=32,
        patch_size=8,
        id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1},
    )  # fmt: skip
    model = perturbed(hf.ViTForImageClassification(config))
    model.save_pretrained(tmp_path / "base")
    module = next(name for name, _ in model.named_modules() if name.endswith(("q_proj", "attention.query")))
    a, b = torch.randn(2, 64), torch.randn(64, 2) / 10
    head = {"weight": torch.randn(2, 64), "bias": torch.randn(2)}
    tensors = {f"base_model.model.{module}.lora_A.weight": a, f"base_model.model.{module}.lora_B.weight": b}
    tensors |= {f"base_model.model.classifier.{kind}": value for kind, value in head.items()}
    loaded = save_and_load_adapter(
        tmp_path / "adapter", tensors, base_model_name_or_path=str(tmp_path / "base"), lora_alpha=4
    )
    with torch.no_grad():
        model.get_submodule(module).weight += 2 * b @ a
        model.classifier.load_state_dict(head)
        pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(logits(loaded.model), model(pixels).logits, atol=1e-5, rtol=1e-5)
    assert not loaded.labels  # "cat" and "dog" are labels of the base model


@pytest.mark.parametrize(
    ("config", "part", "says"),
    [
        ({"peft_type": "IA3"}, "ia3_l", "adapter of the type 'IA3'"),
        ({"use_dora": True}, "lora_A.weight", "'DoRA'"),
        ({}, "lora_magnitude_vector", "lora_magnitude_vector"),
        ({"base_model_name_or_path": None}, "lora_A.weight", "does not name its base model"),
        ({"lora_alpha": 1}, "other.lora_A.weight", "which its base model does not have"),
    ],
)
def test_unsupported_adapter_is_rejected_with_reason(config, part, says, tmp_path):
    save_base(tmp_path / "base")
    tensors = {
        f"base_model.model.blocks.0.attn.qkv.{part}": torch.ones(2, 128),
        "x.lora_A.weight": torch.ones(1),
    }
    with pytest.raises(CheckpointError, match=says):
        save_and_load_adapter(
            tmp_path / "adapter", tensors, **{"base_model_name_or_path": "../base", **config}
        )
