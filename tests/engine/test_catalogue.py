"""What is listed, and what a name means, to a friend and to a stranger."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from vitviz.engine import families
from vitviz.engine.catalogue import checkpoints, find, snapshot, snapshots, weights_folder
from vitviz.errors import CheckpointError, UnsupportedModel

CONFIG = {
    "architecture": "vit_tiny_patch16_224",
    "num_classes": 3,
    "model_args": {"img_size": [32, 48], "patch_size": 8},
    "pretrained_cfg": {"tag": "augreg_in21k_ft_in1k", "license": "mit", "paper_ids": ["arXiv:1", "arXiv:2"], "description": "Described."},
}


def tensors(path):
    save_file({"a.weight": torch.zeros(3, 4), "a.bias": torch.zeros(3)}, path)


def put(folder, config=None):
    folder.mkdir(parents=True)
    tensors(folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


@pytest.fixture
def weights(tmp_path):
    root = tmp_path / "weights"
    put(root / "mine", CONFIG)
    put(root / "vitviz-tiny", CONFIG | {"vitviz": {"trained_on": "Pets", "licence": "MIT", "paper": "P", "note": "92 % of cats."}})
    for name in ("plain.safetensors", "deit_tiny.pth", "b16.npz"):
        tensors(root / name)
    (root / "notes.txt").write_text("no checkpoint")
    (root / "empty").mkdir()
    return root


def local(weights):
    return {one.name: one for one in checkpoints(weights) if one.source != "hub"}


def test_folders_and_files_are_listed_and_the_rest_is_not(weights):
    assert set(local(weights)) == {"mine", "vitviz-tiny", "plain.safetensors", "deit_tiny.pth", "b16.npz"}


def test_a_config_describes_its_checkpoint(weights):
    mine = local(weights)["mine"]
    assert (mine.architecture, mine.source, mine.input_size, mine.parameters) == ("vit_tiny_patch16_224", "local", (3, 32, 48), 15)
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
    assert weights_folder() == Path(__file__).resolve().parents[2] / "weights"


def test_hub_lists_timms_plain_vits_with_tags_and_no_others(tmp_path):
    listed = {one.name: one for one in checkpoints(tmp_path)}
    for name in (
        "vit_base_patch16_224.augreg_in21k",
        "deit_tiny_patch16_224.fb_in1k",
        "vit_base_r50_s16_384.orig_in21k_ft_in1k",
        "vit_small_patch16_dinov3.lvd1689m",
    ):
        assert listed[name].source == "hub" and listed[name].location == f"timm/{name}" and listed[name].licence
    assert not [name for name in listed if name.startswith(("swin", "cait", "xcit", "samvit", "resnet", "vit_dwee", "vit_dlittle"))]
    assert set(listed) <= set(timm.list_pretrained())
    one = listed["vit_base_patch16_224.augreg_in21k"]
    assert (one.architecture, one.input_size, one.trained_on, one.on_disk) == ("vit_base_patch16_224", (3, 224, 224), "ImageNet-21k", False)


def test_listing_builds_no_model_and_reads_no_weights(weights, monkeypatch):
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: pytest.fail("a model was built"))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("weights were read"))
    monkeypatch.setattr("vitviz.engine.formats.weights.load_file", lambda *_, **__: pytest.fail("weights were read"))
    assert local(weights)


# ----- find


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vit_base_patch16_224.augreg_in21k", "vit_base_patch16_224.augreg_in21k"),
        ("vit_base_patch16_224", "vit_base_patch16_224.augreg2_in21k_ft_in1k"),
        ("timm/deit_tiny_patch16_224.fb_in1k", "deit_tiny_patch16_224.fb_in1k"),
        ("hf-hub:timm/deit_tiny_patch16_224.fb_in1k", "deit_tiny_patch16_224.fb_in1k"),
        ("vit_base_patch16_224_in21k", "vit_base_patch16_224.augreg_in21k"),  # a name that timm has replaced
    ],
)
@pytest.mark.parametrize("trusted", [True, False])
def test_timm_names_are_found_by_anybody(name, found, trusted, weights):
    assert find(name, weights, trusted=trusted).name == found


@pytest.mark.parametrize("name", ["mine", "plain.safetensors", "plain", "deit_tiny"])
@pytest.mark.parametrize("trusted", [True, False])
def test_local_names_are_found_by_anybody(name, trusted, weights):
    assert find(name, weights, trusted=trusted).name.partition(".")[0] == name.partition(".")[0]


def test_paths_and_other_repositories_are_found_for_a_friend(weights, tmp_path):
    elsewhere = put(tmp_path / "elsewhere", CONFIG)
    assert find(str(elsewhere), weights).location == str(elsewhere)
    assert find(f"local-dir:{elsewhere}", weights).architecture == "vit_tiny_patch16_224"
    assert find(str(elsewhere / "model.safetensors"), weights).input_size == (3, 32, 48)
    stranger = find("google/vit-base-patch16-224", weights)
    assert (stranger.source, stranger.location, stranger.architecture) == ("hub", "google/vit-base-patch16-224", None)
    assert find("timm/vit_base_patch16_224.newer_than_this_timm", weights).location == "timm/vit_base_patch16_224.newer_than_this_timm"


def test_a_strangers_name_cannot_leave_the_folder(weights, tmp_path, monkeypatch):
    outside = put(tmp_path / "outside", CONFIG)
    (weights / "link").symlink_to(outside)
    (weights / "link.safetensors").symlink_to(outside / "model.safetensors")
    put(weights / "inner", CONFIG)
    (weights / "inner" / "model.safetensors").unlink()
    (weights / "inner" / "model.safetensors").symlink_to(outside / "model.safetensors")
    monkeypatch.chdir(weights)
    names = ["link", "link.safetensors", "inner", str(outside), "../outside", "mine/../../outside", "./mine", str(weights / "mine")]
    for name in [
        *names,
        "google/vit-base-patch16-224",
        f"local-dir:{outside}",
        "mine/model.safetensors",
        "",
        ".",
        "~",
        "a" * 5000,
        "mine\0",
    ]:
        with pytest.raises(CheckpointError):
            find(name, weights, trusted=False)
    assert not {"link", "link.safetensors", "inner"} & set(local(weights))


def test_unknown_names_tell_what_is_close(weights):
    with pytest.raises(CheckpointError, match="Close to it: vitviz-tiny"):
        find("vitviz-tinny", weights)
    with pytest.raises(CheckpointError, match="vit_base_patch16_224"):
        find("vit_bas_patch16_224", weights)
    with pytest.raises(CheckpointError, match=r"There are b16.npz, .*timm's names"):
        find("???", weights)


def test_unknown_tags_tell_which_there_are(weights):
    with pytest.raises(CheckpointError, match=r"deit_tiny_patch16_224\.fb_in1k"):
        find("deit_tiny_patch16_224.nope", weights)


@pytest.mark.parametrize("name", ["nothing.pth", "./nothing", "/nothing/there"])
def test_a_path_that_is_not_there_is_told(name, weights):
    with pytest.raises(CheckpointError, match="There is no file or folder"):
        find(name, weights)


def test_a_path_without_weights_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="expected one file ending in"):
        find(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("swin_tiny_patch4_window7_224", "within windows"),
        ("samvit_base_patch16", "within windows"),
        ("cait_s24_224", "heads"),
        ("xcit_nano_12_p16_224", "channels"),
        ("crossvit_9_240", "two sizes"),
        ("pit_ti_224", "stage"),
        ("vit_dwee_patch16_reg1_gap_256", "subtracts"),
        ("resnet50.a1_in1k", "has no attention"),
    ],
)
def test_what_is_no_plain_vit_is_refused_with_the_reason(name, reason, weights):
    with pytest.raises(UnsupportedModel, match=reason):
        find(name, weights)
    with pytest.raises(UnsupportedModel, match=reason):
        find("mine", weights, architecture=name)


def test_every_refused_family_of_the_table_is_one_of_timms():
    assert set(families._REASONS) | set(families.FAMILIES) <= set(timm.models.list_modules())
    assert set(families._TRANSFORMERS.values()) <= set(families._REASONS)


def test_an_architecture_that_is_asked_for_takes_precedence(weights):
    assert find("mine", weights, architecture="deit_tiny_patch16_224").architecture == "deit_tiny_patch16_224"
    with pytest.raises(CheckpointError, match="deit_tiny_patch16_224"):
        find("mine", weights, architecture="deit_tny_patch16_224")


# ----- the film of a training


def test_snapshots_are_the_steps_in_order_and_have_names_of_their_own(weights):
    film = weights / "mine" / "snapshots"
    film.mkdir()
    for name in ("step-000100.safetensors", "step-000000.safetensors", "step-2000.safetensors", "other.safetensors", "step-1.txt"):
        tensors(film / name)
    (film / "step-5.safetensors").symlink_to(weights / "plain.safetensors")
    mine = find("mine", weights)
    assert [step for step, _ in snapshots(mine)] == [0, 100, 2000]
    early = find("mine@100", weights, trusted=False)
    assert early == snapshot(mine, 100)
    assert (early.name, early.location, early.architecture) == ("mine@100", str(film / "step-000100.safetensors"), "vit_tiny_patch16_224")
    assert "100 steps" in early.note
    with pytest.raises(CheckpointError, match="kept are: 0, 100, 2000"):
        find("mine@7", weights)
    assert snapshots(find("plain", weights)) == [] == snapshots(find("deit_tiny_patch16_224"))


def test_hub_module_needs_neither_torch_nor_timm():
    code = """
import sys, types
package = types.ModuleType("vitviz.engine")  # whose own __init__ needs both
package.__path__ = ["vitviz/engine"]
sys.modules["vitviz.engine"] = package
import vitviz.engine.hub
assert not {"torch", "timm", "gradio"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[2])
