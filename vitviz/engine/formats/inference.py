"""Infer the architecture of a plain ViT from its tensors: everything except, in general, the number of heads.

Tensor shapes and names determine width, depth, patch size, image size, classes, pooling and optional parts.
They do not determine the number of heads, because the queries, keys and values of all heads share one matrix
each. The number of heads is known from a query-key norm, from a Google file, or from the structure of trained
weights (below). Otherwise it is the number of the published ViT of this width, or else 64 dimensions per head
(the paper's table 1) if 64 divides the width. A note states the assumption.

Attention depends on a head's W_q and W_k only through W_qᵀ W_k, and under gradient flow the difference
W_q W_qᵀ - W_k W_kᵀ of each head keeps its initial value (layers balance: Du, Hu and Lee 2018, "Algorithmic
Regularization", theorem 2.2). Training therefore adds the same term to both: products of query rows resemble
products of key rows within a head, but not across heads. The same holds for values and the output projection.
The number of heads with the strongest block structure is chosen. Not detected: anything before training, and
a single head, which has no other block to contrast with.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import timm
import torch
from torch import Tensor

from vitviz.engine.formats.foreign import describe_foreign
from vitviz.errors import CheckpointError

# Width -> heads of published ViTs without 64 dimensions per head: so400m (SigLIP), H (paper, table 1),
# g and G (Zhai et al. 2021, table 2).
_HEADS = {1152: 16, 1280: 16, 1408: 16, 1664: 16}
_LAYERS = 6  # number of evenly spaced layers that are examined
_CLEAR = 15.0  # required contrast in standard errors: untrained weights reach 2, trained ones 35 and more
_AHEAD = 1.25  # required ratio of explained variance to the runner-up's
_USUAL = (64, 32, 16, 48, 80, 96, 128)  # dimensions per head, the paper's first
_OTHERS = 6  # number of choices offered if no usual dimension divides the width
_SIZES = {
    (192, 12, 3): "tiny", (384, 12, 6): "small", (768, 12, 12): "base", (1024, 24, 16): "large",
    (1280, 32, 16): "huge",
}  # fmt: skip
_MLP = ("blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight")
_HOW_TO_TELL = (
    "Name the timm architecture (architecture='vit_…'), or load the file into your own class and pass that"
    " model to vitviz.Inspector.of (docs/own-models.md)."
)


def architecture_of(
    tensors: Mapping[str, Tensor], name: str, heads: int | None = None
) -> tuple[str, dict[str, Any], list[str]]:
    """Return timm's entry point, its arguments, and sentences on assumptions.

    `heads` is the number of heads if the format states it. Raises CheckpointError for tensors that are not a
    plain ViT's or do not determine the architecture.
    """
    patches = tensors.get("patch_embed.proj.weight")
    numbers = (result[1] for key in tensors if (result := re.match(r"blocks\.(\d+)\.", key)))
    depth = 1 + max(map(int, numbers), default=-1)
    if patches is None or patches.ndim != 4 or not depth or "blocks.0.attn.qkv.weight" not in tensors:
        if kind := describe_foreign(tensors):
            raise CheckpointError(f"{name} {kind}")
        first = ", ".join(list(tensors)[:3])
        raise CheckpointError(
            f"{name} is not a plain ViT under timm's names (its first tensor is {first}). {_HOW_TO_TELL}"
        )
    width, channels, *patch = patches.shape
    heads, notes = _heads(tensors, width) if heads is None else (heads, [])
    if width % heads:
        raise CheckpointError(
            f"{name} cannot have {heads} heads: its width of {width} is not divisible by that number."
        )
    rows, no_embed_class = _grid(tensors, name)
    args: dict[str, Any] = {
        "embed_dim": width, "depth": depth, "num_heads": heads, "in_chans": channels,
        "patch_size": patch[0] if patch[0] == patch[1] else tuple(patch),
        "img_size": (rows * patch[0], rows * patch[1]),
        "num_classes": len(tensors["head.weight"]) if "head.weight" in tensors else 0,
        "no_embed_class": no_embed_class, **_parts(tensors, width),
    }  # fmt: skip
    if "dist_token" in tensors:
        return "deit_tiny_distilled_patch16_224", args, notes
    return entry_name(width, depth, heads, patch[0], rows * patch[0]), args | _pooling(tensors), notes


def entry_name(width: int, depth: int, heads: int, patch: int, size: int) -> str:
    """Return the registered ViT of these sizes, or vit_tiny_patch16_224, whose arguments can set any sizes.

    >>> entry_name(768, 12, 12, 16, 224), entry_name(96, 4, 3, 4, 32)
    ('vit_base_patch16_224', 'vit_tiny_patch16_224')
    """
    entry = f"vit_{_SIZES.get((width, depth, heads), 'tiny')}_patch{patch}_{size}"
    return entry if timm.is_model(entry) else "vit_tiny_patch16_224"


def grid_side(tokens: int, prefix: int) -> int | None:
    """Return the rows of a square grid whose position table has `tokens` entries; None if it is not square.

    `tokens` includes the `prefix` tokens.

    >>> grid_side(197, 1), grid_side(196, 0), grid_side(196, 1)
    (14, 14, None)
    """
    side = math.isqrt(max(tokens - prefix, 0))
    return side if side and side * side == tokens - prefix else None


def _heads(tensors: Mapping[str, Tensor], width: int) -> tuple[int, list[str]]:
    """Return the number of heads, and notes: one sentence if it was assumed from the width, else [].

    It is derived from the query norm or other weights where they tell it.
    """
    norm = tensors.get("blocks.0.attn.q_norm.weight")
    if norm is not None and 0 < len(norm) < width:
        return width // len(norm), []
    counted = infer_heads(tensors)
    if counted is not None:
        return counted, []
    heads = _HEADS.get(width) or likely_heads(width)[0]
    return heads, [
        f"The file does not specify its number of heads; {heads} of {width // heads} dimensions were assumed."
    ]


def _grid(tensors: Mapping[str, Tensor], name: str) -> tuple[int, bool]:
    """Return the rows of the (square) grid, and True if the prefix tokens have no position embedding."""
    table = tensors.get("pos_embed")
    if table is None or table.ndim != 3:
        raise CheckpointError(
            f"{name} has no table of absolute positions, so its image size is unknown. {_HOW_TO_TELL}"
        )
    prefix = sum(tensors[key].shape[1] for key in ("cls_token", "dist_token", "reg_token") if key in tensors)
    for counted, no_embed_class in ((prefix, False), (0, True)):
        rows = grid_side(table.shape[1], counted)
        if rows:
            return rows, no_embed_class and prefix > 0
    raise CheckpointError(
        f"{name} has {table.shape[1]} positions, {prefix} of them for prefix tokens, which fits no square"
        f" grid. {_HOW_TO_TELL}"
    )


def _parts(tensors: Mapping[str, Tensor], width: int) -> dict[str, Any]:
    """Return timm arguments for the optional parts of blocks and embedding."""
    missing = [one for one in _MLP if one not in tensors]
    if missing:
        detail = f"{missing[0]} is missing, as in blocks with a gated MLP (SwiGLU). {_HOW_TO_TELL}"
        raise CheckpointError(f"The MLP is not a plain one: {detail}")
    hidden, back = tensors[_MLP[0]].shape[0], tensors[_MLP[1]].shape[1]
    parts: dict[str, Any] = {
        "mlp_ratio": (hidden + 0.5) / width,  # timm takes the floor of ratio * width
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "proj_bias": "blocks.0.attn.proj.bias" in tensors,
        "qk_norm": "blocks.0.attn.q_norm.weight" in tensors,
        "pre_norm": "norm_pre.weight" in tensors,
        "reg_tokens": tensors["reg_token"].shape[1] if "reg_token" in tensors else 0,
    }
    if any(re.search(r"ls1\.gamma|gamma_1$", key) for key in tensors):
        parts["init_values"] = 1e-5
    if hidden == 2 * back:
        parts |= {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": "silu"}
    return parts


def _pooling(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return timm's pooling arguments: attention pooling, average (`fc_norm` or no class token), or class."""
    has_class = "cls_token" in tensors
    if "attn_pool.latent" in tensors:
        return {"class_token": has_class, "global_pool": "map"}
    after = "fc_norm.weight" in tensors
    pool = "avg" if after or not has_class else "token"
    final_norm = after or "norm.weight" in tensors
    return {"class_token": has_class, "global_pool": pool, "fc_norm": after, "final_norm": final_norm}


