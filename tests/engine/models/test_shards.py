"""Sharded checkpoints: complete, incomplete, inconsistent, or with an index that points elsewhere."""

import json
import os
import pickle
from math import prod

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

from tests.engine.small_models import assert_same_logits, perturbed, save_model, small_vit
from vitviz.engine.adapters.load import load
from vitviz.engine.formats.folder import shards
from vitviz.engine.formats.weights import bytes_held, read_shapes
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint
from vitviz.errors import CheckpointError

INDEX = {True: "model.safetensors.index.json", False: "pytorch_model.bin.index.json"}
CONFIG = {
    "architecture": "vit_tiny_patch16_224",
    "num_classes": 7,
    "model_args": {"img_size": 32, "patch_size": 8, "embed_dim": 128},
}
CONFIG["model_args"] |= {"depth": 2, "num_heads": 2}


def save_shards(folder, model, safe=True):
    """Save a model in about five shards with the function that transformers uses."""
    folder.mkdir(exist_ok=True)
    save_torch_state_dict(model.state_dict(), folder, max_shard_size="350KB", safe_serialization=safe)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    paths = sorted(path for path in folder.iterdir() if "-of-" in path.name)
    assert len(paths) > 3
    return paths


@pytest.fixture
def folder(tmp_path):
    save_shards(tmp_path / "mine", small_vit())
    return tmp_path / "mine"


def rewrite(index, change):
    content = json.loads(index.read_text())
    change(content["weight_map"])
    index.write_text(json.dumps(content))


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("source", ["", "index", "without config"])
def test_shards_are_read_as_one_file(safe, source, tmp_path):
    model = small_vit()
    save_shards(tmp_path, model, safe)
    if source == "without config":
        (tmp_path / "config.json").unlink()
    assert_same_logits(
        load(find_checkpoint(str(tmp_path / INDEX[safe] if source == "index" else tmp_path))),
        model,
        tolerance=0,
    )


@pytest.mark.parametrize("safe", [True, False])
def test_transformers_shards_give_transformers_logits(safe, tmp_path):
    hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")
    config = hf.ViTConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=96,
        image_size=28,
        patch_size=7,
    )
    model = perturbed(hf.ViTForImageClassification(config))
    if safe:
        model.save_pretrained(tmp_path, max_shard_size="60KB")
    else:  # transformers still reads this format but no longer writes it
        model.config.save_pretrained(tmp_path)
        save_torch_state_dict(model.state_dict(), tmp_path, max_shard_size="60KB", safe_serialization=False)
    assert len(shards(tmp_path / INDEX[safe])) > 3
    pixels = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = hf.ViTForImageClassification.from_pretrained(tmp_path)(pixels).logits
        torch.testing.assert_close(
            load(find_checkpoint(str(tmp_path))).model(pixels), expected, atol=1e-4, rtol=0
        )


def test_sharded_checkpoint_is_listed_once_with_parameters(folder):
    listed = [checkpoint for checkpoint in checkpoints(folder.parent) if checkpoint.source == "local"]
    assert [(checkpoint.name, checkpoint.parameters) for checkpoint in listed] == [
        ("mine", sum(value.numel() for value in small_vit().state_dict().values()))
    ]
    assert find_checkpoint("mine", folder.parent, trusted=False) == listed[0]


def test_size_and_shapes_cover_all_shards(folder):
    index = folder / INDEX[True]
    assert read_shapes(index) == {
        name: tuple(value.shape) for name, value in small_vit().state_dict().items()
    }
    assert bytes_held(index) == sum(path.stat().st_size for path in folder.iterdir() if "-of-" in path.name)
    single_file = save_model(small_vit(), folder / "one.safetensors")
    assert (
        bytes_held(single_file)
        == single_file.stat().st_size
        > 4 * sum(map(prod, read_shapes(single_file).values()))
    )


def test_single_file_precedes_index(folder):
    other = small_vit(num_classes=7)
    with torch.no_grad():
        other.head.bias.add_(1)
    save_model(other, folder / "model.safetensors")
    assert_same_logits(load(find_checkpoint(str(folder))), other, tolerance=0)


