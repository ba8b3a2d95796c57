"""Logit terms and residual streams of small models, shared by several test files."""

from __future__ import annotations

from tests.engine.constructions import CONSTRUCTIONS, eva, pixels_for, small_model, trace_and_readout, vit
from vitviz import analyses
from vitviz.analyses.logit_account import directions
from vitviz.analyses.target import resolve_target
from vitviz.engine.forward.edges import recorded_stream

WEIGHTS = "weights/deit_tiny_patch16_224.safetensors"


MORE_CONSTRUCTIONS = {
    "norm before the blocks": lambda: vit(pre_norm=True),
    "norms of queries and keys": lambda: vit(qk_norm=True),
    "rotary": lambda: eva(use_rot_pos_emb=True, num_reg_tokens=2),
    "rotary of every head": lambda: eva(use_rot_pos_emb=True, rope_type="mixed"),
    "rotary in halves": lambda: eva(use_rot_pos_emb=True, rope_rotate_half=True, qkv_fused=False),
}


def terms_and_stream(construction):
    if construction in MORE_CONSTRUCTIONS:
        CONSTRUCTIONS[construction] = MORE_CONSTRUCTIONS[construction]
    try:
        model = small_model(construction)
    finally:
        if construction in MORE_CONSTRUCTIONS:
            del CONSTRUCTIONS[construction]
    trace, tail = trace_and_readout(model, pixels_for(model))
    ledger = analyses.logit_terms(trace, tail)
    stream = recorded_stream(model, pixels_for(model), trace)
    return model, ledger, stream, directions(ledger, resolve_target(trace, tail, 1).direction)[0]
