"""The class-independent terms of a logit attribution, computed once so that further classes are cheap.

Every slot of the readout reads token i with weight c_is, the final norm's deviation divided out. Norms after
a branch or before its projection divide c again, each by that token's deviation. The contribution of head h
of layer l from source j is then, for every direction r at its values,

    share_j = sum_s (sum_i c_is A_ij) <v_j, r_s>

The sum over queries comes first and does not depend on the class. For one class token it is a row of A, for
an average a sum over all rows, read in blocks. With gates g_i between A v and the projection it is (sum_i
c_is A_ij g_i) * v_j, never tokens x tokens x width. These terms do not show anything by themselves: see
`logit_account`.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.analyses.streaming import blocks, row_blocks
from vitviz.errors import UnsupportedModel
from vitviz.traces.trace import Attention, Trace, TraceBatch, select_images

_FEW = 8  # up to this number of queries, their rows of attention are computed whole


@dataclass(frozen=True)
class LayerAccount:
    """Terms of one layer, for any direction."""

    carried: Float[Tensor, "*image head slot token"] | None  # sum_i c_is A_ij
    gated: Float[Tensor, "*image head slot token dim"] | None  # the same with the gates, if there are any


@dataclass(frozen=True)
class LayerTerms:
    """Terms of all layers of a trace or a batch; keeps neither the trace nor any weights alive."""

    layers: tuple[LayerAccount, ...]
    # sum_i c_is where a branch is added, after a norm that may follow it
    added: Float[Tensor, "*image #layer slot"]
    projected: Float[Tensor, "*image #layer slot"]  # before that norm, where the projection's bias is added
    deviation: Float[Tensor, "*image row 1"] | None  # deviation of the norm after pooling; None without one


@dataclass(frozen=True)
class LogitTerms:
    """A trace or a batch, its model's readout, and their class-independent terms."""

    trace: Trace | TraceBatch
    readout: ReadoutStage
    carried: LayerTerms


def logit_terms(trace: Trace | TraceBatch, readout: ReadoutStage) -> LogitTerms:
    """Return the class-independent terms of a trace, from which `attribution_of` computes attributions.

    Args:
        trace: a trace, or a batch, with recorded residual writes.
        readout: the readout of the same model.

    Raises:
        UnsupportedModel: the trace has no residual writes, or belongs to another model.

    >>> from vitviz.analyses.example import example_account
    >>> ledger = logit_terms(*example_account(seed=1))
    >>> ledger.carried.layers[0].carried.shape  # head, slot, token
    torch.Size([2, 1, 4])
    """
    written = trace.written
    if written is None or len(readout.layers) != len(trace.layers):
        raise UnsupportedModel(
            f"The trace of {trace.checkpoint} holds no record of what was written into the tokens that the"
            " classifier reads. Make it anew with the checkpoint that it belongs to."
        )
    first, _, _ = readout.pooling.readers.indices(trace.length)
    began, norm = trace.without.at or 0, readout.pooling.fc_norm
    added = written.weights.unsqueeze(-3)  # for every layer, where a norm does not depend on the layer
    if began:
        counts = torch.arange(len(trace.layers), device=added.device) >= began
        added = added * rearrange(counts, "layer -> layer 1 1").to(added)
    projected = added if written.post is None else added / written.post.unsqueeze(-1)
    at_heads = projected if written.inner is None else projected / written.inner.unsqueeze(-1)
    at_heads = at_heads.expand(*added.shape[:-3], len(trace.layers), -1, -1).unbind(-3)
    layers = tuple(_layer(trace, weights, layer, first) for layer, weights in enumerate(at_heads))
    deviation = None if norm is None else norm.deviation(pooled(trace, readout)).unsqueeze(-1)
    terms = LayerTerms(layers, added.sum(dim=-2), projected.sum(dim=-2), deviation)
    return LogitTerms(trace, readout, terms)


