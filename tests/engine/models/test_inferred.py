"""Bare files: the architecture is read from the tensors' names and shapes, or asked for."""

import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.engine.small import same, saved, small
from vitviz.engine.models.catalogue import find
from vitviz.engine.models.load import load
from vitviz.errors import CheckpointError

KINDS = {
    "plain": {},
    "cifar": {"patch_size": 4, "depth": 4, "num_classes": 10},
    "no class token": {"class_token": False, "global_pool": "avg", "fc_norm": False},
    "average pooling": {"global_pool": "avg"},
    "attention pooling": {"global_pool": "map"},
    "registers": {"reg_tokens": 4, "no_embed_class": True},
    "registers with positions": {"reg_tokens": 2},
    "LayerScale": {"init_values": 1e-5},
    "no bias": {"qkv_bias": False},
    "query-key norm": {"qk_norm": True, "num_heads": 4},
    "gated": {"mlp_layer": timm.layers.SwiGLUPacked},
    "norm before": {"pre_norm": True},
    "no classifier": {"num_classes": 0},
    "distilled": {"architecture": "deit_tiny_distilled_patch16_224"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_architecture_is_read_from_the_tensors(kind, tmp_path):
    model = small(**KINDS[kind])
    loaded = load(find(str(saved(model, tmp_path / "weights.safetensors"))))
    same(loaded, model)
    assert ("heads" in loaded.checkpoint.note) == (kind != "query-key norm")
    assert "normalisation" in loaded.checkpoint.note


def test_a_file_without_blocks_is_no_vit(tmp_path):
    save_file(
        {"patch_embed.proj.weight": torch.ones(64, 3, 8, 8), "pos_embed": torch.ones(1, 16, 64)},
        tmp_path / "a.safetensors",
    )
    with pytest.raises(CheckpointError, match="not a plain ViT"):
        load(find(str(tmp_path / "a.safetensors")))


def test_width_whose_heads_cannot_be_assumed_is_refused_with_a_config_to_write(tmp_path):
    path = saved(small(embed_dim=96), tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError, match="config.json"):
        load(find(str(path)))


@pytest.mark.parametrize("architecture", ["beit_base_patch16_224", "resnet18"])
def test_tensors_that_are_no_vit_ask_for_the_architecture(architecture, tmp_path):
    args = {"depth": 1} if "beit" in architecture else {}
    path = saved(timm.create_model(architecture, **args), tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError, match="architecture"):
        load(find(str(path)))
