"""Oracle for edited passes: timm's own model runs with torch's attention function replaced."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import torch
import torch.nn.functional as F

from tests.engine.constructions import CONSTRUCTIONS, small_model
from tests.engine.random_inspectors import inspect, noise
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


def pixels_of(inspector, image=None) -> torch.Tensor:
    return prepare(open_image(noise() if image is None else image), inspector.preprocessing).tensor[None]


@contextmanager
def replaced_attention(layers: int, change):
    """Replace the attention output of every layer by `change(layer, query, key, value, mask, attend)`."""
    calls = []

    def attend(query, key, value, attn_mask=None, **others):
        calls.append(1)
        if len(calls) > layers:
            return _attend(query, key, value, attn_mask, **others)
        return change(len(calls) - 1, query, key, value, attn_mask, _attend)

    with torch.no_grad(), mock.patch.object(F, "scaled_dot_product_attention", attend):
        yield


def logits_of_positions(model, pixels, positions) -> torch.Tensor:
    """Return the logits if keys of all other positions are masked in every layer and only these positions
    are read.
    """
    key_mask = torch.full((int(model.num_prefix_tokens) + model.patch_embed.num_patches,), float("-inf"))
    key_mask[positions] = 0

    def change(layer, query, key, value, mask, attend):
        return attend(
            query, key, value, key_mask.expand(query.shape[-2], -1) if mask is None else mask + key_mask
        )

    with replaced_attention(len(model.blocks), change):
        tokens = model.forward_features(pixels)
    with torch.no_grad():
        return model.forward_head(tokens[:, positions])[0]


def head_and_mlp_outputs(model, pixels) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the outputs of attention calls and MLPs by layer."""
    heads, mlps = [], []

    def change(layer, query, key, value, mask, attend):
        heads.append(attend(query, key, value, mask)[0])
        return heads[-1][None]

    hooks = [
        mlp(block).register_forward_hook(lambda _, args, output: mlps.append(output[0]))
        for block in model.blocks
    ]
    with replaced_attention(len(model.blocks), change):
        model(pixels)
    [hook.remove() for hook in hooks]
    return heads, mlps


def logits_with_replacements(model, pixels, heads: dict, mlps: dict) -> torch.Tensor:
    """Return the logits with replaced head and MLP outputs.

    `heads` maps (layer, head) and `mlps` maps layers to functions of the original output.
    """

    def change(layer, query, key, value, mask, attend):
        outputs = attend(query, key, value, mask).clone()
        for (head_layer, head), replacement in heads.items():
            if head_layer == layer:
                outputs[:, head] = replacement(outputs[:, head])
        return outputs

    def replacement_hook(replacement):
        return lambda module, args, output: replacement(output).expand_as(output)

    hooks = [
        mlp(model.blocks[layer]).register_forward_hook(replacement_hook(replacement))
        for layer, replacement in mlps.items()
    ]
    with replaced_attention(len(model.blocks), change):
        logits = model(pixels)[0]
    [hook.remove() for hook in hooks]
    return logits


def mlp(block):
    return block.mlp_out_proj if hasattr(block, "mlp_out_proj") else block.mlp


assert set(FAMILIES) - {"RoPE, averaged"} <= set(CONSTRUCTIONS)
