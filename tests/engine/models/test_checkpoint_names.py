"""Resolution of checkpoint names, for trusted and untrusted callers."""

from pathlib import Path

import pytest

from tests.engine.models.weights_folder import (
    CONFIG,
    local_checkpoints,
    mixed_weights_folder,
    save_checkpoint,
)
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint
from vitviz.errors import CheckpointError, UnsupportedModel, VitvizError


@pytest.fixture
def weights(tmp_path):
    return mixed_weights_folder(tmp_path / "weights")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vit_base_patch16_224.augreg_in21k", "vit_base_patch16_224.augreg_in21k"),
        ("vit_base_patch16_224", "vit_base_patch16_224.augreg2_in21k_ft_in1k"),
        ("timm/deit_tiny_patch16_224.fb_in1k", "deit_tiny_patch16_224.fb_in1k"),
        ("hf-hub:timm/deit_tiny_patch16_224.fb_in1k", "deit_tiny_patch16_224.fb_in1k"),
        ("vit_base_patch16_224_in21k", "vit_base_patch16_224.augreg_in21k"),  # an old timm name
    ],
)
@pytest.mark.parametrize("trusted", [True, False])
def test_timm_name_is_resolved(name, found, trusted, weights):
    assert find_checkpoint(name, weights, trusted=trusted).name == found


@pytest.mark.parametrize("name", ["mine", "plain.safetensors", "plain", "deit_tiny"])
@pytest.mark.parametrize("trusted", [True, False])
def test_local_name_is_resolved(name, trusted, weights):
    assert find_checkpoint(name, weights, trusted=trusted).name.partition(".")[0] == name.partition(".")[0]


def test_trusted_caller_may_use_paths_and_other_repositories(weights, tmp_path):
    elsewhere = save_checkpoint(tmp_path / "elsewhere", CONFIG)
    assert find_checkpoint(str(elsewhere), weights).location == str(elsewhere)
    assert find_checkpoint(f"local-dir:{elsewhere}", weights).architecture == "vit_tiny_patch16_224"
    assert find_checkpoint(str(elsewhere / "model.safetensors"), weights).input_size == (3, 32, 48)
    stranger = find_checkpoint("google/vit-base-patch16-224", weights)
    assert (stranger.source, stranger.location, stranger.architecture) == (
        "hub",
        "google/vit-base-patch16-224",
        None,
    )
    assert (
        find_checkpoint("timm/vit_base_patch16_224.newer_than_this_timm", weights).location
        == "timm/vit_base_patch16_224.newer_than_this_timm"
    )


def test_untrusted_name_cannot_leave_weights_folder(weights, tmp_path, monkeypatch):
    outside = save_checkpoint(tmp_path / "outside", CONFIG)
    (weights / "link").symlink_to(outside)
    (weights / "link.safetensors").symlink_to(outside / "model.safetensors")
    save_checkpoint(weights / "inner", CONFIG)
    (weights / "inner" / "model.safetensors").unlink()
    (weights / "inner" / "model.safetensors").symlink_to(outside / "model.safetensors")
    (save_checkpoint(weights / "beside", CONFIG) / "preprocessor_config.json").symlink_to(
        outside / "config.json"
    )
    monkeypatch.chdir(weights)
    names = [
        "link",
        "link.safetensors",
        "inner",
        "beside",
        str(outside),
        "../outside",
        "mine/../../outside",
        "./mine",
        str(weights / "mine"),
    ]
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
            find_checkpoint(name, weights, trusted=False)
    assert not {"link", "link.safetensors", "inner", "beside"} & set(local_checkpoints(weights))


def test_unknown_name_error_suggests_similar_names(weights):
    with pytest.raises(CheckpointError, match="Similar names: vitviz-tiny"):
        find_checkpoint("vitviz-tinny", weights)
    with pytest.raises(CheckpointError, match="vit_base_patch16_224"):
        find_checkpoint("vit_bas_patch16_224", weights)
    with pytest.raises(CheckpointError, match=r"There are b16.npz, .*timm's names"):
        find_checkpoint("???", weights)


def test_unknown_tag_error_lists_tags(weights):
    with pytest.raises(CheckpointError, match=r"deit_tiny_patch16_224\.fb_in1k"):
        find_checkpoint("deit_tiny_patch16_224.nope", weights)


@pytest.mark.parametrize("name", ["nothing.pth", "./nothing", "/nothing/there"])
def test_missing_path_is_reported(name, weights):
    with pytest.raises(CheckpointError, match="There is no file or folder"):
        find_checkpoint(name, weights)


def test_folder_without_weights_is_reported(tmp_path):
    with pytest.raises(CheckpointError, match="expected one file ending in"):
        find_checkpoint(str(tmp_path))


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
def test_unsupported_architecture_is_rejected_with_reason(name, reason, weights):
    with pytest.raises(UnsupportedModel, match=reason):
        find_checkpoint(name, weights)
    with pytest.raises(UnsupportedModel, match=reason):
        find_checkpoint("mine", weights, architecture=name)


def test_explicit_architecture_overrides_config(weights):
    assert (
        find_checkpoint("mine", weights, architecture="deit_tiny_patch16_224").architecture
        == "deit_tiny_patch16_224"
    )
    with pytest.raises(CheckpointError, match="deit_tiny_patch16_224"):
        find_checkpoint("mine", weights, architecture="deit_tny_patch16_224")


def test_unknown_home_folder_is_reported(weights):
    with pytest.raises(CheckpointError, match="There is no file or folder '~nosuchuser/x.pth'"):
        find_checkpoint("~nosuchuser/x.pth", weights)


ODD = {
    "a link to itself": lambda root: (root / "odd.pth").symlink_to(root / "odd.pth"),
    "no shape": (
        lambda root: (root / "odd.safetensors").write_bytes(
            header('{"a": {"dtype": "F32", "shape": [null], "data_offsets": [0, 0]}}')
        )
    ),
    "endless brackets in a header": (
        lambda root: (root / "odd.safetensors").write_bytes(header("[" * 200_000))
    ),
    "endless brackets in a config": lambda root: folder_with(root, "[" * 200_000),
    "an architecture that is a list": lambda root: folder_with(root, '{"architecture": ["ViTModel"]}'),
    "somebody else's folder": lambda root: (root / "lost+found").mkdir(),
}


def header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


def folder_with(root, config: str) -> None:
    (root / "odd").mkdir()
    (root / "odd" / "config.json").write_text(config)
    (root / "odd" / "model.safetensors").write_bytes(header("{}"))


@pytest.mark.parametrize("kind", ODD)
def test_odd_entry_does_not_hide_other_checkpoints(kind, weights, monkeypatch):
    before = {checkpoint.name for checkpoint in checkpoints(weights)}
    ODD[kind](weights)
    if kind == "somebody else's folder":  # as for a user without root rights
        own = Path.iterdir
        monkeypatch.setattr(
            Path,
            "iterdir",
            lambda path: (
                own(path)
                if path.name != "lost+found"
                else (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
            ),
        )
    assert before <= {checkpoint.name for checkpoint in checkpoints(weights)}
    if (weights / "odd").is_dir():
        with pytest.raises(VitvizError):
            load(find_checkpoint("odd", weights))
