"""timm's plain Vision Transformer architectures, and reasons for refusing the others.

Plain means that every block makes one global attention call over all tokens. Architectures known to do
otherwise are refused here by name, before any download or build. The truth check at capture decides finally.
"""

import re
from difflib import get_close_matches

import timm

from vitviz.errors import CheckpointError, UnsupportedModel, quoted

# timm's module -> family name on the page, in the order of the model picker.
FAMILIES = {
    "vision_transformer": "Vision Transformer", "deit": "DeiT", "vision_transformer_hybrid": "ResNet hybrid",
    "beit": "BEiT", "eva": "EVA and DINOv3", "vision_transformer_relpos": "Relative position",
    "naflexvit": "NaFlexViT",
}  # fmt: skip

_TOGETHER = {  # reason for refusal -> timm's modules
    "attends within windows of the image, not over all of it": (
        "swin_transformer swin_transformer_v2 swin_transformer_v2_cr vision_transformer_sam hieradet_sam2"
        " gcvit maxxvit davit nest tiny_vit twins"
    ),
    "shrinks its patch grid from stage to stage, so there is no single grid to draw on": (
        "pit levit mvitv2 hiera coat pvt_v2 visformer vitamin mobilevit"
    ),
    "is the vision tower of a language model, whose layers vitviz does not know": (
        "gemma4_vit qwen3_vit deepseek_vit"
    ),
    "mixes its heads before and after the softmax, and has separate layers for the class token": "cait",
    "blends its attention with a fixed map of positions after the softmax": "convit",
    "attends between channels, not between patches": "xcit",
    "has two branches with patches of two sizes": "crossvit",
    "runs a second transformer inside each patch": "tnt",
    "attends with weights that are not made of queries and keys": "volo",
}
_REASONS = {module: reason for reason, modules in _TOGETHER.items() for module in modules.split()}
# Differential attention subtracts two softmax maps, so a head has no single map.
_DIFFERENTIAL = re.compile(r"vit_d(p?wee|little)_")
# transformers' model types of refused families, so that their folders get the same reason.
_TRANSFORMERS = {
    "swin": "swin_transformer", "swinv2": "swin_transformer_v2", "sam": "vision_transformer_sam",
    "pvt": "pvt_v2",
}  # fmt: skip


def refusal(architecture: str) -> str | None:
    """Return the reason for refusing a registered architecture, or None if it is supported.

    The reason completes a sentence that begins with the architecture's name.

    >>> refusal("vit_base_patch16_224") is None, refusal("xcit_nano_12_p16_224")
    (True, 'attends between channels, not between patches')
    """
    module = timm_module(architecture)
    if _DIFFERENTIAL.match(architecture):
        return "subtracts two attention maps from each other, so a head has no single map"
    if module in FAMILIES:
        return None
    return _REASONS.get(module, f"has no attention over patches (timm family {quoted(module)})")


def require_plain(architecture: str) -> None:
    """Raise CheckpointError for a name unknown to timm, UnsupportedModel if the model is no plain ViT.

    >>> require_plain("resnet50")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    vitviz.errors.UnsupportedModel: resnet50 has no attention over patches (timm family 'resnet'). ...
    """
    architecture = architecture.partition(".")[0]
    if not timm.is_model(architecture):
        close = get_close_matches(architecture, architectures(), n=3, cutoff=0.5)
        instead = f" Similar names: {', '.join(close)}." if close else ""
        raise CheckpointError(f"timm has no architecture {quoted(architecture)}.{instead}")
    if reason := refusal(architecture):
        advice = "Choose a plain Vision Transformer such as vit_base_patch16_224."
        raise UnsupportedModel(f"{architecture} {reason}. {advice}")


def transformers_refusal(model_type: str) -> str | None:
    """Return the reason for refusing a model type of Hugging Face transformers, or None if there is none."""
    return _REASONS.get(_TRANSFORMERS.get(model_type, model_type))


def architectures() -> list[str]:
    """Return timm's plain architectures without tags, ordered by family and name."""
    names = (name for module in FAMILIES for name in timm.list_models(module=module))
    return [name for name in names if not _DIFFERENTIAL.match(name)]


def timm_module(architecture: str) -> str:
    """Return the timm module that defines an architecture, such as 'vision_transformer'."""
    return timm.models.model_entrypoint(architecture.partition(".")[0]).__module__.rpartition(".")[2]