def pooled(
    trace: Trace | TraceBatch, readout: ReadoutStage, read: Tensor | None = None
) -> Float[Tensor, "*image slot width"]:
    """Return the vectors that the classifier reads, before a norm that may follow: (slot, width).

    They are read from the last block's output, or given per slot as `read`. Attention pooling has one row.
    """
    pooling, last = readout.pooling, trace.tokens[-1]
    read = pooling.read(last, trace.pooling) if read is None else read
    if readout.attention_pooling is None:
        return read
    result = readout.attention_pooling.pooled(read, pooling.shares(trace.length, trace.pooling))
    mlp = None if trace.written is None else trace.written.pool_mlp
    return (result if mlp is None else result + mlp).unsqueeze(-2)


def weighted_attention_rows(
    attention: Attention, weights: Float[Tensor, "*image reader slot"], first: int
) -> Float[Tensor, "*image head slot token"]:
    """Return sum_i c_is A_ij over consecutive readers i from token `first`; `weights` are c_is."""
    readers, slots = weights.shape[-2:]
    if readers <= _FEW or not attention.q.is_cpu:
        weights = weights.mT.unsqueeze(-3)
        if readers == 1:
            return weights * attention.weights(slice(first, first + 1))
        parts = [
            weights[..., rows.start - first : rows.stop - first] @ attention.weights(rows)
            for rows in row_blocks(attention, slice(first, first + readers))
        ]
        return sum(parts[1:], parts[0])
    if attention.q.ndim > 3:
        images = ((select_images(attention, image), own) for image, own in enumerate(weights))
        return torch.stack([weighted_attention_rows(*image, first) for image in images])
    (heads, queries, _), keys = attention.q.shape, attention.k.shape[1]
    all_rows = weights.new_zeros(queries, slots)
    all_rows[first : first + readers] = weights
    carried = weights.new_zeros(heads, slots, keys)
    for block in blocks(attention):
        carried[block.heads] += (all_rows[block.rows] / block.sums.unsqueeze(-1)).mT @ block.powers
    return carried


def contributed_values(attention: Attention) -> Float[Tensor, "*image head key dim"]:
    """Return the values that each token contributes; for a replaced head, the replacement at each token."""
    if not attention.replaced:
        return attention.v
    values = attention.v.clone()
    values[..., list(attention.replaced), :, :] = attention.given
    return values


def gated_attention_rows(
    attention: Attention, weights: Float[Tensor, "*image reader slot"],
    gates: Float[Tensor, "*image head reader dim"], first: int,
) -> Float[Tensor, "*image head slot token dim"]:  # fmt: skip
    """Return sum_i c_is A_ij g_i over readers i from token `first`: the factors of each source j's values."""
    result, readers = [], weights.shape[-2]
    for rows in range(0, readers, 512):
        some = slice(rows, min(rows + 512, readers))
        asked = rearrange(weights[..., some, :], "... reader slot -> ... 1 slot reader 1")
        rows = attention.weights(slice(first + some.start, first + some.stop)).mT.unsqueeze(-3)
        result.append(rows @ (asked * gates[..., None, some, :]))
    return sum(result)


def _layer(
    trace: Trace | TraceBatch, at_heads: Float[Tensor, "*image reader slot"], layer: int, first: int
) -> LayerAccount:
    """Return one layer's attention by source token, summed over the readers weighted by `at_heads`.

    Readers are the consecutive queries from token `first`; a replaced head reads each from itself.
    """
    written, attention = trace.written, trace.layers[layer]
    replaced, readers = list(attention.replaced), slice(first, first + at_heads.shape[-2])
    each_slot = at_heads.mT.unsqueeze(-3)
    if written.gates is None:
        carried = weighted_attention_rows(attention, at_heads, first)
        if replaced:
            carried[..., replaced, :, :] = 0
            carried[..., replaced, :, readers] = each_slot
        return LayerAccount(carried, None)
    by_head, gates = "... reader (head dim) -> ... head reader dim", written.gates[..., layer, :, :]
    gates = rearrange(gates, by_head, head=attention.heads)
    gated = gated_attention_rows(attention, at_heads, gates, first)
    if replaced:
        gated[..., replaced, :, :, :] = 0
        gated[..., replaced, :, readers, :] = each_slot.unsqueeze(-1) * gates[..., replaced, None, :, :]
    return LayerAccount(None, gated)
