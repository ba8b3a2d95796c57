"""Recognise checkpoints trained on image–text pairs: CLIP, the Perception Encoder, MobileCLIP, SigLIP.

Their last layer projects into a space shared with a text tower; it is no classifier. Includes open_clip's
files.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from timm.models import get_pretrained_cfg, is_model_pretrained

from vitviz.engine.formats.folder import read_json

CONFIG = "open_clip_config.json"
TOWERS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # both towers in one file
# tensor names that classifiers do not have
_TEXTS = re.compile(r"(module\.)?(logit_scale$|text_projection|visual(_projection)?\.|text\.)")


def is_contrastive_name(name: str) -> bool:
    """Return True if a timm name denotes such a checkpoint; ones fine-tuned on ImageNet have a classifier.

    >>> names = "vit_base_patch32_clip_224.openai", "vit_base_patch32_clip_224.openai_ft_in1k"
    >>> tuple(map(is_contrastive_name, names))
    (True, False)
    """
    return bool(re.search(r"_clip_|_pe_core_|_mci_", name)) and not re.search(r"_in(1|12|21|22)k", name)


def has_both_towers(tensors: Iterable[str]) -> bool:
    """Return True if the tensor names are open_clip's for both towers.

    >>> has_both_towers(["visual.proj", "token_embedding.weight"]), has_both_towers(["visual.proj"])
    (True, False)
    """
    names = set(tensors)
    read = {"token_embedding.weight", "text.token_embedding.weight"} & names
    return bool(read) and any(name.startswith("visual.") for name in names)


def outputs_projection(weights: Path, tensors: Iterable[str], name: str, outputs: int, labels: bool) -> bool:
    """Return True if the model's `outputs` are a projection rather than class scores.

    Evidence is the names of the file's tensors, open_clip's config beside the file, or timm's record of the
    model `name` and tag. False if the classes have labels.
    """
    if labels or not outputs:
        return False
    beside = weights.with_name(CONFIG)
    model = read_json(beside).get("model_cfg") if beside.is_file() else None
    if isinstance(model, Mapping) and model.get("embed_dim") == outputs or any(map(_TEXTS.match, tensors)):
        return True
    known = is_contrastive_name(name) and is_model_pretrained(name)
    return known and get_pretrained_cfg(name).num_classes == outputs
