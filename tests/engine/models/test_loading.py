"""Checkpoints in timm's format and of named architectures against timm. Missing or extra tensors are named,
never filled in.
"""

import json

import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.engine.random_inspectors import noise
from tests.engine.small_models import SMALL, assert_same_logits, perturbed, save_model, small_vit
from tests.shared import shared_file
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.engine.hub.snapshots import snapshot_checkpoint
from vitviz.engine.inspector import Inspector
from vitviz.errors import CheckpointError, UnsupportedModel


@pytest.fixture
def folder(tmp_path):
    model = small_vit()
    folder = tmp_path / "mine"
    timm.models.save_for_hf(model, folder, model_args={k: v for k, v in SMALL.items() if k != "num_classes"})
    return folder


def test_local_dir_folder_equals_timm_load(folder):
    loaded = load(find_checkpoint(str(folder)))
    assert_same_logits(loaded, timm.create_model(f"local-dir:{folder}", pretrained=True).eval(), tolerance=0)
    assert not loaded.model.training
    assert all(
        not p.requires_grad and p.dtype == torch.float32 and p.device.type == "cpu"
        for p in loaded.model.parameters()
    )
    assert loaded.preprocessing.size == (32, 32) and loaded.checkpoint.input_size == (3, 32, 32)
    assert loaded.checkpoint.parameters == sum(p.numel() for p in loaded.model.parameters())


def test_half_precision_weights_are_read_as_float32(folder):
    tensors = {name: value.half() for name, value in small_vit().state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    loaded = load(find_checkpoint(str(folder)))
    assert torch.equal(loaded.model.head.weight, tensors["head.weight"].float())


def test_label_descriptions_take_precedence_and_must_fit(folder):
    config = json.loads((folder / "config.json").read_text())
    names = [f"n{i}" for i in range(7)]
    config |= {"label_names": names, "label_descriptions": {name: f"thing {name}" for name in names}}
    (folder / "config.json").write_text(json.dumps(config))
    assert load(find_checkpoint(str(folder))).labels[3] == "thing n3"
    config["label_names"] = names[:5]
    (folder / "config.json").write_text(json.dumps(config))
    assert load(find_checkpoint(str(folder))).labels == ()


def test_config_cannot_make_timm_load_another_file(folder):
    config = json.loads((folder / "config.json").read_text())
    config["model_args"]["checkpoint_path"] = "/somewhere/else.pth"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="checkpoint_path"):
        load(find_checkpoint(str(folder)))


def test_short_config_uses_architecture_preprocessing_with_note(folder):
    args = {k: v for k, v in SMALL.items() if k != "num_classes"}
    (folder / "config.json").write_text(
        json.dumps({"architecture": "deit_tiny_patch16_224", "num_classes": 7, "model_args": args})
    )
    loaded = load(find_checkpoint(str(folder)))
    assert loaded.preprocessing.mean == (0.485, 0.456, 0.406) and "preprocessing" in loaded.checkpoint.note


def test_explicit_architecture_overrides_config(folder):
    with pytest.raises(CheckpointError, match="does not fit deit_tiny_patch16_224"):
        load(find_checkpoint(str(folder), architecture="deit_tiny_patch16_224"))


def test_snapshot_is_loaded_with_config_of_its_checkpoint(folder):
    snapshots = folder / "snapshots"
    snapshots.mkdir()
    model = small_vit(num_classes=7)
    with torch.no_grad():
        model.head.bias.add_(1)
    save_model(model, snapshots / "step-000100.safetensors")
    loaded = load(snapshot_checkpoint(find_checkpoint(str(folder)), 100))
    assert_same_logits(loaded, model, tolerance=0)
    assert loaded.checkpoint.name == "mine@100" and "100 steps" in loaded.checkpoint.note


def test_early_checkpoint_equals_timm_load_and_has_labels():
    path = shared_file("weights/vitviz-tiny-early")
    loaded = load(find_checkpoint(str(path)))
    assert_same_logits(
        loaded, timm.create_model(f"local-dir:{path}", pretrained=True).eval(), size=64, tolerance=0
    )
    assert loaded.labels[0] == "goldfish" and len(loaded.labels) == 200
    early = load(snapshot_checkpoint(find_checkpoint(str(path)), 0))
    assert not torch.equal(early.model.pos_embed, loaded.model.pos_embed)


@pytest.mark.parametrize("architecture", ["deit_tiny_patch16_224", None])
def test_genuine_deit_tiny_has_imagenet_normalisation_and_labels(architecture):
    path = shared_file("weights/deit_tiny_patch16_224.safetensors")
    loaded = load(find_checkpoint(str(path), architecture=architecture))
    assert_same_logits(
        loaded, timm.create_model("deit_tiny_patch16_224", checkpoint_path=path).eval(), size=224, tolerance=0
    )
    assert loaded.preprocessing.mean == (0.485, 0.456, 0.406) and loaded.preprocessing.std == (
        0.229,
        0.224,
        0.225,
    )
    assert loaded.labels[285] == "Egyptian cat" and loaded.checkpoint.note == ""


