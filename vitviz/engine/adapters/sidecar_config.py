"""Save the user's settings for a bare weights file as a config.json in timm's form beside the file.

For a folder of one checkpoint the name is `config.json`, as timm writes it; beside other weights it is
`vit.config.json`. timm can read such a folder, too (`local-dir:`), except for the norms' epsilon and
placement, the chosen set of weights and the type of the head, which timm's form cannot express. These are
stored under `vitviz`. A proposed mapping is saved with the config.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vitviz.engine.adapters.proposal import propose_mapping
from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.formats import inference
from vitviz.engine.formats.folder import config_beside, file_stem, refusing
from vitviz.engine.formats.mapping import mapping_beside, mapping_file, to_toml
from vitviz.engine.formats.overrides import Overrides, activation_name, block_form, split_name
from vitviz.engine.formats.weights import read_tensors
from vitviz.engine.hub.files import weights_of
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.errors import CheckpointError
from vitviz.traces.head_type import HeadType

_EPSILON = 1e-6  # timm's
# settings that timm's form cannot express
_USUAL = {"epsilon": _EPSILON, "block": "pre-norm", "weights": None, "head_type": "softmax"}


def config_of(
    checkpoint: Checkpoint, model: nn.Module, preprocessing: Preprocessing, labels: tuple[str, ...] = (),
    head_type: HeadType = "softmax",
) -> dict[str, Any]:  # fmt: skip
    """Return a loaded checkpoint's config.json in timm's form, with all stated and assumed settings.

    Raises CheckpointError for a model that a plain ViT's arguments in timm's form cannot describe.
    """
    name, overrides = split_name(checkpoint.name)
    block = model.blocks[0]
    args: dict[str, Any] = {}
    if type(model) is VisionTransformer:
        _, args, _ = inference.architecture_of(model.state_dict(), name, block.attn.num_heads)
        args["act_layer"] = activation_name(getattr(block.mlp, "act", None))
        args |= {"global_pool": model.global_pool, "pool_include_prefix": model.pool_include_prefix}
    if not args or args["act_layer"] is None or "mlp_layer" in args:
        raise CheckpointError(
            f"{name} has parts that its tensors do not fully describe. Write a config.json in timm's form:"
            " architecture, model_args, pretrained_cfg."
        )
    pictures = {
        "input_size": [preprocessing.channels, *preprocessing.size],
        "mean": list(preprocessing.mean), "std": list(preprocessing.std),
        "crop_pct": preprocessing.crop_pct, "crop_mode": preprocessing.crop_mode,
        "interpolation": preprocessing.interpolation, "num_classes": args["num_classes"],
    }  # fmt: skip
    if labels:
        pictures["label_names"] = list(labels)
    epsilon = next((part.eps for part in model.modules() if isinstance(part, nn.LayerNorm)), _EPSILON)
    own = dict(zip(_USUAL, (epsilon, block_form(model), overrides.weights, head_type), strict=True))
    own = {key: value for key, value in own.items() if value != _USUAL[key]}
    return {
        "architecture": checkpoint.architecture, "num_classes": args.pop("num_classes"), "model_args": args,
        "pretrained_cfg": pictures, **({"vitviz": own} if own else {}),
    }  # fmt: skip


def write_config(
    checkpoint: Checkpoint, model: nn.Module, preprocessing: Preprocessing, labels: tuple[str, ...] = (),
    head_type: HeadType = "softmax",
) -> Path:  # fmt: skip
    """Write the config beside the weights and return its path; later loads assume nothing.

    Raises CheckpointError if the checkpoint is no local file, has a config already, or the folder is not
    writable.
    """
    place, weights = Path(checkpoint.location), weights_of(checkpoint)
    if checkpoint.source != "local" or weights is None or not weights.is_file():
        raise CheckpointError(
            f"{checkpoint.name} is not a file on this machine, so no config can be saved beside it."
        )
    if config_beside(weights):
        raise CheckpointError(f"{checkpoint.name} already has a config.json. Add the missing settings there.")
    _, overrides = split_name(checkpoint.name)
    path = place / "config.json" if place.is_dir() else weights.with_name(f"{file_stem(weights)}.config.json")
    content = config_of(checkpoint, model, preprocessing, labels, head_type)
    with refusing(f"{path.name} cannot be written: {{said}}. Write it by hand.", OSError):
        settings = {assumption.name for assumption in checkpoint.assumed}
        if "mapping" in settings and mapping_beside(weights) is None:
            tensors = read_tensors(weights, overrides.weights).tensors
            _write(mapping_file(weights), to_toml(propose_mapping(tensors).mapping))
        _write(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def own_settings(config: Mapping[str, Any]) -> Overrides:
    """Return the settings of a config that timm's form cannot express, from `vitviz`."""
    own = config.get("vitviz")
    own = own if isinstance(own, Mapping) else {}
    return Overrides(**{name: own.get(name) for name in _USUAL})


def _write(path: Path, text: str) -> None:
    """Write a file atomically."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
