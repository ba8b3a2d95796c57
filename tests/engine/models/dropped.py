"""A weights/ folder with all kinds of things dropped into it: names and shapes, for the catalogue."""

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


def tensors(path):
    save_file({"a.weight": torch.zeros(3, 4), "a.bias": torch.zeros(3)}, path)


def put(folder, config=None):
    folder.mkdir(parents=True)
    tensors(folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def dropped(root):
    """Two folders, three files, and what is no checkpoint."""
    put(root / "mine", CONFIG)
    put(
        root / "vitviz-tiny",
        CONFIG | {"vitviz": {"trained_on": "Pets", "licence": "MIT", "paper": "P", "note": "92 % of cats."}},
    )
    for name in ("plain.safetensors", "deit_tiny.pth", "b16.npz"):
        tensors(root / name)
    (root / "notes.txt").write_text("no checkpoint")
    (root / "empty").mkdir()
    return root


def local(weights):
    """What is listed of such a folder, by name."""
    return {one.name: one for one in checkpoints(weights) if one.source != "hub"}
