"""Preprocessing of timm's folders and modules: fields of pretrained_cfg against timm's transform."""

import json

import pytest
import timm
import torch
from timm.data import create_transform, resolve_model_data_config

import vitviz
from tests.engine.random_inspectors import SHAPES, noise_image
from tests.engine.small_models import SMALL, save_model, small_vit
from vitviz.engine.inspector import Inspector
from vitviz.errors import CheckpointError


@pytest.fixture(scope="module")
def vit():
    return small_vit()


def folder(path, model, cfg, **args):
    save_model(model, path / "model.safetensors")
    args = {name: value for name, value in {**SMALL, **args}.items() if name != "num_classes" and value}
    about = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "model_args": args}
    (path / "config.json").write_text(json.dumps({**about, "pretrained_cfg": cfg}))
    return str(path)


@pytest.mark.parametrize(
    "cfg",
    [
        {"crop_mode": "squash", "crop_pct": 0.9, "interpolation": "bilinear"},
        {"crop_mode": "border", "mean": [0.5] * 3, "std": [0.2, 0.3, 0.4]},
        {"crop_mode": None, "crop_pct": None, "fixed_input_size": False},
        {"test_input_size": [3, 48, 48], "test_crop_pct": 1.0, "min_input_size": [3, 16, 16]},
    ],
    ids=str,
)
def test_timm_folder_gives_timm_logits(cfg, vit, tmp_path):
    name = folder(tmp_path, vit, {"input_size": [3, 32, 32], **cfg})
    inspector = vitviz.load(name, device="cpu")
    timm_model = timm.create_model(f"local-dir:{name}", pretrained=True).eval()
    transform = create_transform(**resolve_model_data_config(timm_model))
    for shape in SHAPES:
        with torch.no_grad():
            logits = timm_model(transform(noise_image(*shape))[None])[0]
        torch.testing.assert_close(inspector.trace(noise_image(*shape)).logits, logits, atol=1e-5, rtol=0)
    used = "test_input_size [3, 48, 48] and test_crop_pct 1.0, which timm uses only on request"
    assert (used in inspector.checkpoint.note) == ("test_crop_pct" in cfg)


def test_non_fixed_size_is_rejected_if_timm_builds_another(vit, tmp_path):
    name = folder(tmp_path, vit, {"input_size": [3, 32, 32], "fixed_input_size": False}, img_size=None)
    with pytest.raises(CheckpointError, match="fixed_input_size false.* 224 x 224 px.*Add img_size"):
        vitviz.load(name)


def test_missing_config_fields_of_module_default_to_timm(vit):
    vit.pretrained_cfg = {"architecture": "vit_tiny_patch16_224", "input_size": (3, 32, 32)}
    transform = create_transform(**resolve_model_data_config(vit))
    with torch.no_grad():
        logits = vit(transform(noise_image(481, 321))[None])[0]
    torch.testing.assert_close(Inspector.of(vit, device="cpu").trace(noise_image(481, 321)).logits, logits)
