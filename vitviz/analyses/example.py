"""Small traces without a model, for examples and tests: uniform attention, or random attention from a seed.

They have the shapes of a real trace and show nothing about any Vision Transformer.
"""

from dataclasses import replace

import numpy as np
import torch
from einops import rearrange

from vitviz.analyses.readout_stage import Head, Norm, Pooling, Projection, ReadoutStage
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Attention, ModelInput, ResidualWrites, Trace

GRID = Grid(1, 3, (4, 4), ("class",))


def example_trace(
    grid: Grid = GRID, layers: int = 2, heads: int = 2, seed: int | None = None, pool: str = "class",
    width: int = 4, kept: tuple[int, ...] | None = None,
) -> Trace:  # fmt: skip
    """Return a trace with uniform attention (1 / tokens everywhere), or random attention if a seed is given.

    With a seed, attention is the softmax of random scores. The default grid has a class token and three
    patches in a row.

    >>> example_trace().attention(0)[0, 0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    random = torch.Generator().manual_seed(seed or 0)
    tokens = grid.tokens if kept is None else grid.prefix + len(kept)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random) * (0.0 if seed is None else 2.0)

    def call(queries: int) -> Attention:
        q, k, v = (normal(heads, count, width) for count in (queries, tokens, tokens))
        return Attention(q, k, v, width**-0.5)

    height, length = grid.pixels
    box = (0.0, 0.0, float(length), float(height))
    return Trace(
        checkpoint="example", grid=grid,
        view=ModelInput(np.zeros((height, length, 3), np.uint8), box, (length, height)),
        layers=tuple(call(tokens) for _ in range(layers)),
        tokens=tuple(normal(tokens, heads * width) for _ in range(layers + 1)),
        patch_embedding=normal(grid.patches, heads * width), position_embedded=None, logits=None, pool=pool,
        pooling=call(1) if pool == "attention" else None, kept=kept
    )  # fmt: skip


def example_account(
    grid: Grid = GRID, layers: int = 2, heads: int = 2, seed: int = 0, pool: str = "class", classes: int = 3
) -> tuple[Trace, ReadoutStage]:
    """Return a random trace and the readout stage that gives its logits, in float64.

    The readout is a norm and the class token, or the average. The blocks have random attention, and random
    numbers as the output of the MLP.

    >>> trace, readout = example_account()
    >>> trace.logits.shape, readout.pooling.kind
    (torch.Size([3]), 'class')
    """
    trace, random = example_trace(grid, layers, heads, seed + 1, pool), torch.Generator().manual_seed(seed)
    width = trace.tokens[0].shape[1]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    calls = tuple(replace(one, q=one.q.double(), k=one.k.double(), v=one.v.double()) for one in trace.layers)
    projections = tuple(Projection(normal(width, width), normal(width), scale=normal(width)) for _ in calls)
    tokens, attentions, mlps = [trace.tokens[0].double()], [], []
    for call, projection in zip(calls, projections, strict=True):
        attentions.append(projection(rearrange(call.output(), "head token dim -> token (head dim)")))
        mlps.append(normal(grid.tokens, width))
        tokens.append(tokens[-1] + attentions[-1] + mlps[-1])
    read = (0, 1) if pool == "class" else (grid.prefix, None)
    pooling = Pooling(pool, (read,), Norm(normal(width), normal(width), 1e-6), None)
    head, weights = Head((normal(classes, width),), normal(classes)), pooling.weights(tokens[-1])
    sums = (torch.stack([weights.mT @ one[pooling.readers] for one in some]) for some in (attentions, mlps))
    written = ResidualWrites(weights, *sums)
    logits = head.weights[0] @ pooling.read(tokens[-1])[0] + head.bias
    trace = replace(trace, layers=calls, tokens=tuple(tokens), logits=logits, written=written)
    return trace, ReadoutStage(trace.checkpoint, pooling, projections, head, features=width)
