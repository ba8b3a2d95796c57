"""Folders of transformers against transformers itself, with random weights."""

import json

import pytest
import torch

import vitviz
from tests.engine.models.transformers_models import SIZES, hf, transformers_models
from tests.engine.small_models import SMALL, perturbed, save_model, small_vit
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.errors import CheckpointError, UnsupportedModel

KINDS = [
    "vit",
    "vit without bias, tanh GELU",
    "deit",
    "deit with teacher",
    "dinov2",
    "dinov2 gated",
    "dinov2 with registers",
]


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_folder_gives_transformers_logits(kind, tmp_path):
    model = perturbed(transformers_models()[kind]())
    model.save_pretrained(tmp_path)
    loaded = load(find_checkpoint(str(tmp_path)))
    pixels = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(pixels), model(pixel_values=pixels).logits, atol=1e-4, rtol=0)
    assert loaded.labels[2] == "thing 2" and "preprocessor_config" in loaded.checkpoint.note


def test_note_lists_only_assumed_preprocessing(tmp_path):
    perturbed(transformers_models()["vit"]()).save_pretrained(tmp_path / "theirs")
    (tmp_path / "timms").mkdir()
    save_model(small_vit(), tmp_path / "timms/model.safetensors")
    args = {name: value for name, value in SMALL.items() if name != "num_classes"}
    about = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "model_args": args}
    (tmp_path / "timms/config.json").write_text(json.dumps(about))
    for folder, assumption in (("theirs", "normalisation"), ("timms", "preprocessing")):
        path = str(tmp_path / folder)
        assert assumption in vitviz.load(path, device="cpu").checkpoint.note
        assert assumption not in vitviz.load(path, mean=0.5, std=0.5, device="cpu").checkpoint.note
        assert assumption in vitviz.load(path, mean=0.5, device="cpu").checkpoint.note, (
            "the deviation is still assumed"
        )


@pytest.mark.parametrize("kind", ["vit", "dinov2 gated"])
def test_pytorch_bin_of_transformers_is_read(kind, tmp_path):
    model = perturbed(transformers_models()[kind]())
    model.config.architectures = None
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    pixels = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(
            load(find_checkpoint(str(tmp_path))).model(pixels), model(pixel_values=pixels).logits, atol=1e-4,
            rtol=0
        )  # fmt: skip


def test_transformers_model_without_classifier_gives_features(tmp_path):
    model = perturbed(
        hf.ViTModel(
            hf.ViTConfig(**SIZES, num_hidden_layers=1, intermediate_size=96, id2label={0: "cat", 1: "dog"})
        )
    )
    model.save_pretrained(tmp_path)
    loaded = load(find_checkpoint(str(tmp_path)))
    pixels = torch.randn(1, 3, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(
            loaded.model.forward_features(pixels), model(pixels).last_hidden_state, atol=1e-4, rtol=0
        )
    assert loaded.model.num_classes == 0 and loaded.labels == ()


PROCESSORS = {  # preprocessor_config.json -> (crop_mode, crop_pct, interpolation)
    "vit": ({"size": {"height": 28, "width": 28}, "resample": 2}, ("squash", 1.0, "bilinear")),
    "deit": (
        {
            "size": {"height": 32, "width": 32},
            "do_center_crop": True,
            "crop_size": {"height": 28, "width": 28},
            "resample": 3,
        },
        ("squash", 28 / 32, "bicubic"),
    ),
    "dinov2": (
        {
            "size": {"shortest_edge": 32},
            "do_center_crop": True,
            "crop_size": {"height": 28, "width": 28},
            "resample": 3,
        },
        ("center", 28 / 32, "bicubic"),
    ),
    "old": ({"size": 28, "resample": 2}, ("squash", 1.0, "bilinear")),
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_transformers_preprocessing_is_read(kind, tmp_path):
    processor, expected = PROCESSORS[kind]
    hf.ViTModel(hf.ViTConfig(**SIZES, num_hidden_layers=1, intermediate_size=96)).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({**processor, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]})
    )
    actual = load(find_checkpoint(str(tmp_path))).preprocessing
    assert (actual.crop_mode, actual.crop_pct, actual.interpolation) == expected
    assert actual.mean == (0.1, 0.2, 0.3) and actual.std == (0.4, 0.5, 0.6) and actual.size == (28, 28)


@pytest.mark.parametrize(
    ("kind", "error", "reason"),
    [("swin", UnsupportedModel, "windows"), ("ijepa", CheckpointError, "dinov2_with_registers")],
)
def test_unsupported_transformers_type_is_rejected(kind, error, reason, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    save_model(small_vit(), tmp_path / "model.safetensors")
    with pytest.raises(error, match=reason):
        load(find_checkpoint(str(tmp_path)))


def test_activation_missing_in_timm_is_rejected(tmp_path):
    config = hf.ViTConfig(
        hidden_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=96,
        image_size=28,
        patch_size=7,
        hidden_act="relu2",
    )
    hf.ViTModel(config).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="relu2.*are supported"):
        load(find_checkpoint(str(tmp_path)))
