"""What a file does not say and was taken anyway, with what else it may be: to be asked, never silently
guessed.

Families that can be told by their parts or the file's name have their normalisation from there (DeiT, DINO
and MAE: ImageNet's; SigLIP and Google's: one half; CLIP: its own). What is left is marked until somebody
says it: an argument of `vitviz.load`, a name such as `vit.pth?heads=6`, or a config.json beside the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from vitviz.engine.checkpoint import Assumption
from vitviz.engine.models import heads
from vitviz.engine.models.given import Given

NORMALISATIONS = {  # of values from 0 to 1
    "ImageNet": Given(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    "one half": Given(mean=(0.5,) * 3, std=(0.5,) * 3),
    "CLIP": Given(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)),
    "CIFAR-10": Given(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
    "none": Given(mean=(0.0,) * 3, std=(1.0,) * 3),
}
_FAMILIES = (  # words of a file's name -> normalisation
    (r"deit|dino|mae|moco|ibot", "ImageNet"),
    (r"clip", "CLIP"),
    (r"siglip|augreg|google|flexivit", "one half"),
)
_SAID_IN_WORDS = {
    "heads": "its number of heads", "normalisation": "its mean and deviation", "crop_pct": "its crop",
    "interpolation": "how its pictures are resized", "activation": "its activation", "epsilon": "its norms'"
    " epsilon",
    "mapping": "what its tensors are",
}  # fmt: skip


def family(tensors: Mapping[str, Tensor], name: str) -> str | None:
    """The normalisation that a family is known by, from the file's name and the parts that only it has."""
    for words, found in _FAMILIES:
        if re.search(rf"(?<![a-z])({words})", name.lower()):
            return found
    if "dist_token" in tensors:  # DeiT's distillation
        return "ImageNet"
    if "norm_pre.weight" in tensors:  # CLIP's way to begin
        return "CLIP"
    return None


def of_tensors(
    tensors: Mapping[str, Tensor],
    args: Mapping[str, Any],
    data: Mapping[str, Any],
    heads_told: bool,
    name: str,
) -> tuple[Assumption, ...]:
    """What a bare file in timm's layout leaves open, the value that was taken first among its choices."""
    found = []
    if not heads_told and "blocks.0.attn.q_norm.weight" not in tensors and heads.shown(tensors) is None:
        found.append(_of_heads(args["embed_dim"], args["num_heads"]))
    if family(tensors, name) is None:
        found += [normalisation(data)]
    found += resize(data)
    first = "quick_gelu" if family(tensors, name) == "CLIP" else "gelu"
    found.append(_assumption("activation", "gelu", [f"activation={one}" for one in dict.fromkeys(
        ("gelu", first, "gelu_tanh", "relu"))]))  # fmt: skip
    found.append(_assumption("epsilon", "1e-06", ["epsilon=1e-06", "epsilon=1e-05", "epsilon=1e-12"]))
    return tuple(found)


def normalisation(data: Mapping[str, Any]) -> Assumption:
    """That pictures are normalised as a data config has it, and how else they may be."""
    taken = Given(mean=tuple(data["mean"]), std=tuple(data["std"])).text()
    others = [one.text() for one in NORMALISATIONS.values() if one.text() != taken]
    return Assumption("normalisation", taken, (taken, *others))


def resize(data: Mapping[str, Any]) -> list[Assumption]:
    """The same of crop and interpolation."""
    crop, kind = (
        Given(crop_pct=float(data["crop_pct"])).text(),
        Given(interpolation=data["interpolation"]).text(),
    )
    crops = dict.fromkeys((crop, "crop_pct=0.875", "crop_pct=0.9", "crop_pct=1"))
    kinds = dict.fromkeys((kind, "interpolation=bicubic", "interpolation=bilinear"))
    return [Assumption("crop_pct", crop, tuple(crops)), Assumption("interpolation", kind, tuple(kinds))]


def left(assumed: Iterable[Assumption], given: Given) -> tuple[Assumption, ...]:
    """What is still assumed once something has been said."""
    said = given.said()
    return tuple(
        one for one in assumed if not Given.parse(one.taken).said().keys() <= said.keys() or not one.taken
    )


def warning(name: str, assumed: Iterable[Assumption]) -> str:
    """What was assumed, as a sentence for whoever loads in Python."""
    parts = [f"{_SAID_IN_WORDS[one.name]} ({one.taken.replace('&', ', ')})" for one in assumed if one.taken]
    parts += (
        ["what its tensors are (told from names and shapes)"] if any(not one.taken for one in assumed) else []
    )
    return (
        f"{name} does not say {', '.join(parts)}; what stands in brackets was assumed. Pictures of it rest"
        " on that: say it as arguments of vitviz.load, or in a config.json beside the file."
    )


def _of_heads(width: int, taken: int) -> Assumption:
    counts = dict.fromkeys([taken, *heads.likely(width)])
    return Assumption("heads", f"heads={taken}", tuple(f"heads={count}" for count in counts))


def _assumption(name: str, taken: str, choices: list[str]) -> Assumption:
    return Assumption(name, f"{name}={taken}", tuple(choices))
