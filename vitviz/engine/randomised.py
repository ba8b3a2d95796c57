"""A checkpoint with its last parts drawn at random: a map that stays the same does not show what the model
has learned.

Adebayo et al. 2018 (arXiv 1810.03292), from the head downwards. Every tensor of a part is drawn anew from a
normal distribution of its own mean and deviation, so that norms and scales keep their size. The inspector
that is given, and its model, stay as they are; the parts that are not drawn are shared with it.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from vitviz.engine.inspector import Inspector
from vitviz.engine.passes import capture, copies
from vitviz.errors import VitvizError

HEADS = ("head", "head_dist", "fc_norm", "norm", "attn_pool")  # what stands behind the last block


def randomised(inspector: Inspector, blocks: int, seed: int) -> Inspector:
    """A twin whose head, with all that stands behind the last block, and so many last blocks are drawn anew.

    `blocks`: 0 for the head alone. Raises VitvizError for more blocks than there are.
    """
    count = len(capture.transformer_blocks(inspector.model))
    if isinstance(blocks, bool) or not hasattr(blocks, "__index__") or not 0 <= blocks <= count:
        raise VitvizError(
            f"Given {blocks!r} blocks to draw at random; expected 0 (the head alone) to {count}."
        )
    twin = copy.copy(inspector)
    twin.model = copies.lending(inspector.model)
    twin._sizes, twin._truthful = {inspector.preprocessing.size: twin.model}, set()
    parts = [getattr(twin.model, name, None) for name in HEADS]
    parts += capture.transformer_blocks(twin.model)[count - blocks :]
    generator = torch.Generator().manual_seed(seed)
    for part in parts:
        if isinstance(part, nn.Module):
            _draw(part, generator)
    twin.model.eval()
    return twin


def _draw(part: nn.Module, generator: torch.Generator) -> None:
    """New parameters in the place of those that are shared."""
    for module in part.modules():
        for name, given in list(module.named_parameters(recurse=False)):
            value = given.detach().float().cpu()
            deviation = value.std().item() if value.numel() > 1 else 0.0
            drawn = value.mean() + deviation * torch.randn(value.shape, generator=generator)
            setattr(module, name, nn.Parameter(drawn.to(given), requires_grad=False))
