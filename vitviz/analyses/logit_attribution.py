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

from vitviz.analyses.readout_stage import Projection, ReadoutStage
from vitviz.analyses.streaming import blocks
from vitviz.errors import UnsupportedModel
from vitviz.traces.trace import Attention, Trace

_FEW = 8  # up to this number of queries, their rows of attention are computed whole


@dataclass(frozen=True)
class LayerAccount:
    """Terms of one layer, for any direction."""

    carried: Float[Tensor, "head slot token"] | None  # sum_i c_is A_ij
    gated: Float[Tensor, "head slot token dim"] | None  # the same with the gates, if there are any
    added: Float[Tensor, " slot"]  # sum_i c_is where the branch is added, after a norm that may follow it
    projected: Float[Tensor, " slot"]  # the same before that norm, where the projection's bias is added


@dataclass(frozen=True)
class LayerTerms:
    """Terms of all layers of one trace; keeps neither the trace nor any weights alive."""

    layers: tuple[LayerAccount, ...]
    start: Float[Tensor, "slot width"]  # input of the first block
    deviation: Float[Tensor, "row 1"] | None  # deviation of the norm after pooling; None without one


@dataclass(frozen=True)
class LogitTerms:
    """A trace, its model's readout, and their class-independent terms."""

    trace: Trace
    readout: ReadoutStage
    carried: LayerTerms


def ledger_of(trace: Trace, readout: ReadoutStage) -> LogitTerms:
    """Return the class-independent terms of a trace, for `account_of`.

    Args:
        trace: a trace with recorded residual writes.
        readout: the readout of the same model.

    Raises:
        UnsupportedModel: the trace has no residual writes, or belongs to another model.

    >>> from vitviz.analyses.example import example_account
    >>> ledger = ledger_of(*example_account(seed=1))
    >>> ledger.carried.layers[0].carried.shape  # head, slot, token
    torch.Size([2, 1, 4])
    """
    written = trace.written
    if written is None or len(readout.layers) != len(trace.layers):
        raise UnsupportedModel(
            f"The trace of {trace.checkpoint} holds no record of what was written into the tokens that the"
            " classifier reads. Make it anew with the checkpoint that it belongs to."
        )
    first, _, _ = readout.pooling.readers.indices(len(trace.tokens[-1]))
    layers = tuple(_layer(trace, projection, layer, first) for layer, projection in enumerate(readout.layers))
    entered, norm = trace.tokens[trace.without.at or 0], readout.pooling.fc_norm
    start = written.weights.mT @ entered[readout.pooling.readers]
    deviation = None if norm is None else norm.deviation(pooled(trace, readout)).unsqueeze(-1)
    return LogitTerms(trace, readout, LayerTerms(layers, start, deviation))


def pooled(trace: Trace, readout: ReadoutStage, read: Tensor | None = None) -> Float[Tensor, "slot width"]:
    """Return the vectors that the classifier reads, before a norm that may follow: (slot, width).

    They are read from the last block's output, or given per slot as `read`. Attention pooling has one row.
    """
    pooling, last = readout.pooling, trace.tokens[-1]
    read = pooling.read(last, trace.pooling) if read is None else read
    if readout.attention_pooling is None:
        return read
    found = readout.attention_pooling.pooled(read, pooling.shares(len(last), trace.pooling))
    mlp = None if trace.written is None else trace.written.pool_mlp
    return (found if mlp is None else found + mlp)[None]


def carried_rows(
    attention: Attention, weights: Float[Tensor, "reader slot"], first: int
) -> Float[Tensor, "head slot token"]:
    """Return sum_i c_is A_ij for consecutive readers that start at token `first`: (head, slot, token)."""
    readers, slots = weights.shape
    if readers <= _FEW:
        return weights.mT @ attention.weights(slice(first, first + readers))
    (heads, queries, _), keys = attention.q.shape, attention.k.shape[1]
    all_rows = weights.new_zeros(queries, slots)
    all_rows[first : first + readers] = weights
    carried = weights.new_zeros(heads, slots, keys)
    for block in blocks(attention):
        carried[block.heads] += (all_rows[block.rows] / block.sums.unsqueeze(-1)).mT @ block.powers
    return carried


def handed_values(attention: Attention) -> Float[Tensor, "head key dim"]:
    """Return the values that each token contributes; for a replaced head, the replacement at each token."""
    if not attention.replaced:
        return attention.v
    values = attention.v.clone()
    values[list(attention.replaced)] = attention.given
    return values


def gated_rows(
    attention: Attention, weights: Float[Tensor, "reader slot"], gates: Float[Tensor, "head reader dim"],
    first: int,
) -> Float[Tensor, "head slot token dim"]:  # fmt: skip
    """Return sum_i c_is A_ij g_i, the factors of each source's values before the projection."""
    found = []
    for rows in range(0, len(weights), 512):
        some = slice(rows, min(rows + 512, len(weights)))
        asked = rearrange(weights[some], "reader slot -> slot 1 reader 1") * gates[:, some]
        found.append(attention.weights(slice(first + some.start, first + some.stop)).mT @ asked)
    return rearrange(sum(found), "slot head token dim -> head slot token dim")


def _layer(trace: Trace, projection: Projection, layer: int, first: int) -> LayerAccount:
    written, attention = trace.written, trace.layers[layer]
    added = written.weights if layer >= (trace.without.at or 0) else torch.zeros_like(written.weights)
    projected = added if projection.post is None else added / written.post[layer].unsqueeze(-1)
    at_heads = projected if projection.inner is None else projected / written.inner[layer].unsqueeze(-1)
    carried = gated = None
    replaced, readers = list(attention.replaced), slice(first, first + len(at_heads))
    if written.gates is None:
        carried = carried_rows(attention, at_heads, first)
        carried[replaced] = 0
        carried[replaced, :, readers] = at_heads.mT
    else:
        gates = rearrange(written.gates[layer], "reader (head dim) -> head reader dim", head=attention.heads)
        gated = gated_rows(attention, at_heads, gates, first)
        gated[replaced] = 0
        gated[replaced, :, readers] = at_heads.mT[..., None] * gates[replaced][:, None]
    return LayerAccount(carried, gated, added.sum(dim=0), projected.sum(dim=0))
