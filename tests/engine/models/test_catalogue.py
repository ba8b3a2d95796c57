"""The catalogue of checkpoints and their descriptions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch

from tests.engine.models.weights_folder import (
    local_checkpoints,
    mixed_weights_folder,
    save_checkpoint,
    save_tensors,
)
from vitviz.engine.formats import families
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint, weights_folder
from vitviz.engine.hub.snapshots import snapshot_checkpoint, snapshot_files
from vitviz.errors import CheckpointError


@pytest.fixture
def weights(tmp_path):
    return mixed_weights_folder(tmp_path / "weights")


def test_folders_and_files_are_listed_and_others_are_not(weights):
    assert set(local_checkpoints(weights)) == {
        "mine",
        "vitviz-tiny",
        "plain.safetensors",
        "deit_tiny.pth",
        "b16.npz",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a file's name is always text")
def test_file_name_that_is_not_text_is_not_listed(weights):
    before = set(local_checkpoints(weights))
    shutil.copy(weights / "plain.safetensors", os.fsencode(weights) + b"/\xff.safetensors")
    assert set(local_checkpoints(weights)) == before


def test_config_describes_checkpoint(weights):
    checkpoint = local_checkpoints(weights)["mine"]
    assert (checkpoint.architecture, checkpoint.source, checkpoint.input_size, checkpoint.parameters) == (
        "vit_tiny_patch16_224",
        "local",
        (3, 32, 48),
        15,
    )
    assert (checkpoint.licence, checkpoint.paper, checkpoint.note) == (
        "mit",
        "arXiv:1, arXiv:2",
        "Described.",
    )
    assert checkpoint.trained_on == "ImageNet-21k, then ImageNet-1k" and checkpoint.on_disk


def test_vitviz_description_overrides_timm_description(weights):
    shipped = local_checkpoints(weights)["vitviz-tiny"]
    assert (shipped.source, shipped.trained_on, shipped.licence, shipped.paper, shipped.note) == (
        "shipped",
        "Pets",
        "MIT",
        "P",
        "92 % of cats.",
    )


@pytest.mark.parametrize("config", ["{", "[1]", '{"pretrained_cfg": 3}', '{"model_args": {"img_size": "x"}}'])
def test_broken_config_does_not_break_listing(config, weights):
    save_checkpoint(weights / "broken", config)
    listed = local_checkpoints(weights)
    assert "config.json" in listed["broken"].note and "mine" in listed


def test_transformers_config_gives_input_size(weights):
    save_checkpoint(weights / "hf", {"model_type": "vit", "image_size": 224, "num_channels": 3})
    assert local_checkpoints(weights)["hf"].input_size == (3, 224, 224)


def test_missing_folder_lists_only_hub_checkpoints(tmp_path):
    assert local_checkpoints(tmp_path / "nowhere") == {} and len(checkpoints(tmp_path / "nowhere")) > 400


def test_weights_folder_is_argument_then_variable_then_default(tmp_path, monkeypatch):
    monkeypatch.setenv("VITVIZ_WEIGHTS", str(tmp_path))
    assert weights_folder() == tmp_path and weights_folder(tmp_path / "x") == tmp_path / "x"
    monkeypatch.delenv("VITVIZ_WEIGHTS")
    assert weights_folder() == Path(__file__).resolve().parents[3] / "weights"


def test_hub_checkpoints_are_plain_timm_vits_with_tags(tmp_path):
    listed = {checkpoint.name: checkpoint for checkpoint in checkpoints(tmp_path)}
    for name in (
        "vit_base_patch16_224.augreg_in21k",
        "deit_tiny_patch16_224.fb_in1k",
        "vit_base_r50_s16_384.orig_in21k_ft_in1k",
        "vit_small_patch16_dinov3.lvd1689m",
    ):
        assert (
            listed[name].source == "hub" and listed[name].location == f"timm/{name}" and listed[name].licence
        )
    assert not [
        name
        for name in listed
        if name.startswith(("swin", "cait", "xcit", "samvit", "resnet", "vit_dwee", "vit_dlittle"))
    ]
    assert set(listed) <= set(timm.list_pretrained())
    checkpoint = listed["vit_base_patch16_224.augreg_in21k"]
    assert (checkpoint.architecture, checkpoint.input_size, checkpoint.trained_on, checkpoint.on_disk) == (
        "vit_base_patch16_224",
        (3, 224, 224),
        "ImageNet-21k",
        False,
    )


def test_listing_builds_no_model_and_reads_no_weights(weights, monkeypatch):
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: pytest.fail("a model was built"))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("weights were read"))
    monkeypatch.setattr(
        "vitviz.engine.formats.weights.tensors_in", lambda *_, **__: pytest.fail("weights were read")
    )
    assert local_checkpoints(weights)


def test_rejected_families_exist_in_timm():
    assert set(families._REASONS) | set(families.FAMILIES) <= set(timm.models.list_modules())
    assert set(families._TRANSFORMERS.values()) <= set(families._REASONS)


def test_snapshots_are_sorted_by_step_and_named(weights):
    folder = weights / "mine" / "snapshots"
    folder.mkdir()
    for name in (
        "step-000100.safetensors",
        "step-000000.safetensors",
        "step-2000.safetensors",
        "other.safetensors",
        "step-1.txt",
    ):
        save_tensors(folder / name)
    (folder / "step-5.safetensors").symlink_to(weights / "plain.safetensors")
    checkpoint = find_checkpoint("mine", weights)
    assert [step for step, _ in snapshot_files(checkpoint)] == [0, 100, 2000]
    early = find_checkpoint("mine@100", weights, trusted=False)
    assert early == snapshot_checkpoint(checkpoint, 100)
    assert (early.name, early.location, early.architecture) == (
        "mine@100",
        str(folder / "step-000100.safetensors"),
        "vit_tiny_patch16_224",
    )
    assert "100 steps" in early.note
    with pytest.raises(CheckpointError, match="available are: 0, 100, 2000"):
        find_checkpoint("mine@7", weights)
    assert (
        snapshot_files(find_checkpoint("plain", weights))
        == []
        == snapshot_files(find_checkpoint("deit_tiny_patch16_224"))
    )


@pytest.mark.processes
def test_downloads_module_imports_neither_torch_nor_timm():
    code = """
import sys, types
package = types.ModuleType("vitviz.engine")  # the real __init__ imports both
package.__path__ = ["vitviz/engine"]
sys.modules["vitviz.engine"] = package
import vitviz.engine.hub.downloads
assert not {"torch", "timm", "gradio"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[3])
