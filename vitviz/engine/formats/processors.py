"""Preprocessing from transformers' preprocessor_config.json.

Every field of an image processor is applied, or the folder is refused with the field's name. A missing field
takes the default of the processor's class; null stays null, as in transformers. A field that the class does
not define (do_reduce_labels, crop_pct, …) has no effect in transformers and none here. do_convert_rgb has no
effect, because images are already RGB. `vitviz.engine.images.processor` executes the steps.
"""

import re
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torchvision
from timm.data import constants

from vitviz.engine.formats import towers
from vitviz.engine.images.preprocess import MIN_CROP
from vitviz.engine.images.processor import Pair, Processor
from vitviz.errors import CheckpointError

_IMAGENET = {"mean": constants.IMAGENET_DEFAULT_MEAN, "std": constants.IMAGENET_DEFAULT_STD}
_HALF = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
_CLIP = {"mean": constants.OPENAI_CLIP_MEAN, "std": constants.OPENAI_CLIP_STD}
_SQUASHED = {"crop_mode": "squash", "crop_pct": 1.0}
_META = {**_IMAGENET, "interpolation": "bicubic", "crop_mode": "center", "crop_pct": 224 / 256}
# Training preprocessing of the authors' checkpoints by type, for folders without preprocessor_config.json.
_DEFAULTS = {
    "vit": {**_HALF, **_SQUASHED, "interpolation": "bilinear"}, "deit": {**_META, "crop_mode": "squash"},
    "vit_mae": _META, "beit": {**_HALF, **_SQUASHED, "interpolation": "bicubic"}, "dinov2": _META,
    "dinov2_with_registers": _META, "dinov3_vit": {**_IMAGENET, **_SQUASHED, "interpolation": "bilinear"},
    "clip": {**_CLIP, "interpolation": "bicubic", "crop_mode": "center", "crop_pct": 1.0},
    "siglip": {**_HALF, **_SQUASHED, "interpolation": "bicubic"},
}  # fmt: skip


def _of_class(norm: Mapping[str, Any], resample: int, size: int = 224, **others: Any) -> dict[str, Any]:
    """Return an image processor class's default fields: normalisation, Pillow's filter code, size.

    `others` replace or add fields.
    """
    return {
        "image_mean": norm["mean"], "image_std": norm["std"], "resample": resample, "size": [size, size],
        "default_to_square": True, "crop_size": None, "do_resize": True, "do_center_crop": False,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "do_pad": False,
        "pad_size": None, **others,
    }  # fmt: skip


_CROPPED = {"crop_size": 224, "do_center_crop": True}
_SHORTEST = {**_of_class(_CLIP, 3, **_CROPPED), "size": {"shortest_edge": 224}, "default_to_square": False}
# Defaults of transformers' image processors, by class name without its suffix.
_CLASSES = {
    "ViT": _of_class(_HALF, 2), "DeiT": _of_class(_HALF, 3, 256, **_CROPPED),
    "Beit": _of_class(_HALF, 3, crop_size=224), "Bit": _SHORTEST, "CLIP": _SHORTEST,
    "DINOv3ViT": _of_class(_IMAGENET, 2), "Siglip": _of_class(_HALF, 3, default_to_square=False),
}  # fmt: skip
_CLASS_OF = {
    "vit": "ViT", "deit": "DeiT", "vit_mae": "ViT", "beit": "Beit", "dinov2": "Bit",
    "dinov2_with_registers": "Bit", "dinov3_vit": "DINOv3ViT",
    "clip": "CLIP", "siglip": "Siglip",
}  # fmt: skip
_WITHOUT_PADDING = ("Beit", "DINOv3ViT")  # their own implementations ignore do_pad
# Pillow's codes of the resampling filters that torchvision supports for tensors.
_RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}
if tuple(map(int, torchvision.__version__.split(".")[:2])) >= (0, 27):
    _RESAMPLING[1] = "lanczos"
# Keys of a size -> resize rule of the processor.
_FORMS = {
    ("height", "width"): "exact", ("shortest_edge",): "cover", ("shortest_edge", "longest_edge"): "limit",
    ("max_height", "max_width"): "within",
}  # fmt: skip


def data_config(
    config: Mapping[str, Any], preprocessor: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """Return the preprocessing as a timm data config with a `processor`, and sentences on assumptions.

    `input_size` is the processor's output size. Raises CheckpointError with the field's name for an
    unsupported value.
    """
    config = towers.vision_config(config)
    kind, own = str(config["model_type"]), height_and_width(config.get("image_size", 224))
    data = {**_DEFAULTS[kind], "input_size": (config.get("num_channels", 3), *own)}
    if preprocessor is None:
        steps = Processor(own, in_fractions=kind == "dinov3_vit")
        data["processor"] = steps.cutting(data["crop_mode"], data["crop_pct"])
        return data, [
            "There is no preprocessor_config.json; the usual normalisation of this type was assumed."
        ]
    name, settings = _class(preprocessor, kind)
    processor = _steps(settings, name)
    resized = processor.resized(*processor.size, processor.size)  # an image of the output's shape
    share = min(1.0, *(side / max(1, wider) for side, wider in zip(processor.size, resized, strict=True)))
    if share < MIN_CROP:
        raise _refusal(
            f"size is {settings['size']}, more than {1 / MIN_CROP:g} times the part that the crop keeps"
        )
    data |= {
        "processor": processor, "input_size": (data["input_size"][0], *processor.size), **_scale(settings),
        "crop_mode": "squash" if processor.resize == "exact" else "center", "crop_pct": share,
    }  # fmt: skip
    if settings["do_resize"]:
        if type(settings["resample"]) is not int or settings["resample"] not in _RESAMPLING:
            known = ", ".join(f"{number} ({word})" for number, word in sorted(_RESAMPLING.items()))
            raise _refusal(f"resample is {settings['resample']!r:.80}; {known} are supported")
        data["interpolation"] = _RESAMPLING[settings["resample"]]
    if processor.size == own:
        return data, []
    return data, [
        "Its preprocessing makes {} x {} px, but its positions were learned at {} x {} px; they are resized"
        " as transformers does.".format(*processor.size, *own)
    ]


def height_and_width(size: Any) -> Pair:
    """Return (height, width) of a size given as one number or two."""
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)


