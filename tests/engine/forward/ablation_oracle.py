"""The same as an edited pass by another way: torch's attention itself is exchanged while timm's own model
runs.
"""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import torch
import torch.nn.functional as F

from tests.engine.accounts import CONSTRUCTIONS, small_model
from tests.engine.looking import inspect, noise
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare

# class token, registers, averages, rotary, relative bias, parallel, sub-norms, gates, attention pooling
FAMILIES = [
    "class", "registers", "distilled", "average, then norm", "norm, then average",
    "norm before the projection, averaged",
    "parallel", "parallel, averaged", "gated", "gated, averaged", "EVA-02", "BEiT-3 like",
    "attention pooling", "BEiT",
    "relative positions", "relative positions, norm behind", "RoPE, averaged", "class and mean",
]  # fmt: skip
_attend = F.scaled_dot_product_attention


def inspector_of(family: str):
    if family == "RoPE, averaged":
        changes = {"global_pool": "avg", "use_rot_pos_emb": True}
        return inspect(small_model("EVA-02", **{**changes, "scale_attn_inner": False}).float())
    return inspect(small_model(family).float())


def pixels_of(inspector, picture=None) -> torch.Tensor:
    return prepare(open_image(noise() if picture is None else picture), inspector.preprocessing).tensor[None]


@contextmanager
def attending(layers: int, change):
    """`change(layer, query, key, value, mask, attend)` is what the attention of a model's blocks gives."""
    calls = []

    def attend(query, key, value, attn_mask=None, **others):
        calls.append(1)
        if len(calls) > layers:
            return _attend(query, key, value, attn_mask, **others)
        return change(len(calls) - 1, query, key, value, attn_mask, _attend)

    with torch.no_grad(), mock.patch.object(F, "scaled_dot_product_attention", attend):
        yield


def hidden(model, pixels, places) -> torch.Tensor:
    """The answer where keys of all other places are masked in every layer, and only these places are read."""
    unseen = torch.full((int(model.num_prefix_tokens) + model.patch_embed.num_patches,), float("-inf"))
    unseen[places] = 0

    def change(layer, query, key, value, mask, attend):
        return attend(
            query, key, value, unseen.expand(query.shape[-2], -1) if mask is None else mask + unseen
        )

    with attending(len(model.blocks), change):
        tokens = model.forward_features(pixels)
    with torch.no_grad():
        return model.forward_head(tokens[:, places])[0]


def handed(model, pixels) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What attention calls and MLPs give, by layer."""
    heads, mlps = [], []

    def change(layer, query, key, value, mask, attend):
        heads.append(attend(query, key, value, mask)[0])
        return heads[-1][None]

    hooks = [
        mlp(block).register_forward_hook(lambda _, args, output: mlps.append(output[0]))
        for block in model.blocks
    ]
    with attending(len(model.blocks), change):
        model(pixels)
    [hook.remove() for hook in hooks]
    return heads, mlps


def put(model, pixels, heads: dict, mlps: dict) -> torch.Tensor:
    """The answer with {(layer, head): what makes of its output another} and {layer: the same for its MLP}."""

    def change(layer, query, key, value, mask, attend):
        found = attend(query, key, value, mask).clone()
        for (one, head), instead in heads.items():
            if one == layer:
                found[:, head] = instead(found[:, head])
        return found

    def put_in(instead):
        return lambda module, args, output: instead(output).expand_as(output)

    hooks = [
        mlp(model.blocks[layer]).register_forward_hook(put_in(instead)) for layer, instead in mlps.items()
    ]
    with attending(len(model.blocks), change):
        answer = model(pixels)[0]
    [hook.remove() for hook in hooks]
    return answer


def mlp(block):
    return block.mlp_out_proj if hasattr(block, "mlp_out_proj") else block.mlp


assert set(FAMILIES) - {"RoPE, averaged"} <= set(CONSTRUCTIONS)