def test_missing_shards_are_named(folder):
    first, second, *_ = sorted(path for path in folder.iterdir() if "-of-" in path.name)
    second.unlink()
    with pytest.raises(
        CheckpointError, match=rf"{second.name} of \d shards is missing from mine/\. Download"
    ):
        load(find_checkpoint(str(folder)))
    first.unlink()
    with pytest.raises(CheckpointError, match=rf"{first.name} and 1 more of \d shards are missing"):
        load(find_checkpoint(str(folder)))
    assert [one.parameters for one in checkpoints(folder.parent) if one.source == "local"] == [None]


@pytest.mark.parametrize("damage", ["cut", "lacking", "too many"])
def test_shard_inconsistent_with_index_is_named(damage, folder):
    shard = next(path for path in sorted(folder.iterdir()) if "-of-" in path.name)
    tensors = load_file(shard)
    missing = sorted(tensors)[0]
    if damage == "cut":
        shard.write_bytes(shard.read_bytes()[:500])
    elif damage == "lacking":
        save_file({name: value for name, value in tensors.items() if name != missing}, shard)
    else:
        save_file(tensors | {"blocks.9.norm1.bias": torch.ones(3)}, shard)
    reason = {
        "cut": "is damaged",
        "lacking": f"{missing} is missing from it",
        "too many": "blocks.9.norm1.bias is in it, but not in the",
    }
    with pytest.raises(CheckpointError, match=rf"{shard.name} .*{reason[damage]}"):
        load(find_checkpoint(str(folder)))


OUTSIDE = [
    "../outside.safetensors",
    "/etc/outside.safetensors",
    "deeper/../../outside.safetensors",
    "..\\outside.safetensors",
]
OUTSIDE += ["C:outside.safetensors", "..", ".", "", "outside\0.safetensors", "~/outside.safetensors", 3, None]


@pytest.mark.parametrize("name", OUTSIDE)
def test_index_cannot_point_outside_its_folder(name, folder):
    save_model(small_vit(), folder.parent / "outside.safetensors")
    rewrite(folder / INDEX[True], lambda places: places.update({"cls_token": name}))
    with pytest.raises(
        CheckpointError,
        match="which was not opened: only .safetensors files in the same folder are read",
    ):
        load(find_checkpoint(str(folder)))


def test_safetensors_index_cannot_point_to_pickle(folder):
    (folder / "evil.bin").write_bytes(b"")
    rewrite(folder / INDEX[True], lambda places: places.update({"cls_token": "evil.bin"}))
    with pytest.raises(CheckpointError, match="refers to 'evil.bin', which was not opened"):
        load(find_checkpoint(str(folder)))


def test_shard_linked_outside_folder_is_rejected(folder):
    shard = next(path for path in sorted(folder.iterdir()) if "-of-" in path.name)
    elsewhere = shard.rename(folder.parent / "elsewhere.safetensors")
    shard.symlink_to(elsewhere)
    with pytest.raises(
        CheckpointError, match=rf"mine/{shard.name} was not opened: it is a link out of its folder"
    ):
        load(find_checkpoint(str(folder)))


def test_folder_of_links_like_hub_cache_is_read(folder):
    snapshot = folder.parent / "snapshot"
    snapshot.mkdir()
    for path in folder.iterdir():
        (snapshot / path.name).symlink_to(path)
    assert_same_logits(
        load(find_checkpoint(str(snapshot))), load(find_checkpoint(str(folder))).model, tolerance=0
    )


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_shard_with_code_is_rejected_and_code_does_not_run(tmp_path):
    marker = tmp_path / "it-ran"
    shard = save_shards(tmp_path / "mine", small_vit(), safe=False)[1]
    torch.save(torch.load(shard, weights_only=True) | {"more": Hostile(marker)}, shard)
    with pytest.raises(
        CheckpointError, match=rf"{shard.name} was not opened: it is a pickle that would run code"
    ):
        load(find_checkpoint(str(tmp_path / "mine")))
    assert not marker.exists()
    pickle.loads(pickle.dumps(Hostile(marker)))  # the payload works when unpickled
    assert marker.exists()


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": ["model-00001-of-00002.safetensors"]}']
)
def test_unreadable_index_is_reported_and_listing_works(content, folder):
    (folder / INDEX[True]).write_text(content)
    with pytest.raises(
        CheckpointError, match="mine/model.safetensors.index.json (is not|holds a|has no weight_map)"
    ):
        load(find_checkpoint(str(folder)))
    assert "mine" in [one.name for one in checkpoints(folder.parent)]
