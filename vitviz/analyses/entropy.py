"""The entropy of a head's attention: how many tokens it spreads over.

    H(h) = 1/N sum_i ( - sum_j A_ij ln A_ij ), in nats

0 where every query looks at one token, ln N where all look at all alike: exp(H) is a number of tokens. A
measure in common use (see Vig and Belinkov 2019, section 4.3.3, for text). It does not show which tokens
these are, nor how far.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.streaming import blocks
from vitviz.trace import Trace


def attention_entropy(trace: Trace, layer: int) -> Float[Tensor, " head"]:
    """The mean over all queries of the entropy of every head of one layer, in nats; 0 ln 0 counts as 0.

    Raises IndexError for a layer that does not exist (they count from 0). Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> attention_entropy(example_trace(Grid(1, 3, (4, 4), ("class",))), layer=0).exp().round().tolist()
    [4.0, 4.0]
    """
    attention = trace.layer(layer)
    total = torch.zeros(attention.heads, dtype=torch.float64, device=attention.q.device)
    for block in blocks(attention):
        total[block.heads] += torch.special.entr(block.weights()).sum(dim=(1, 2), dtype=torch.float64)
    return (total / attention.q.shape[1]).to(attention.q)
