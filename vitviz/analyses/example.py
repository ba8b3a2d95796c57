"""Small traces without a model, for examples and tests: their attention is known, or random from a seed.

They show the shapes that a real trace has, and nothing about any Vision Transformer.
"""

from __future__ import annotations

import numpy as np
import torch

from vitviz.grid import Grid
from vitviz.trace import Attention, Trace, View


def example_trace(grid: Grid, layers: int = 2, heads: int = 2, seed: int | None = None, pool: str = "class", width: int = 4) -> Trace:
    """A trace whose attention is uniform (1 / tokens everywhere), or, with a seed, the softmax of random scores.

    >>> example_trace(Grid(1, 3, (4, 4), ("class",))).attention(0)[0, 0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    random = torch.Generator().manual_seed(seed or 0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random) * (0.0 if seed is None else 2.0)

    def call(queries: int) -> Attention:
        return Attention(normal(heads, queries, width), normal(heads, grid.tokens, width), normal(heads, grid.tokens, width), width**-0.5)

    height, length = grid.pixels
    return Trace(
        checkpoint="example",
        grid=grid,
        view=View(np.zeros((height, length, 3), np.uint8), (0.0, 0.0, float(length), float(height)), (length, height)),
        layers=tuple(call(grid.tokens) for _ in range(layers)),
        tokens=tuple(normal(grid.tokens, heads * width) for _ in range(layers + 1)),
        patch_embedding=normal(grid.patches, heads * width),
        position_embedded=None,
        logits=None,
        pool=pool,
        pooling=call(1) if pool == "attention" else None,
    )