def likely_heads(width: int) -> tuple[int, ...]:
    """Return plausible numbers of heads for a model of this width, the likeliest first.

    >>> likely_heads(192), likely_heads(96), likely_heads(100)
    ((3, 6, 12, 4, 2), (3, 6, 2, 1), (2, 1, 4, 5, 10, 20))
    """
    usual = [width // dim for dim in _USUAL if width % dim == 0]
    divisors = [heads for heads in range(1, width + 1) if width % heads == 0]
    nearest = sorted(divisors, key=lambda heads: abs(math.log(width / heads / _USUAL[0])))
    return tuple(usual or nearest[:_OTHERS])


def infer_heads(tensors: Mapping[str, Tensor]) -> int | None:
    """Infer a plain ViT's number of heads from its weights in timm's layout; None if they are ambiguous."""
    ratios = head_count_contrasts(tensors)
    if len(ratios) < 2:
        return None
    (best, second) = sorted(ratios, key=lambda heads: ratios[heads][0])[-1:-3:-1]
    explained, errors = ratios[best]
    return best if errors >= _CLEAR and explained >= _AHEAD * max(ratios[second][0], 0.0) else None


def head_count_contrasts(tensors: Mapping[str, Tensor]) -> dict[int, tuple[float, float]]:
    """Score every possible number of heads by the block structure of the row similarities.

    Returns, per number of heads, the variance that its blocks explain (a signed sum of squares) and the
    difference between the means inside and outside of the blocks, in standard errors. Empty if the tensors
    have no such layers.
    """
    alike = _likeness(tensors)
    if alike is None:
        return {}
    width = len(alike)
    row, col = torch.triu_indices(width, width, 1)
    values = alike[row, col]
    total, spread = len(values), values.std().item()
    ratios = {}
    for heads in range(2, width // 2 + 1):
        if width % heads:
            continue
        dim = width // heads
        inside = row // dim == col // dim
        count = int(inside.sum())
        difference = (values[inside].mean() - values[~inside].mean()).item()
        share = count * (total - count) / total
        ratios[heads] = (share * difference * abs(difference), difference / spread * share**0.5)
    return ratios


def _likeness(tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Sum the products of row cosines (query × key, value × output projection) over layers; width × width."""
    depth = sum(bool(re.fullmatch(r"blocks\.\d+\.attn\.qkv\.weight", key)) for key in tensors)
    chosen = sorted({round(i * (depth - 1) / max(1, _LAYERS - 1)) for i in range(_LAYERS)}) if depth else []
    alike = None
    for layer in chosen:
        qkv = tensors.get(f"blocks.{layer}.attn.qkv.weight")
        proj = tensors.get(f"blocks.{layer}.attn.proj.weight")
        if qkv is None or proj is None or qkv.ndim != 2 or qkv.shape[0] != 3 * proj.shape[1]:
            return None
        q, k, v = qkv.float().chunk(3)
        both = _cosines(q) * _cosines(k) + _cosines(v) * _cosines(proj.float().T)
        alike = both if alike is None else alike + both
    return alike


def _cosines(rows: Tensor) -> Tensor:
    """Return the cosine similarity of every pair of rows of a matrix: (row, row)."""
    unit = torch.nn.functional.normalize(rows, dim=1)
    return unit @ unit.T
