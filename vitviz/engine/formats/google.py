"""Google's checkpoints: NumPy archives of JAX code (google-research/vision_transformer, big_vision).

Arrays are renamed and transposed into timm's layout, and then pass the strict check of all other formats.
Not supported: the attention pooling of SigLIP's archives; their timm conversions are on the hub.
"""

import re
from collections.abc import Mapping

import torch
from einops import rearrange
from torch import Tensor

from vitviz.engine.formats.folder import refusing

_ROOTS = ("opt/target/", "params/img/", "params/", "")
_ATTENTION = re.compile(r"MultiHeadDotProductAttention_\d/(query|key|value|out)/(kernel|bias)$")
_MLP = re.compile(r"MlpBlock_\d/Dense_(\d)/(kernel|bias)$")
_STEM = re.compile(r"block(\d+)/unit(\d+)/(conv|gn)(\d|_proj)/(kernel|scale|bias)$")
_KIND = {"kernel": "weight", "scale": "weight", "bias": "bias"}
_TOP = {
    "embedding": "patch_embed.proj", "Transformer/encoder_norm": "norm", "head": "head",
    "conv_root": "patch_embed.backbone.stem.conv", "gn_root": "patch_embed.backbone.stem.norm",
}  # fmt: skip


def is_google(tensors: Mapping[str, Tensor]) -> bool:
    """Return True if an archive has the array names of Google's checkpoints."""
    return any(f"{root}embedding/kernel" in tensors for root in _ROOTS)


def to_timm(arrays: Mapping[str, Tensor], name: str) -> tuple[dict[str, Tensor], int, list[str]]:
    """Return the tensors in timm's layout, the number of heads, and sentences on omitted parts.

    A representation layer (`pre_logits`) is omitted together with its classifier, because timm has no such
    layer and the classifier alone would give meaningless logits. Raises CheckpointError for an archive that
    `is_google`, but whose arrays are not shaped like Google's.
    """
    wrong = f"{name} is named like one of Google's ViT archives, but its arrays have other shapes"
    # einops' error is a RuntimeError
    kinds = KeyError, ValueError, IndexError, RuntimeError
    with refusing(f"{wrong} ({{why}}). Download it again.", *kinds):
        return _converted(arrays)


def _converted(arrays: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int, list[str]]:
    """Return Google's arrays in timm's layout, the number of heads, and sentences on omitted parts.

    Without blocks there are 0 heads.
    """
    root = next(root for root in _ROOTS if f"{root}embedding/kernel" in arrays)
    own = {key.removeprefix(root): value for key, value in arrays.items() if key.startswith(root)}
    notes = []
    if "pre_logits/kernel" in own:
        own = {key: value for key, value in own.items() if not key.startswith(("pre_logits/", "head/"))}
        notes.append("Its classifier was dropped: it reads a representation layer that timm does not have.")
    stem_only = not any(key.startswith("block1/") for key in own)
    blocks: dict[str, dict[str, Tensor]] = {}
    tensors: dict[str, Tensor] = {}
    heads = 0
    for key, value in own.items():
        block = re.match(r"Transformer/encoderblock(?:_(\d+))?/(.+)$", key)
        if not block:
            tensors[_top(key, stem_only)] = _turned(key, value)
        elif block[1] is not None:
            blocks.setdefault(block[1], {})[block[2]] = value
        else:  # big_vision stacks all layers along the first axis
            for layer, part_value in enumerate(value):
                blocks.setdefault(str(layer), {})[block[2]] = part_value
    for layer, parts in blocks.items():
        tensors |= {f"blocks.{layer}.{part}": value for part, value in _block(parts).items()}
        queries = (value.shape[1] for part, value in parts.items() if part.endswith("/query/kernel"))
        heads = next(queries, heads)
    return tensors, heads, notes


def _top(key: str, stem_only: bool) -> str:
    """Return timm's name of an array outside the blocks; unknown names stay for the strict check."""
    if key == "cls":
        return "cls_token"
    if key in ("Transformer/posembed_input/pos_embedding", "pos_embedding"):
        return "pos_embed"
    module, _, kind = key.rpartition("/")
    if module in _TOP and kind in _KIND:
        place = f"{_TOP[module]}.{_KIND[kind]}"
        return place.replace(".stem.", ".") if stem_only else place
    if unit := _STEM.match(key):
        stage, block, index, kind = int(unit[1]) - 1, int(unit[2]) - 1, unit[4], unit[5]
        layer = "conv" if unit[3] == "conv" else "norm"
        inner = f"downsample.{layer}" if index == "_proj" else f"{layer}{index}"
        return f"patch_embed.backbone.stages.{stage}.blocks.{block}.{inner}.{_KIND[kind]}"
    return key


def _turned(key: str, value: Tensor) -> Tensor:
    """Convert an array from JAX's channels-last axes to torch's."""
    if key in ("cls", "pos_embedding") or key.endswith("/pos_embedding"):
        return value if value.ndim == 3 else rearrange(value, "token width -> 1 token width")
    if key.endswith("/kernel"):
        return rearrange(value, "h w i o -> o i h w") if value.ndim == 4 else value.mT
    return value.flatten()  # group norms have the shape 1 x 1 x 1 x C


def _block(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert an encoder block: join queries, keys and values, flatten heads, transpose kernels."""
    joined: dict[str, dict[str, Tensor]] = {"weight": {}, "bias": {}}
    block: dict[str, Tensor] = {}
    # The first norm is LayerNorm_0; the second LayerNorm_2 in the paper's code, LayerNorm_1 in big_vision.
    norms = sorted({part.partition("/")[0] for part in parts if part.startswith("LayerNorm_")})
    for part, value in parts.items():
        if match := _ATTENTION.match(part):
            role, kind = match[1], _KIND[match[2]]
            if role != "out":
                flat = "width head dim -> (head dim) width" if kind == "weight" else "head dim -> (head dim)"
                joined[kind][role] = rearrange(value, flat)
            else:
                turned = value if kind == "bias" else rearrange(value, "head dim width -> width (head dim)")
                block[f"attn.proj.{kind}"] = turned
        elif match := _MLP.match(part):
            turned = value.mT if match[2] == "kernel" else value
            block[f"mlp.fc{int(match[1]) + 1}.{_KIND[match[2]]}"] = turned
        elif part.startswith("LayerNorm_"):
            module, kind = part.split("/")
            block[f"norm{norms.index(module) + 1}.{_KIND[kind]}"] = value
        else:
            block[part] = value
    for kind, roles in joined.items():
        if len(roles) == 3:
            block[f"attn.qkv.{kind}"] = torch.cat([roles["query"], roles["key"], roles["value"]])
    return block
