"""The truth check: softmax(q k^T scale + mask) v, computed from the record, must be what the model goes on
with.

It is made of the pass that is shown, once for each input size, and of some queries of every layer: the first
eight (class, distillation and register tokens), the last, and one out of each 32nd part of the sequence,
drawn anew for each layer by a fixed seed. What is wrong in capturing attention (scale, mask, layer, order of
heads, something between the call and the projection) is wrong for most queries or for a stretch of them. A
fault in a few single queries of a few layers can escape; all of them would cost more than two passes.

Comparing with the fused call's own output would be blind to what happens between that and the projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.errors import UnsupportedModel
from vitviz.trace import Attention

# How well softmax(q k^T scale + mask) v has to explain what a model goes on with: max|difference| /
# max|output|. In float32, 33 architectures differ by 1.3e-6 at most. In bfloat16 the fused kernel rounds its
# weights and its output to 8 bits, each by up to u = 2^-9; measured are 1.4 u to 2.1 u (16 families with
# random weights, three genuine checkpoints, on the CPU). 4 u leaves twice that, and still notices a change of
# 1 %.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 4 * 2**-9}
FIRST, PARTS = 8, 32


@dataclass(frozen=True)
class Entered:
    """What entered the module after an attention call: the batch's first picture, and some queries."""

    shape: tuple[int, ...]  # of the whole, without the batch
    queries: Int[Tensor, " query"]
    values: Float[Tensor, "query width"] | None  # None where it is no "token width" of as many tokens

    @classmethod
    def sampled(cls, whole: Tensor, layer: int, tokens: int) -> Entered:
        """A copy of some rows, as whatever stands behind may write into the tensor."""
        queries = sampled_queries(tokens, layer)
        if not isinstance(whole, Tensor) or whole.ndim != 3 or whole.shape[1] != tokens:
            return cls(tuple(getattr(whole, "shape", ()))[1:], queries, None)
        return cls(tuple(whole.shape[1:]), queries, whole.detach()[0, queries.to(whole.device)])


def sampled_queries(tokens: int, layer: int) -> Int[Tensor, " query"]:
    """Which queries of a layer are looked at, in their order; all of a short sequence, the same every time.

    >>> sampled_queries(40, 0).tolist() == list(range(40)), len(sampled_queries(4097, 3))
    (True, 41)
    """
    if tokens <= FIRST + PARTS:
        return torch.arange(tokens)
    edges = np.linspace(FIRST, tokens - 1, PARTS + 1).astype(int)
    drawn = np.random.default_rng([tokens, layer]).integers(edges[:-1], edges[1:])
    return torch.from_numpy(np.concatenate([np.arange(FIRST), drawn, [tokens - 1]]))


def check_truth(
    entered: Sequence[Entered | None],
    layers: Sequence[Attention],
    name: str,
    tolerance: float = TOLERANCE[torch.float32],
) -> None:
    """Raises UnsupportedModel, with the figure, where max|difference| / max|output| of a layer exceeds the
    tolerance.
    """
    for layer, (attention, given) in enumerate(zip(layers, entered, strict=True)):
        heads, tokens, dim = attention.heads, attention.q.shape[1], attention.v.shape[-1]
        if given is None or given.values is None or given.shape != (tokens, heads * dim):
            found = "nothing" if given is None else f"a tensor of shape {given.shape}"
            raise UnsupportedModel(
                f"The attention of {name} cannot be read truthfully: after the attention call of block"
                f" {layer + 1} the model goes on with {found} where {(tokens, heads * dim)} is expected."
            )
        queries = given.queries.to(attention.q.device)
        expected = rearrange(
            attention.weights(queries) @ attention.v, "head query dim -> query (head dim)"
        ).cpu()
        values = given.values.float().cpu()
        error = ((values - expected).abs().max() / values.abs().max().clamp_min(1e-30)).item()
        if not error <= tolerance:
            raise UnsupportedModel(
                f"The attention of {name} cannot be read truthfully: in block {layer + 1} the recorded"
                f" attention explains the model's own values only to {error:.1e} where {tolerance:.0e} is"
                " expected. vitviz shows no map rather than a wrong one."
            )
