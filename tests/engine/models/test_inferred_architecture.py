"""Bare weights files: the architecture is inferred from names and shapes of tensors, or requested."""

import re

import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.engine.small_models import assert_same_logits, save_model, small_vit
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import find_checkpoint
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
    "gated": {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": "silu"},
    "norm before": {"pre_norm": True},
    "no classifier": {"num_classes": 0},
    "distilled": {"architecture": "deit_tiny_distilled_patch16_224"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_architecture_is_inferred_from_tensors(kind, tmp_path):
    model = small_vit(**KINDS[kind])
    loaded = load(find_checkpoint(str(save_model(model, tmp_path / "weights.safetensors"))))
    assert_same_logits(loaded, model)
    assert ("heads" in loaded.checkpoint.note) == (kind != "query-key norm")
    assert "normalisation" in [assumption.name for assumption in loaded.checkpoint.assumed]


def test_file_without_blocks_is_rejected(tmp_path):
    save_file(
        {"patch_embed.proj.weight": torch.ones(64, 3, 8, 8), "pos_embed": torch.ones(1, 16, 64)},
        tmp_path / "a.safetensors",
    )
    with pytest.raises(CheckpointError, match="not a plain ViT"):
        load(find_checkpoint(str(tmp_path / "a.safetensors")))


@pytest.mark.parametrize("width, heads", [(96, (3, 6, 2, 1)), (144, (9, 3)), (60, (1, 2, 3, 4, 5, 6))])
def test_possible_head_counts_are_listed_if_64_does_not_divide_width(width, heads, tmp_path):
    path = save_model(small_vit(embed_dim=width, num_heads=heads[0]), tmp_path / "weights.safetensors")
    loaded = load(find_checkpoint(str(path)))
    assert loaded.model.blocks[0].attn.num_heads == heads[0]
    (assumption,) = [count for count in loaded.checkpoint.assumed if count.name == "heads"]
    assert assumption.taken == f"heads={heads[0]}" and assumption.choices == tuple(
        f"heads={count}" for count in heads
    )
    assert f"{heads[0]} of {width // heads[0]} dimensions were assumed" in loaded.checkpoint.note


def test_unknown_tensors_require_architecture(tmp_path):
    path = save_model(timm.create_model("beit_base_patch16_224", depth=1), tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError, match="architecture"):
        load(find_checkpoint(str(path)))


def test_older_layer_scale_names_are_read(tmp_path):
    model, path = small_vit(init_values=1e-5), tmp_path / "weights.safetensors"
    older = {
        re.sub(r"ls(\d)\.gamma", r"gamma_\1", name): tensor for name, tensor in model.state_dict().items()
    }
    assert "blocks.1.gamma_2" in older
    save_file(older, path)
    assert_same_logits(load(find_checkpoint(str(path))), model)


def test_distilled_file_fixes_pooling_but_not_normalisation(tmp_path):
    for kind, read in (("distilled", True), ("plain", False)):
        loaded = load(
            find_checkpoint(str(save_model(small_vit(**KINDS[kind]), tmp_path / f"{kind[0]}.safetensors")))
        )
        assumptions = [assumption.name for assumption in loaded.checkpoint.assumed]
        assert "normalisation" in assumptions and ("pool" not in assumptions) == read, kind


@pytest.mark.parametrize("size, crop", [(32, 1.0), (120, 1.0), (128, 0.9)])
def test_small_images_are_not_cropped_by_default(size, crop, tmp_path):
    loaded = load(
        find_checkpoint(str(save_model(small_vit(img_size=size), tmp_path / "weights.safetensors")))
    )
    assert loaded.preprocessing.crop_pct == crop
