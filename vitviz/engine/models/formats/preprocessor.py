"""transformers' preprocessor_config.json as one of timm's data configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
# What the authors' checkpoints of each type were trained with, where no preprocessor_config.json says it.
_DEFAULTS = {
    "vit": {
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
        "interpolation": "bilinear",
        "crop_mode": "squash",
        "crop_pct": 1.0,
    },
    "deit": {**_IMAGENET, "interpolation": "bicubic", "crop_mode": "squash", "crop_pct": 224 / 256},
    "vit_mae": {**_IMAGENET, "interpolation": "bicubic", "crop_mode": "center", "crop_pct": 224 / 256},
    "beit": {
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
        "interpolation": "bicubic",
        "crop_mode": "squash",
        "crop_pct": 1.0,
    },
    "dinov2": {**_IMAGENET, "interpolation": "bicubic", "crop_mode": "center", "crop_pct": 224 / 256},
    "dinov2_with_registers": {
        **_IMAGENET,
        "interpolation": "bicubic",
        "crop_mode": "center",
        "crop_pct": 224 / 256,
    },
    "dinov3_vit": {**_IMAGENET, "interpolation": "bilinear", "crop_mode": "squash", "crop_pct": 1.0},
}
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


def data_config(
    config: Mapping[str, Any], preprocessor: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """The preprocessing as a timm data config, and sentences on what was assumed. The size is the model's
    own.
    """
    kind = str(config["model_type"])
    size = pair(config.get("image_size", 224))
    data = {**_DEFAULTS[kind], "input_size": (config.get("num_channels", 3), *size)}
    if preprocessor is None:
        return data, [
            "There is no preprocessor_config.json; the normalisation that is usual for this type was assumed."
        ]
    if preprocessor.get("do_normalize", True):
        data |= {
            ours: tuple(preprocessor[theirs])
            for ours, theirs in (("mean", "image_mean"), ("std", "image_std"))
            if preprocessor.get(theirs)
        }
    else:
        data |= {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    data["interpolation"] = _RESAMPLING.get(preprocessor.get("resample"), data["interpolation"])
    resized, cropped = preprocessor.get("size"), preprocessor.get("crop_size")
    if isinstance(resized, Mapping):
        data["crop_mode"] = "center" if "shortest_edge" in resized else "squash"
        resized = resized.get("shortest_edge") or resized.get("height")
    if isinstance(cropped, Mapping):
        cropped = cropped.get("height")
    crops = bool(preprocessor.get("do_center_crop", cropped is not None)) and resized and cropped
    data["crop_pct"] = min(1.0, cropped / resized) if crops else 1.0
    seen = cropped if crops else resized
    if seen and seen != size[0]:
        return data, [
            f"Shown at {size[0]} x {size[1]} px, the size in its config.json; its own preprocessing asks for"
            f" {seen} px."
        ]
    return data, []


def pair(size: Any) -> tuple[int, int]:
    """Height and width of a size that is given as one number or two."""
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)
