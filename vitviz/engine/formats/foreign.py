"""Say what a file holds if it holds no plain Vision Transformer, and what to do."""

import re
from collections.abc import Iterable

_MERGE = (
    "Put PEFT's adapter_config.json beside it, or merge it into its model (model.merge_and_unload()) and"
    " save that model"
)
_CHOOSE = "Choose a plain Vision Transformer"
# Pattern of a tensor's name -> what the file is, and what to do; the first that fits.
_KINDS = {
    r"\.lora_(A|B|embedding_[AB])\b": ("a LoRA adapter without its base model", _MERGE),
    r"(^|\.)layers\.\d+\.blocks\.\d+\.attn\.relative_position": (
        "a Swin Transformer, which attends within windows", _CHOOSE,
    ),
    r"(^|\.)image_encoder\.neck\.|^(mask|prompt)_(de|en)coder\.": (
        "SAM, which attends within windows", _CHOOSE,
    ),
    r"(^|\.)layer[1-4]\.\d+\.conv\d\.": ("a ResNet, which has no attention over patches", _CHOOSE),
    r"(^|\.)(down_blocks|model\.diffusion_model)\.": ("a diffusion model", _CHOOSE),
    r"(^|\.)(vision_model|text_model)\.": (
        "a transformers CLIP or SigLIP model without its config.json",
        "Put config.json and preprocessor_config.json of its folder beside it",
    ),
    r"(^|\.)(embed_tokens|wte|tok_embeddings)\.weight$": ("a language model", _CHOOSE),
    r"(^|\.)exp_avg(_sq)?$": ("an optimiser state", "Save model.state_dict() instead"),
}  # fmt: skip


def describe_foreign(names: Iterable[str]) -> str | None:
    """Return what tensors of these names are, and what to do; None if unknown.

    The text completes a sentence that begins with the file's name.

    >>> describe_foreign(["layer1.0.conv1.weight"])
    'is a ResNet, which has no attention over patches. Choose a plain Vision Transformer.'
    """
    text = "\n".join(names)
    kinds = (kind for pattern, kind in _KINDS.items() if re.search(pattern, text, re.MULTILINE))
    return next((f"is {what}. {advice}." for what, advice in kinds), None)