def _refusal(why: str) -> CheckpointError:
    """Return, not raise, the CheckpointError for an unsupported preprocessor_config.json."""
    return CheckpointError(
        f"preprocessor_config.json is not supported: {why}. Correct it, or choose another checkpoint."
    )


def _class(preprocessor: Mapping[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
    """Return the class name as transformers resolves it, and the fields with the class's defaults."""
    called = str(preprocessor.get("image_processor_type") or preprocessor.get("feature_extractor_type") or "")
    name = re.sub(r"(ImageProcessor(Fast)?|FeatureExtractor)$", "", called) or _CLASS_OF[kind]
    if name not in _CLASSES:
        raise _refusal(
            f"image_processor_type is {called:.80}; the ImageProcessor of {', '.join(_CLASSES)} is supported"
        )
    if preprocessor.get("use_square_size"):
        raise _refusal("use_square_size is set")
    settings = {field: preprocessor.get(field, default) for field, default in _CLASSES[name].items()}
    for field, value in settings.items():
        if field.startswith("do_") and not isinstance(value, bool | None):
            raise _refusal(f"{field} is {value!r:.80}; expected true or false")
    return name, settings


def _steps(fields: Mapping[str, Any], name: str) -> Processor:
    """Return the processor's resize, crop and padding steps."""
    resize, lengths, crop, pad = None, (0, 0), None, None
    if fields["do_resize"]:
        resize, lengths = _lengths(fields, "size", _FORMS, bool(fields["default_to_square"]))
    exact = {("height", "width"): "exact"}
    if fields["do_center_crop"]:
        _, crop = _lengths(fields, "crop_size", exact)
    if fields["do_pad"] and fields["pad_size"] is not None and name not in _WITHOUT_PADDING:
        _, pad = _lengths(fields, "pad_size", exact)
    size = pad or crop or (lengths if resize == "exact" else None)
    if size is None:
        keeps = "size keeps each image's own shape" if resize else "do_resize is false"
        raise _refusal(f"{keeps} and do_center_crop is false, so that images would differ in size")
    before = crop or (lengths if resize == "exact" else size)
    if before[0] > size[0] or before[1] > size[1]:
        smaller = f"smaller than the {before[0]} x {before[1]} before it"
        raise _refusal(f"pad_size is {size[0]} x {size[1]}, {smaller}")
    in_fractions = name == "DINOv3ViT" and bool(fields["do_rescale"])
    return Processor(size, resize, lengths, crop, pad, in_fractions)


def _lengths(
    fields: Mapping[str, Any], field: str, forms: Mapping[tuple[str, ...], str], square: bool = True
) -> tuple[str, Pair]:
    """Return the resize rule of a size field and its two lengths in pixels."""
    value = fields[field]
    if isinstance(value, int):
        value = {"height": value, "width": value} if square else {"shortest_edge": value}
    elif isinstance(value, list | tuple) and len(value) == 2:
        value = dict(zip(("height", "width"), value, strict=True))
    form = next((form for form in forms if isinstance(value, Mapping) and set(form) == set(value)), None)
    if form is None or not all(type(length) is int and length > 0 for length in value.values()):
        known = " or ".join(" and ".join(form) for form in forms)
        raise _refusal(f"{field} is {fields[field]!r:.80}; expected are {known} in pixels")
    first, second = value[form[0]], value[form[-1]]
    return forms[form], (first, second)


def _scale(fields: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Return mean and standard deviation for values in [0, 1]; another rescale factor is folded into both."""
    factor = fields["rescale_factor"] if fields["do_rescale"] else 1.0
    if not isinstance(factor, Real) or not factor > 0:
        raise _refusal(f"rescale_factor is {factor!r:.80}; expected a number above 0")
    numbers = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    if fields["do_normalize"]:
        numbers = {name: _three(fields, f"image_{name}") for name in numbers}
    return {name: tuple(value / (255 * factor) for value in values) for name, values in numbers.items()}


def _three(fields: Mapping[str, Any], field: str) -> tuple[float, ...]:
    """Return the field's number for each of three colour channels; one number counts for all.

    Raise CheckpointError for anything else.
    """
    value = fields[field]
    values = (value,) * 3 if isinstance(value, Real) else value
    three = isinstance(values, list | tuple) and len(values) == 3
    if not three or not all(isinstance(value, Real) for value in values):
        raise _refusal(f"{field} is {value!r:.80}; expected a number for each of three channels")
    return tuple(map(float, values))
