"""What is listed, and what is told of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch

from tests.engine.models.dropped import dropped, local, put, tensors
from vitviz.engine.formats import families
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint, weights_folder
from vitviz.engine.hub.snapshots import snapshot_checkpoint, snapshot_files
from vitviz.errors import CheckpointError


@pytest.fixture
def weights(tmp_path):
    return dropped(tmp_path / "weights")


def test_folders_and_files_are_listed_and_the_rest_is_not(weights):
    assert set(local(weights)) == {"mine", "vitviz-tiny", "plain.safetensors", "deit_tiny.pth", "b16.npz"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a file's name is always text")
def test_a_file_whose_name_is_no_text_is_not_listed(weights):
    before = set(local(weights))
    shutil.copy(weights / "plain.safetensors", os.fsencode(weights) + b"/\xff.safetensors")
    assert set(local(weights)) == before


def test_a_config_describes_its_checkpoint(weights):
    mine = local(weights)["mine"]
    assert (mine.architecture, mine.source, mine.input_size, mine.parameters) == (
        "vit_tiny_patch16_224",
        "local",
        (3, 32, 48),
        15,
    )
    assert (mine.licence, mine.paper, mine.note) == ("mit", "arXiv:1, arXiv:2", "Described.")
    assert mine.trained_on == "ImageNet-21k, then ImageNet-1k" and mine.on_disk


def test_our_own_words_come_before_timms(weights):
    shipped = local(weights)["vitviz-tiny"]
    assert (shipped.source, shipped.trained_on, shipped.licence, shipped.paper, shipped.note) == (
        "shipped",
        "Pets",
        "MIT",
        "P",
        "92 % of cats.",
    )


@pytest.mark.parametrize("config", ["{", "[1]", '{"pretrained_cfg": 3}', '{"model_args": {"img_size": "x"}}'])
def test_a_broken_config_does_not_break_the_list(config, weights):
    put(weights / "broken", config)
    found = local(weights)
    assert "config.json" in found["broken"].note and "mine" in found


def test_transformers_config_tells_its_size(weights):
    put(weights / "hf", {"model_type": "vit", "image_size": 224, "num_channels": 3})
    assert local(weights)["hf"].input_size == (3, 224, 224)


def test_a_folder_that_does_not_exist_lists_only_the_hub(tmp_path):
    assert local(tmp_path / "nowhere") == {} and len(checkpoints(tmp_path / "nowhere")) > 400


def test_weights_folder_is_the_argument_then_the_variable_then_the_repositorys(tmp_path, monkeypatch):
    monkeypatch.setenv("VITVIZ_WEIGHTS", str(tmp_path))
    assert weights_folder() == tmp_path and weights_folder(tmp_path / "x") == tmp_path / "x"
    monkeypatch.delenv("VITVIZ_WEIGHTS")
    assert weights_folder() == Path(__file__).resolve().parents[3] / "weights"


def test_hub_lists_timms_plain_vits_with_tags_and_no_others(tmp_path):
    listed = {one.name: one for one in checkpoints(tmp_path)}
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
    one = listed["vit_base_patch16_224.augreg_in21k"]
    assert (one.architecture, one.input_size, one.trained_on, one.on_disk) == (
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
    assert local(weights)


def test_every_refused_family_of_the_table_is_one_of_timms():
    assert set(families._REASONS) | set(families.FAMILIES) <= set(timm.models.list_modules())
    assert set(families._TRANSFORMERS.values()) <= set(families._REASONS)


def test_snapshots_are_the_steps_in_order_and_have_names_of_their_own(weights):
    film = weights / "mine" / "snapshots"
    film.mkdir()
    for name in (
        "step-000100.safetensors",
        "step-000000.safetensors",
        "step-2000.safetensors",
        "other.safetensors",
        "step-1.txt",
    ):
        tensors(film / name)
    (film / "step-5.safetensors").symlink_to(weights / "plain.safetensors")
    mine = find_checkpoint("mine", weights)
    assert [step for step, _ in snapshot_files(mine)] == [0, 100, 2000]
    early = find_checkpoint("mine@100", weights, trusted=False)
    assert early == snapshot_checkpoint(mine, 100)
    assert (early.name, early.location, early.architecture) == (
        "mine@100",
        str(film / "step-000100.safetensors"),
        "vit_tiny_patch16_224",
    )
    assert "100 steps" in early.note
    with pytest.raises(CheckpointError, match="kept are: 0, 100, 2000"):
        find_checkpoint("mine@7", weights)
    assert (
        snapshot_files(find_checkpoint("plain", weights))
        == []
        == snapshot_files(find_checkpoint("deit_tiny_patch16_224"))
    )


@pytest.mark.processes
def test_hub_module_needs_neither_torch_nor_timm():
    code = """
import sys, types
package = types.ModuleType("vitviz.engine")  # whose own __init__ needs both
package.__path__ = ["vitviz/engine"]
sys.modules["vitviz.engine"] = package
import vitviz.engine.hub.downloads
assert not {"torch", "timm", "gradio"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[3])
