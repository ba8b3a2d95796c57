"""Weights that do not fit the named architecture: rejected by name, or kept as they are."""

import pytest
import timm
import torch

from tests.engine.small_models import assert_same_logits, perturbed, save_model, small_vit
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.errors import CheckpointError


def test_misfit_error_names_first_three_tensors_with_shapes(tmp_path):
    path = save_model(small_vit(), tmp_path / "some.safetensors")
    with pytest.raises(CheckpointError) as error:
        load(find_checkpoint(str(path), architecture="deit_small_patch16_224"))
    text = str(error.value)
    assert (
        "cls_token is (1, 1, 128) in the file and (1, 1, 384) in the model" in text
        and text.count(" in the model") == 3
    )
    assert "more" in text and "architecture" in text


def test_patch_embedding_is_not_resampled_for_named_architecture(tmp_path):
    path = save_model(
        timm.create_model("deit_tiny_patch16_224", patch_size=8, img_size=112), tmp_path / "a.safetensors"
    )
    with pytest.raises(
        CheckpointError,
        match=r"patch_embed\.proj\.weight is \(192, 3, 8, 8\) in the file and \(192, 3, 16, 16\)",
    ):
        load(find_checkpoint(str(path), architecture="deit_tiny_patch16_224"))


def test_fine_tuned_file_keeps_its_classes_and_size(tmp_path):
    model = perturbed(timm.create_model("deit_tiny_patch16_224", num_classes=10, img_size=64))
    path = save_model(model, tmp_path / "pets.safetensors")
    loaded = load(find_checkpoint(str(path), architecture="deit_tiny_patch16_224"))
    assert_same_logits(loaded, model, size=64, tolerance=0)
    assert torch.equal(loaded.model.pos_embed, model.pos_embed) and loaded.preprocessing.size == (64, 64)
    assert (
        loaded.preprocessing.mean == (0.485, 0.456, 0.406)
        and "classes 10" in loaded.checkpoint.note
        and loaded.labels == ()
    )
    # fine-tuning may have used another normalisation
    assert [one.name for one in loaded.checkpoint.assumed] == ["normalisation", "crop_pct", "interpolation"]


def test_fine_tuned_file_keeps_its_pooling(tmp_path):
    model = perturbed(timm.create_model("vit_tiny_patch16_224", num_classes=10, global_pool="avg", depth=12))
    path = save_model(model, tmp_path / "pets.safetensors")
    loaded = load(find_checkpoint(str(path), architecture="vit_tiny_patch16_224"))
    assert_same_logits(loaded, model, size=224, tolerance=0)
    assert loaded.model.global_pool == "avg" and "pooling avg" in loaded.checkpoint.note


def test_single_channel_file_is_rejected(tmp_path):
    path = save_model(small_vit(in_chans=1), tmp_path / "digits.safetensors")
    with pytest.raises(CheckpointError, match="1 channel"):
        load(find_checkpoint(str(path)))