def test_file_named_after_architecture_uses_its_preprocessing(tmp_path):
    model = perturbed(timm.create_model("vit_tiny_patch16_224", depth=12, num_classes=7))
    loaded = load(
        find_checkpoint(str(save_model(model, tmp_path / "vit_tiny_patch16_224_pets-1a2b.safetensors")))
    )
    assert loaded.preprocessing.mean == (0.5, 0.5, 0.5) and "assumed" not in loaded.checkpoint.note
    expected_names = {"pool", "block", "normalisation", "activation"}
    assert expected_names <= {assumption.name for assumption in loaded.checkpoint.assumed}, (
        "fine-tuning may have changed these"
    )
    other = load(
        find_checkpoint(str(save_model(small_vit(), tmp_path / "vit_tiny_patch16_224_pets.safetensors")))
    )  # the name does not fit the tensors
    assert other.model.embed_dim == 128 and "assumed" in other.checkpoint.note


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224.safetensors", "vit_tiny_patch16_224/"])
def test_path_in_current_folder_precedes_hub(name, tmp_path, monkeypatch):
    (tmp_path / "vit_tiny_patch16_224").mkdir()
    save_model(small_vit(), tmp_path / "vit_tiny_patch16_224" / "model.safetensors")
    save_model(small_vit(), tmp_path / "vit_tiny_patch16_224.safetensors")
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint(name).source == "local" and load(find_checkpoint(name)).model.embed_dim == 128
    assert find_checkpoint("vit_tiny_patch16_224").source == "hub"
    with pytest.raises(CheckpointError):
        find_checkpoint("vit_tiny_patch16_224.safetensors", trusted=False)


# Misfits are named.


def test_missing_tensor_is_rejected(folder):
    tensors = small_vit().state_dict()
    del tensors["blocks.1.mlp.fc2.bias"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"blocks\.1\.mlp\.fc2\.bias \(128\) is missing from the file"):
        load(find_checkpoint(str(folder)))


def test_extra_tensor_is_named(folder):
    save_file(small_vit().state_dict() | {"blocks.0.extra": torch.zeros(3)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"blocks\.0\.extra \(3\) of the file is not part of the model"):
        load(find_checkpoint(str(folder)))


def test_position_table_of_other_size_is_rejected(folder):
    model = small_vit(img_size=64)
    save_model(model, folder / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"pos_embed is \(1, 65, 128\) in the file and \(1, 17, 128\) in the model"
    ):
        load(find_checkpoint(str(folder)))


def test_patch_embedding_of_other_size_is_rejected(folder):
    save_model(small_vit(patch_size=16, img_size=64), folder / "model.safetensors")
    with pytest.raises(
        CheckpointError,
        match=(
            r"patch_embed\.proj\.weight is \(128, 3, 16, 16\) in the file and \(128, 3, 8, 8\) in the model"
        ),
    ):
        load(find_checkpoint(str(folder)))


@pytest.mark.parametrize(
    "architecture",
    ["swin_tiny_patch4_window7_224", "resnet50", "samvit_base_patch16", "vit_dwee_patch16_reg1_gap_256"],
)
def test_unsupported_architecture_is_rejected_before_reading(architecture, folder):
    (folder / "config.json").write_text(json.dumps({"architecture": architecture}))
    with pytest.raises(UnsupportedModel, match=f"{architecture} .*Choose a plain Vision Transformer"):
        load(find_checkpoint(str(folder)))


MALFORMED = [
    {"architecture": "vit_tiny_patch16_224", "model_args": [1]},
    {"architecture": "vit_tiny_patch16_224", "model_args": {"img_size": "x"}},
    {"architecture": "vit_tiny_patch16_224", "model_args": {"no_such_argument": 1}},
    {"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {"input_size": 3}},
    {"architecture": "vit_nowhere_patch16_224"},
    {"model_type": "vit"},
]


@pytest.mark.parametrize("config", MALFORMED)
def test_malformed_config_is_rejected(config, folder):
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError):
        load(find_checkpoint(str(folder)))


@pytest.mark.parametrize("trained_at", [96, 224])
def test_input_size_of_short_config_is_model_size(trained_at, tmp_path):
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=7, img_size=trained_at)
    save_model(perturbed(model), tmp_path / "model.safetensors")
    config = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 7,
        "pretrained_cfg": {"input_size": [3, 96, 96]},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    if trained_at == 96:
        assert Inspector(load(find_checkpoint(str(tmp_path))), "cpu").trace(noise()).grid.patches == 36
    else:
        with pytest.raises(
            CheckpointError, match=r"pos_embed is \(1, 197, 192\) in the file and \(1, 37, 192\) in the model"
        ):
            load(find_checkpoint(str(tmp_path)))


def test_fused_attention_disabled_globally_is_enabled_on_load(folder, monkeypatch):
    """timm documents TIMM_FUSED_ATTN=0 for exporting models."""
    monkeypatch.setattr(timm.layers.config, "_USE_FUSED_ATTN", 0)
    assert not timm.create_model("vit_tiny_patch16_224", pretrained=False, depth=1).blocks[0].attn.fused_attn
    assert Inspector(load(find_checkpoint(str(folder))), "cpu").trace(noise()).logits.shape == (7,)
