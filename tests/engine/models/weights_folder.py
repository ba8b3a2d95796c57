"""A weights folder with valid and invalid entries, for tests of the catalogue."""

import json

import torch
from safetensors.torch import save_file

from vitviz.engine.hub.catalogue import checkpoints

CONFIG = {
    "architecture": "vit_tiny_patch16_224",
    "num_classes": 3,
    "model_args": {"img_size": [32, 48], "patch_size": 8},
    "pretrained_cfg": {
        "tag": "augreg_in21k_ft_in1k",
        "license": "mit",
        "paper_ids": ["arXiv:1", "arXiv:2"],
        "description": "Described.",
    },
}


def save_tensors(path):
    save_file({"a.weight": torch.zeros(3, 4), "a.bias": torch.zeros(3)}, path)


def save_checkpoint(folder, config=None):
    folder.mkdir(parents=True)
    save_tensors(folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def mixed_weights_folder(root):
    """Fill a folder with two checkpoint folders, three weights files, and entries that are no checkpoint."""
    save_checkpoint(root / "mine", CONFIG)
    save_checkpoint(
        root / "vitviz-tiny",
        CONFIG | {"vitviz": {"trained_on": "Pets", "licence": "MIT", "paper": "P", "note": "92 % of cats."}},
    )
    for name in ("plain.safetensors", "deit_tiny.pth", "b16.npz"):
        save_tensors(root / name)
    (root / "notes.txt").write_text("no checkpoint")
    (root / "empty").mkdir()
    return root


def local_checkpoints(weights):
    """Return the listed checkpoints of a folder by name, without those of the hub."""
    return {checkpoint.name: checkpoint for checkpoint in checkpoints(weights) if checkpoint.source != "hub"}
