"""Assumptions about settings that a file does not state, with their alternatives; never silent guesses.

Words in the file's name and parts typical of a family suggest the likeliest value, nothing more. An
assumption stays marked until the user states the setting: to `vitviz.load`, in a name (`vit.pth?heads=6`), or
in a config.json.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from timm.layers import GluMlp
from torch import Tensor, nn

from vitviz.engine.checkpoint import Assumption
from vitviz.engine.formats import overrides
from vitviz.engine.formats.inference import infer_heads, likely_heads
from vitviz.engine.formats.overrides import Overrides

NORMALISATIONS = {  # for values in [0, 1]
    "ImageNet": Overrides(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    "one half": Overrides(mean=(0.5,) * 3, std=(0.5,) * 3),
    "CLIP": Overrides(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)),
    "CIFAR-10": Overrides(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
    "none": Overrides(mean=(0.0,) * 3, std=(1.0,) * 3),
}
_FAMILIES = {  # whole words of a file's name, without version -> normalisation
    "deit": "ImageNet", "dino": "ImageNet", "mae": "ImageNet", "moco": "ImageNet", "ibot": "ImageNet",
    "clip": "CLIP",
    "siglip": "one half", "augreg": "one half", "google": "one half", "flexivit": "one half",
}  # fmt: skip
_SAID_IN_WORDS = {
    "heads": "its number of heads", "normalisation": "its mean and deviation", "crop_pct": "its crop",
    "interpolation": "how its images are resized", "activation": "its activation",
    "epsilon": "its norms' epsilon", "mapping": "the names of its tensors",
    "pool": "what its classifier reads",
    "block": "the positions of its norms", "weights": "which of its sets of weights to show",
    "head_type": "the meaning of its single output",
}  # fmt: skip


def family_normalisation(tensors: Mapping[str, Tensor], name: str) -> str | None:
    """Return the name of the normalisation that a file's name or tensors suggest; None if there is none."""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])v?\d+(?![a-z])", " ", name.lower()))
    parts = {"dist_token": "ImageNet", "norm_pre.weight": "CLIP"}  # DeiT's distillation, CLIP's first norm
    by_name = [_FAMILIES[word] for word in words if word in _FAMILIES]
    return next(iter([*by_name, *(usual for part, usual in parts.items() if part in tensors)]), None)


def model_assumptions(
    model: nn.Module, tensors: Mapping[str, Tensor], data: Mapping[str, Any], heads_stated: bool
) -> tuple[Assumption, ...]:
    """Return the assumptions on what a bare file in timm's layout does not state, each with its choices."""
    now, assumed = model.blocks[0].attn, []
    if not heads_stated and "blocks.0.attn.q_norm.weight" not in tensors and infer_heads(tensors) is None:
        counts = dict.fromkeys([now.num_heads, *likely_heads(model.embed_dim)])
        assumed += assumption_with_choices("heads", counts)
    assumed += assumption_with_choices("pool", overrides.possible_poolings(model))
    assumed += assumption_with_choices("block", overrides.possible_block_forms(model))
    assumed += preprocessing_assumptions(data)
    mlp = getattr(model.blocks[0], "mlp", None)
    first = overrides.activation_name(getattr(mlp, "act", None)) or "gelu"
    likely = [first, "gelu", *["quick_gelu"] * ("norm_pre.weight" in tensors), "gelu_tanh", "relu"]
    likely += ["silu"] * isinstance(mlp, GluMlp)
    assumed += assumption_with_choices("activation", dict.fromkeys(likely))
    return *assumed, *assumption_with_choices("epsilon", ("1e-06", "1e-05", "1e-12"))


def assumption_with_choices(name: str, choices: Iterable[Any]) -> list[Assumption]:
    """Return [assumption of the first of several choices]; an empty list if there is a single choice."""
    spelled = [Overrides.parse(urlencode({name: choice})).text() for choice in choices]
    return [Assumption(name, spelled[0], tuple(spelled))] if len(spelled) > 1 else []


OF_ONE_OUTPUT = tuple(assumption_with_choices("head_type", ("sigmoid", "value")))


def preprocessing_assumptions(data: Mapping[str, Any]) -> tuple[Assumption, ...]:
    """Return the assumptions of a data config on normalisation, crop and interpolation, with alternatives."""
    normalisation = Overrides(mean=tuple(data["mean"]), std=tuple(data["std"])).text()
    others = [usual.text() for usual in NORMALISATIONS.values() if usual.text() != normalisation]
    crops = dict.fromkeys((float(data["crop_pct"]), 0.875, 0.9, 1.0))
    kinds = dict.fromkeys((data["interpolation"], "bicubic", "bilinear"))
    resized = *assumption_with_choices("crop_pct", crops), *assumption_with_choices("interpolation", kinds)
    return Assumption("normalisation", normalisation, (normalisation, *others)), *resized


def remaining_assumptions(assumed: Iterable[Assumption], settings: Overrides) -> tuple[Assumption, ...]:
    """Return the assumptions that the given settings do not replace."""
    stated = settings.said().keys()

    def is_left(assumption: Assumption) -> bool:
        return not assumption.taken or bool(Overrides.parse(assumption.taken).said().keys() - stated)

    return tuple(filter(is_left, assumed))


def assumption_warning(name: str, assumed: Sequence[Assumption]) -> str:
    """Return a warning that lists the assumptions, for users of the Python interface."""
    settings = [assumption for assumption in assumed if assumption.taken]
    parts = [f"{_SAID_IN_WORDS[setting.name]} ({setting.taken.replace('&', ', ')})" for setting in settings]
    if len(settings) < len(assumed):
        parts.append("the names of its tensors (inferred from names and shapes)")
    return (
        f"{name} does not specify {', '.join(parts)}. The values in brackets were assumed, and all results"
        " depend on them. Pass the right values to vitviz.load, or write them into a config.json beside the"
        " file."
    )
