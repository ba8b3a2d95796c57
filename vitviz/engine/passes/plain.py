"""What makes a plain Vision Transformer: one stack of blocks, each with one attention over all tokens."""

from __future__ import annotations

from torch import nn

from vitviz.engine.passes.recording import Recording
from vitviz.errors import UnsupportedModel


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks in order of depth; UnsupportedModel where there are none."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, (nn.Sequential, nn.ModuleList)) or len(blocks) == 0:
        raise UnsupportedModel(
            f"{type(model).__name__} is no plain Vision Transformer: it has no single stack of transformer"
            " blocks. Choose a ViT, DeiT, BEiT, DINO, CLIP, EVA or SigLIP model."
        )
    return list(blocks)


def check_plain(recording: Recording, tokens: int, name: str) -> None:
    """Raises UnsupportedModel unless every block made exactly one attention call over all tokens."""
    for layer, calls in enumerate(recording.calls):
        if len(calls) != 1:
            raise UnsupportedModel(
                f"{name} is no plain Vision Transformer: block {layer + 1} makes {len(calls)} attention calls"
                " where exactly one is expected, so there is no single attention map to show."
            )
        call = calls[0]
        if call.q.ndim != 4 or call.q.shape[2] != tokens or call.k.shape[2] != tokens:
            raise UnsupportedModel(
                f"{name} is no plain Vision Transformer: block {layer + 1} attends within"
                f" {tuple(call.q.shape)} (batch, heads, tokens, dim) where all {tokens} tokens are expected"
                " to see each other."
            )
