"""Records of a forward pass on the device, the definition of a plain Vision Transformer, and the truth check.

A plain Vision Transformer has one stack of blocks, each with one attention over all tokens.

The truth check: softmax(q k^T scale + mask) v, computed from the record, must equal the tensor that the model
goes on with.

The check uses the displayed pass, once per input size, and some queries of every layer: the first eight
(class, distillation and register tokens), the last, and one out of each 32nd part of the sequence, drawn for
each layer with a fixed seed. An error in capturing attention (scale, mask, layer, order of heads, an
operation between the call and the projection) affects most queries or a contiguous range. Errors in a few
single queries of a few layers can go undetected; checking all queries would cost more than two passes.

A comparison with the fused call's own output would miss operations between the call and the projection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitviz.engine.forward.branches import Branches
from vitviz.errors import UnsupportedModel
from vitviz.traces.trace import Attention

# Largest allowed max|difference| / max|output| in the truth check. In float32, 33 architectures differ by at
# most 1.3e-6. In bfloat16 the fused kernel rounds its weights and its output to 8 bits, each by up to
# u = 2^-9; measured are 1.4 u to 2.1 u (16 families with random weights, three genuine checkpoints, on the
# CPU). 4 u is twice that, and still detects a change of 1 %. TF32 truncates factors to 10 bits: u = 2^-10.
TOLERANCE = {"float32": 1e-4, "tf32": 4 * 2**-10, "bfloat16": 4 * 2**-9}
FIRST, PARTS = 8, 32


@dataclass(frozen=True)
class AttentionInput:
    """Input of the module after an attention call: some queries of the batch's first image."""

    shape: tuple[int, ...]  # of the full tensor, without the batch axis
    queries: Int[Tensor, " query"]
    values: Float[Tensor, "query width"] | None  # None if the tensor is not token x width with all tokens

    @classmethod
    def sampled(cls, tensor: Tensor, layer: int, tokens: int) -> AttentionInput:
        """Return a copy of the sampled queries' rows of a layer's tensor, which later code may overwrite."""
        queries = sampled_queries(tokens, layer)
        if not isinstance(tensor, Tensor) or tensor.ndim != 3 or tensor.shape[1] != tokens:
            return cls(tuple(getattr(tensor, "shape", ()))[1:], queries, None)
        return cls(tuple(tensor.shape[1:]), queries, tensor.detach()[0, queries.to(tensor.device)])


def sampled_queries(tokens: int, layer: int) -> Int[Tensor, " query"]:
    """Return the sampled queries of a layer, sorted and reproducible; all queries of a short sequence.

    >>> sampled_queries(40, 0).tolist() == list(range(40)), len(sampled_queries(4097, 3))
    (True, 41)
    """
    if tokens <= FIRST + PARTS:
        return torch.arange(tokens)
    edges = np.linspace(FIRST, tokens - 1, PARTS + 1).astype(int)
    queries = np.random.default_rng([tokens, layer]).integers(edges[:-1], edges[1:])
    return torch.from_numpy(np.concatenate([np.arange(FIRST), queries, [tokens - 1]]))


def check_truth(
    entered: Sequence[AttentionInput | None], layers: Sequence[Attention], name: str,
    tolerance: float = TOLERANCE["float32"],
) -> None:  # fmt: skip
    """Raise UnsupportedModel if, in a layer, recorded attention times values is not the model's output."""
    for layer, (attention, given) in enumerate(zip(layers, entered, strict=True)):
        heads, tokens, dim = attention.heads, attention.q.shape[1], attention.v.shape[-1]
        if given is None or given.values is None or given.shape != (tokens, heads * dim):
            reason = "nothing" if given is None else f"a tensor of shape {given.shape}"
            raise UnsupportedModel(
                f"The attention of {name} cannot be recorded correctly: after the attention call of block"
                f" {layer + 1} the model continues with {reason}; expected {(tokens, heads * dim)}."
            )
        queries = given.queries.to(attention.q.device)
        with torch.autocast(attention.v.device.type, enabled=False):
            handed = attention.weights(queries) @ attention.v
        expected = rearrange(handed, "head query dim -> query (head dim)").cpu()
        values = given.values.float().cpu()
        error = ((values - expected).abs().max() / values.abs().max().clamp_min(1e-30)).item()
        if not error <= tolerance:
            raise UnsupportedModel(
                f"The attention of {name} cannot be recorded correctly: in block {layer + 1} the recorded"
                f" attention times values differs from the model's own output by {error:.1e}; at most"
                f" {tolerance:.0e} is expected. vitviz shows no map rather than a wrong one."
            )


TensorChange = Callable[[Tensor], "Tensor | None"]  # at a hook point: reads a tensor or replaces it


@dataclass
class Call:
    """Attention call with the batch axis: batch x head x token x dim."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    scale: float
    replaced: tuple[int, ...] = ()  # heads whose output was replaced
    given: Tensor | None = None  # replacements, batch x replaced x token x dim


@dataclass
class Recording:
    """Recorded tensors of one forward pass, on the device and with the batch axis."""

    calls: list[list[Call]]  # by layer; one per block in a plain Vision Transformer
    tokens: list[Tensor]  # input of the first block, output of every block
    patch_embedding: Tensor | None = None
    position_embedded: Tensor | None = None
    outside: list[Call] = field(default_factory=list)  # calls after the last block: attention pooling
    # by layer, for the truth check
    entered: list[AttentionInput | None] = field(default_factory=list)
    branches: Branches | None = None  # additions to the tokens that the classifier reads


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks in layer order. Raises UnsupportedModel if there are none."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, (nn.Sequential, nn.ModuleList)) or len(blocks) == 0:
        raise UnsupportedModel(
            f"{type(model).__name__} is not a plain Vision Transformer: it has no single stack of"
            " transformer blocks. Choose a ViT, DeiT, BEiT, DINO, CLIP, EVA or SigLIP model."
        )
    return list(blocks)


def check_plain(recording: Recording, tokens: int, name: str) -> None:
    """Raise UnsupportedModel unless every block made exactly one attention call over all tokens."""
    for layer, calls in enumerate(recording.calls):
        if len(calls) != 1:
            raise UnsupportedModel(
                f"{name} is not a plain Vision Transformer: block {layer + 1} makes {len(calls)} attention"
                " calls; expected exactly one, so there is no single attention map to show."
            )
        call = calls[0]
        if call.q.ndim != 4 or call.q.shape[2] != tokens or call.k.shape[2] != tokens:
            raise UnsupportedModel(
                f"{name} is not a plain Vision Transformer: block {layer + 1} attends within"
                f" {tuple(call.q.shape)} (batch, heads, tokens, dim); expected all {tokens} tokens to attend"
                " to each other."
            )
