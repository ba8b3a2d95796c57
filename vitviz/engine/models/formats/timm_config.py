"""timm's config.json: an architecture, the arguments that it was built with, and what its input must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from timm.models import PretrainedCfg, get_pretrained_cfg

from vitviz.errors import CheckpointError

# Arguments of timm.create_model that would make it load or wrap something by itself.
_NOT_MODEL_ARGS = {
    "pretrained",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "checkpoint_path",
    "cache_dir",
    "features_only",
    "pruned",
}


def described(config: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The arguments of the model, its pretrained_cfg with the size that these give, and what had to be
    assumed.

    Raises CheckpointError for arguments that would make timm do more than build a model.
    """
    args, given = dict(config.get("model_args") or {}), config.get("pretrained_cfg")
    if args.keys() & _NOT_MODEL_ARGS:
        not_allowed = ", ".join(sorted(args.keys() & _NOT_MODEL_ARGS))
        raise CheckpointError(
            f"{name}: model_args in config.json may only describe the model. Remove {not_allowed}."
        )
    known = {item.name for item in fields(PretrainedCfg)}
    told = {key: value for key, value in {**config, **(given or {})}.items() if key in known}
    notes = []
    if given is None and "mean" not in config:
        notes.append(
            f"Its config.json does not tell its preprocessing; timm's for {config['architecture']} is used."
        )
    base = default(str(config["architecture"]))
    if given is not None:  # as timm does; but whether and how the size is fixed belongs to the architecture
        base = {
            **asdict(PretrainedCfg()),
            "input_size": base["input_size"],
            "fixed_input_size": base["fixed_input_size"],
        }
    record = {**base, **told}
    channels, height, width = record["input_size"]
    size = args.get("img_size", (height, width))
    height, width = (size, size) if isinstance(size, int) else size
    record["input_size"] = (args.get("in_chans", channels), height, width)
    record["num_classes"] = config.get("num_classes", record["num_classes"])
    return args, record, notes


def default(architecture: str) -> dict[str, Any]:
    """timm's default pretrained_cfg of an architecture (DeiT's mean and deviation are not those of ViT),
    without labels.

    >>> default("deit_tiny_patch16_224")["mean"], default("vit_tiny_patch16_224")["mean"]
    ((0.485, 0.456, 0.406), (0.5, 0.5, 0.5))
    """
    try:
        record = get_pretrained_cfg(architecture) or PretrainedCfg()
    except RuntimeError as error:
        raise CheckpointError(
            f"timm has no checkpoint {architecture!r}. Leave out the part after the dot."
        ) from error
    return {**asdict(record), "label_names": None, "label_descriptions": None}
