"""Where attention goes: the share of all attention of a head that arrives at each token.

    r_j(l, h) = 1/N sum_i A_ij

over all N queries; the shares of one head sum to 1, and are 1/N each where attention is even. A token that
draws much of it in many heads is a sink, often the class token, a register or a patch with a large norm (Xiao
et al. 2024 for text, Darcet et al. 2024 for pictures). It does not show what is taken from there: a sink's
value is often close to nothing.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.streaming import blocks
from vitviz.trace import Trace


def attention_received(trace: Trace, layer: int) -> Float[Tensor, "head token"]:
    """The share of every head's attention that arrives at each token, prefix tokens first; each row sums to
    1.

    `layer` counts blocks from 0; raises IndexError for one that does not exist. Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> attention_received(example_trace(Grid(1, 3, (4, 4), ("class",))), layer=0)[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    attention = trace.layer(layer)
    total = torch.zeros(attention.heads, attention.k.shape[1], dtype=torch.float64, device=attention.q.device)
    for block in blocks(attention):
        total[block.heads] += block.weights().sum(dim=1, dtype=torch.float64)
    return (total / attention.q.shape[1]).to(attention.q)
