"""Small random models of every construction, and their float64 traces for tests of logit attribution."""

from __future__ import annotations

from functools import partial

import numpy as np
import timm
import torch
from timm.layers import RmsNorm, SwiGLU
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva, EvaAttention
from timm.models.vision_transformer import ParallelScalingBlock, ResPostBlock, VisionTransformer

from tests.engine.small_models import perturbed
from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.engine import readouts
from vitviz.engine.formats.huggingface import ClassAndMeanReadout, ClassOnlyReadout
from vitviz.engine.forward import branches, capture, tracing
from vitviz.engine.readout_stages import readout_stage_of
from vitviz.traces.trace import Attention, Bias, ModelInput, Trace, TraceBatch

TINY = {"img_size": (12, 16), "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 6}
vit, eva = partial(VisionTransformer, **TINY), partial(Eva, **TINY, mlp_ratio=2)


def add_gates(build, heads: int) -> torch.nn.Module:
    """Build a model with a gate on every attention output. timm's attention modules have gates, but only
    NaFlex exposes the option.
    """
    model = build()
    for block in model.blocks:
        kind = type(block.attn)
        block.attn = kind(
            24, heads, qkv_bias=True, gated=True, **({"scale_norm": False} if kind is EvaAttention else {})
        )
    return model


CONSTRUCTIONS = {
    "class": vit,
    "registers": partial(vit, reg_tokens=2, init_values=0.3),
    "distilled": partial(VisionTransformerDistilled, **TINY),
    "distillation token unread": partial(ClassOnlyReadout, **TINY),
    "class and mean": partial(ClassAndMeanReadout, **TINY, reg_tokens=2),
    "average, then norm": partial(vit, global_pool="avg"),
    "norm, then average": partial(vit, global_pool="avg", fc_norm=False, class_token=False),
    "average with the prefix": partial(vit, global_pool="avg", pool_include_prefix=True, reg_tokens=1),
    "no final norm": partial(vit, final_norm=False),
    "RMSNorm, SwiGLU": partial(vit, norm_layer=RmsNorm, mlp_layer=SwiGLU, qk_norm=True),
    "norm before the projection": partial(vit, scale_attn_norm=True, scale_mlp_norm=True),
    "norm before the projection, averaged": partial(
        vit, scale_attn_norm=True, global_pool="avg", fc_norm=False
    ),
    "norm behind the branch": partial(vit, block_fn=ResPostBlock, init_values=0.4),
    "norm behind the branch, averaged": partial(vit, block_fn=ResPostBlock, global_pool="avg"),
    "parallel": partial(vit, block_fn=ParallelScalingBlock, init_values=0.3),
    "parallel, averaged": partial(vit, block_fn=ParallelScalingBlock, global_pool="avg"),
    "gated": partial(add_gates, vit, 3),
    "gated, averaged": partial(
        add_gates, partial(eva, global_pool="avg", use_rot_pos_emb=True, scale_attn_inner=False), 3
    ),
    "EVA-02": partial(
        eva, scale_attn_inner=True, swiglu_mlp=True, scale_mlp=True, qkv_fused=False, global_pool="avg"
    ),
    "BEiT-3 like": partial(eva, use_post_norm=True, scale_attn_inner=True, global_pool="token"),
    "attention pooling": partial(vit, global_pool="map", class_token=False),
    "attention pooling with registers": partial(vit, global_pool="map", class_token=False, reg_tokens=2),
    "attention pooling, then norm": partial(vit, global_pool="map", class_token=True, fc_norm=True),
    "attention pooling of EVA": partial(eva, global_pool="map", num_reg_tokens=1),
    "BEiT": partial(timm.create_model, "beit_base_patch16_224", **TINY),
    "relative positions": partial(timm.create_model, "vit_relpos_small_patch16_224", **TINY),
    "relative positions, norm behind": partial(
        timm.create_model, "vit_relpos_medium_patch16_rpn_224", **TINY
    ),
}

QUICK = ("class", "average, then norm", "EVA-02", "attention pooling")  # values of the quick tier


def small_model(construction: str, **changes) -> torch.nn.Module:
    """Return a construction in float64 with every weight moved away from its initial value."""
    torch.manual_seed(0)
    model = CONSTRUCTIONS[construction](**changes)
    if isinstance(model, ClassAndMeanReadout):
        model.head = torch.nn.Linear(48, 6)
    if isinstance(model, ClassOnlyReadout):
        model.head_dist = torch.nn.Identity()
    return perturbed(model).double()


def pixels_for(model: torch.nn.Module, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 3, *model.patch_embed.img_size, generator=generator, dtype=torch.float64)


def trace_and_readout(model: torch.nn.Module, pixels: torch.Tensor) -> tuple[Trace, ReadoutStage]:
    """Return the trace that an inspector would make, in float64, and the model's readout stage."""
    batch, readout = batch_and_readout(model, pixels)
    return batch[0], readout


def batch_and_readout(model: torch.nn.Module, pixels: torch.Tensor) -> tuple[TraceBatch, ReadoutStage]:
    """Return the trace batch of several images and the model's readout stage."""
    with torch.no_grad(), capture.recording(model) as recording:
        logits = model(pixels)
    grid = tracing.grid_of(model)

    def to_attention(call: capture.Call) -> Attention:
        bias = None if call.mask is None else Bias(dense=call.mask.reshape(1, -1, *call.mask.shape[-2:]))
        return Attention(call.q, call.k, call.v, call.scale, bias)

    pooled = to_attention(recording.outside[-1]) if recording.outside else None
    rows, cols = grid.pixels
    view = ModelInput(np.zeros((rows, cols, 3), np.uint8), (0.0, 0.0, float(cols), float(rows)), (cols, rows))
    batch = TraceBatch(
        checkpoint="small",
        grid=grid,
        view=(view,) * len(pixels),
        layers=tuple(to_attention(layer_call) for (layer_call,) in recording.calls),
        tokens=tuple(recording.tokens),
        patch_embedding=recording.patch_embedding,
        position_embedded=None,
        logits=logits,
        pool=readouts.readout_of(model, grid, "small").name,
        pooling=pooled,
        written=branches.sum_branches(recording.branches, recording.tokens[-1], pooled),
    )
    return batch, readout_stage_of(model, "small")
