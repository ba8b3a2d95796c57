"""Which checkpoints were trained against texts, so that their last layer is a projection into a space shared
with a text tower, and no classifier: CLIP, the Perception Encoder, MobileCLIP, SigLIP; and open_clip's files.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from timm.models import get_pretrained_cfg, is_model_pretrained

from vitviz.engine.formats.folder import read_json

CONFIG = "open_clip_config.json"
TOWERS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # both towers in one file
# names that no classifier has
_TEXTS = re.compile(r"(module\.)?(logit_scale$|text_projection|visual\.|text\.)")


def projecting(name: str) -> bool:
    """Whether a name of timm's is such a checkpoint's; those fine-tuned on ImageNet have a classifier.

    >>> projecting("vit_base_patch32_clip_224.openai"), projecting("vit_base_patch32_clip_224.openai_ft_in1k")
    (True, False)
    """
    return bool(re.search(r"_clip_|_pe_core_|_mci_", name)) and not re.search(r"_in(1|12|21|22)k", name)


def holds_both(tensors: Iterable[str]) -> bool:
    """Whether a file's tensors are both towers' by open_clip's names.

    >>> holds_both(["visual.proj", "token_embedding.weight"]), holds_both(["visual.proj"])
    (True, False)
    """
    names = set(tensors)
    read = {"token_embedding.weight", "text.token_embedding.weight"} & names
    return bool(read) and any(name.startswith("visual.") for name in names)


def projects(weights: Path, tensors: Iterable[str], name: str, outputs: int, labels: bool) -> bool:
    """Whether so many outputs are a projection: told by the names of the file's tensors, by open_clip's
    config beside it, or by timm's record of its config's `name` and tag, unless classes are named.
    """
    if labels or not outputs:
        return False
    beside = weights.with_name(CONFIG)
    model = read_json(beside).get("model_cfg") if beside.is_file() else None
    if isinstance(model, Mapping) and model.get("embed_dim") == outputs or any(map(_TEXTS.match, tensors)):
        return True
    return projecting(name) and is_model_pretrained(name) and get_pretrained_cfg(name).num_classes == outputs
