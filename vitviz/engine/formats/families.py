"""Which of timm's architectures are plain Vision Transformers, and why the others are not.

Plain means: every block makes one global attention call over all tokens. What is known not to do so is
refused here by name, before anything is downloaded or built; the truth check at capture has the last word.
"""

import re
from difflib import get_close_matches

import timm

from vitviz.errors import CheckpointError, UnsupportedModel, quoted

# timm's module -> the family's name on the page, in the order of the picker.
FAMILIES = {
    "vision_transformer": "Vision Transformer", "deit": "DeiT", "vision_transformer_hybrid": "ResNet hybrid",
    "beit": "BEiT", "eva": "EVA and DINOv3", "vision_transformer_relpos": "Relative position",
    "naflexvit": "NaFlexViT",
}  # fmt: skip

_TOGETHER = {  # why others are not: timm's modules by the reason
    "attends within windows of the picture, not over all of it": (
        "swin_transformer swin_transformer_v2 swin_transformer_v2_cr vision_transformer_sam hieradet_sam2"
        " gcvit maxxvit davit nest tiny_vit twins"
    ),
    "shrinks its patch grid from stage to stage, so there is no one grid to draw on": (
        "pit levit mvitv2 hiera coat pvt_v2 visformer vitamin mobilevit"
    ),
    "is the vision tower of a language model, whose layers vitviz does not know": (
        "gemma4_vit qwen3_vit deepseek_vit"
    ),
    "mixes its heads before and after the softmax, and gives the class token layers of its own": "cait",
    "blends its attention with a fixed map of positions after the softmax": "convit",
    "attends between channels, not between patches": "xcit",
    "runs two branches with patches of two sizes": "crossvit",
    "runs a second transformer inside each patch": "tnt",
    "attends with weights that are not made of queries and keys": "volo",
}
_REASONS = {module: reason for reason, modules in _TOGETHER.items() for module in modules.split()}
# Differential attention subtracts two softmax maps, so a block has no one map.
_DIFFERENTIAL = re.compile(r"vit_d(p?wee|little)_")
# Transformers' own names for what is refused above, so that a folder of theirs gets the same answer.
_TRANSFORMERS = {
    "swin": "swin_transformer", "swinv2": "swin_transformer_v2", "sam": "vision_transformer_sam",
    "pvt": "pvt_v2",
}  # fmt: skip


def refusal(architecture: str) -> str | None:
    """Why a registered architecture is not shown, to end a sentence that its name begins; None if it is.

    >>> refusal("vit_base_patch16_224") is None, refusal("xcit_nano_12_p16_224")
    (True, 'attends between channels, not between patches')
    """
    module = timm_module(architecture)
    if _DIFFERENTIAL.match(architecture):
        return "subtracts two attention maps from one another, so a head has no one map"
    if module in FAMILIES:
        return None
    return _REASONS.get(module, f"has no attention over patches (timm's family {quoted(module)})")


def require_plain(architecture: str) -> None:
    """CheckpointError for a name that timm does not know, UnsupportedModel for one that is no plain ViT.

    >>> require_plain("resnet50")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    vitviz.errors.UnsupportedModel: resnet50 has no attention over patches (timm's family 'resnet'). ...
    """
    architecture = architecture.partition(".")[0]
    if not timm.is_model(architecture):
        close = get_close_matches(architecture, architectures(), n=3, cutoff=0.5)
        instead = f" Close to it: {', '.join(close)}." if close else ""
        raise CheckpointError(f"timm has no architecture {quoted(architecture)}.{instead}")
    if reason := refusal(architecture):
        raise UnsupportedModel(
            f"{architecture} {reason}. Choose a plain Vision Transformer such as vit_base_patch16_224."
        )


def transformers_refusal(model_type: str) -> str | None:
    """The same for a model type of Hugging Face transformers; None where it is not known to be refused."""
    return _REASONS.get(_TRANSFORMERS.get(model_type, model_type))


def architectures() -> list[str]:
    """timm's plain architectures, by family and name, without tags."""
    names = (name for module in FAMILIES for name in timm.list_models(module=module))
    return [name for name in names if not _DIFFERENTIAL.match(name)]


def timm_module(architecture: str) -> str:
    """The module of timm that an architecture lives in, such as 'vision_transformer'."""
    return timm.models.model_entrypoint(architecture.partition(".")[0]).__module__.rpartition(".")[2]
