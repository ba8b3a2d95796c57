"""The largest paths from writers through heads to the prediction, by best-first search with a bound.

A path starts at a writer that is not a head (embedding, positions, a bias, an MLP, a constant). Then come
heads h_k, ..., h_1, each in a later layer than the one before, and the prediction. With attention and norms
held, every head is linear, so the path's contribution to the logit is

    share = sum_s <r_s, sum_j a_sj w_j>,   a <- (a / n) A_h / sigma,   r <- W_V W_O r   for h = h_1, ..., h_k

starting from the readout's weights a and directions r of each slot s. A_h is a head's attention, sigma and n
are the deviations of the norms before its values and after its output, w_j is what the writer wrote at token
j. All paths sum to the heads' contributions to the logit (`logit_account`). Large paths of opposite sign
cancel, within one head too: a head of small contribution can lie on the largest path.

No continuation of a path through head h exceeds sum_j |d_j| R_h[j]. d_j is the direction at its values, and
R_h[j] the largest of these: the longest vector that a writer gives to the values at token j, and for every
earlier head e |W_V W_O| / (sigma_j n_j) sum_i A_e,ji R_e[i], with the spectral norm of the weights' product.
The search opens the path of largest bound first, and every head once. When no bound exceeds the last listed
path, the list is proven to hold the largest paths. A search that ends earlier reports the remaining bound.

Paths do not show what an MLP read: a path stops there. Source: Elhage et al. 2021 (A Mathematical Framework
for Transformer Circuits), with norms and biases as terms; the bound is vitviz's own.
"""

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.upstream import Stream, Writer
from vitviz.traces.cancellation import check
from vitviz.traces.display import NotebookDisplay

OPENED = 5000  # maximum number of chains of heads
BATCH = 64  # chains opened together: each batch computes every layer's attention once
ENTRIES = 2**24  # numbers in one array of a batch

Trail = tuple[tuple[int, int], ...]  # heads as (layer, head), the one next to the prediction first


class AttributionPath(NamedTuple):
    """Contribution that flows from a writer through heads to the prediction, in logits."""

    heads: Trail
    writer: Writer | None  # None: the last head was replaced in the pass, so it read nothing
    share: float


@dataclass(frozen=True)
class AttributionPaths(NotebookDisplay):
    """The largest paths that a bounded search found, in descending order of |share|, in logits.

    The shares and `left_out` sum to `total`. If `proven`, no unlisted path is larger than a listed one.
    """

    paths: tuple[AttributionPath, ...]
    left_out: float
    total: float  # the sum over all paths: the heads' contributions to the logit
    opened: int  # chains of heads whose writers and earlier heads were computed
    bound: float  # no unlisted path has a larger |share|

    @property
    def proven(self) -> bool:
        """True if the listed paths are the largest of all, False if they are only the largest found."""
        return not self.paths or self.bound <= abs(self.paths[-1].share)

    def first(self, count: int) -> "AttributionPaths":
        """Return the `count` largest of the paths, with the bound on all others."""
        kept, dropped = self.paths[:count], self.paths[count:]
        left = self.left_out + sum(path.share for path in dropped)
        bound = max([self.bound, *(abs(path.share) for path in dropped)])
        return replace(self, paths=kept, left_out=left, bound=bound)


def largest_paths(
    ledger: LogitTerms, stream: Stream, basis: Tensor, shares: Float[Tensor, "layer head"], count: int = 12,
    opened: int = OPENED,
) -> AttributionPaths:  # fmt: skip
    """Return the `count` paths of largest |share| found by extending at most `opened` partial paths.

    Every head is opened once in any case. `basis` is the logit's direction, see `logit_account.directions`.
    `shares` are the heads' contributions to the logit.
    """
    trace, slots = ledger.trace, len(basis)
    weights = basis.new_zeros(slots, trace.length)
    weights[:, ledger.readout.pooling.readers] = trace.written.weights.mT.to(basis)
    if stream.gates:  # a gate belongs to one token, so every token is a slot
        weights, basis = torch.eye(trace.length).to(basis), weights.mT @ basis
    bounds, size = _bounds(ledger, stream), max(1, min(BATCH, ENTRIES // weights.numel()))
    result, queue, least, steps, rest = [], [], -1.0, 0, 0.0
    for number, share in enumerate(shares.flatten().tolist()):
        layer, head = divmod(number, shares.shape[1])
        if head in trace.layers[layer].replaced:
            result.append(AttributionPath(((layer, head),), None, share))
        else:
            queue.append((-math.inf, number, ((layer, head),)))
    ties = itertools.count(len(queue))

    def due() -> bool:
        bound = -queue[0][0]
        return bound > least and (steps < opened or bound == math.inf)

    while queue and due():
        check()
        trails = []
        while queue and len(trails) < size and due():
            trails.append(heapq.heappop(queue)[-1])
            steps += 1
        ended, further = _extend_trails(ledger, stream, weights, basis, trails, bounds)
        result = heapq.nlargest(count + 1, result + ended, key=lambda path: abs(path.share))
        least = abs(result[count - 1].share) if len(result) >= count else -1.0
        for bound, trail in further:
            if bound > least:
                heapq.heappush(queue, (-bound, next(ties), trail))
            else:
                rest = max(rest, bound)
    rest = max([rest, *(-bound for bound, *_ in queue[:1]), *(abs(path.share) for path in result[count:])])
    total, kept = shares.double().sum().item(), tuple(result[:count])
    return AttributionPaths(kept, total - sum(path.share for path in kept), total, steps, rest)


def _extend_trails(
    ledger: LogitTerms, stream: Stream, weights: Float[Tensor, "slot token"],
    basis: Float[Tensor, "slot width"], trails: Sequence[Trail], bounds: Float[Tensor, "layer head token"],
) -> tuple[list[AttributionPath], list[tuple[float, Trail]]]:  # fmt: skip
    """Return the complete paths along each trail, and (bound, trail) of all trails one head longer."""
    trace, last = ledger.trace, [trail[-1][0] for trail in trails]
    weights, basis = (one.expand(len(trails), -1, -1).clone() for one in (weights, basis))
    ended, further, constants = [], [], [0.0] * len(trails)

    def end(rows: list[int], writers: list[Writer], written: Float[Tensor, "writer token width"]) -> None:
        shares = torch.einsum("nst,wtd,nsd->nw", weights[rows], written, basis[rows]).tolist()
        for i, result in zip(rows, shares, strict=True):
            result[-1] += constants[i] if writers[-1].kind == "constant" else 0.0
            ended.extend(AttributionPath(trails[i], *pair) for pair in zip(writers, result, strict=True))

    for layer, attention in reversed(list(enumerate(trace.layers))):
        end([i for i, lowest in enumerate(last) if lowest > layer], *_layer_outputs(ledger, stream, layer))
        value, constant, deviation = _values(ledger, stream, layer)
        at = stream.divided(weights, layer)
        along = ledger.readout.layers[layer].back(basis.flatten(0, 1))[0]
        along = along.unflatten(0, basis.shape[:2]).unflatten(-1, (attention.heads, -1))
        for head in range(attention.heads):
            rows = [i for i, trail in enumerate(trails) if last[i] > layer or (layer, head) in trail]
            if not rows:
                continue
            read, direction = at[rows], along[rows, :, head]
            if stream.gates:
                gate = stream.gates[layer].unflatten(1, (attention.heads, -1))[:, head]
                direction = read.mT @ direction * gate
                read = torch.eye(trace.length).to(read).expand(len(rows), -1, -1)
            shares = torch.einsum("nst,td,nsd->n", read, stream.heads[layer][head], direction).tolist()
            read = read @ attention.weights(heads=slice(head, head + 1))[0]
            largest = ((read.mT @ direction).norm(dim=-1) @ bounds[layer, head]).tolist()
            for n, i in enumerate(rows):
                longer = (*trails[i], (layer, head))
                if last[i] <= layer:
                    weights[i], basis[i] = read[n] / deviation, direction[n] @ value[head]
                    constants[i] = (read[n].sum(dim=-1) @ (direction[n] @ constant[head])).item()
                elif head in attention.replaced:
                    ended.append(AttributionPath(longer, None, shares[n]))
                else:
                    further.append((largest[n], longer))
    end(list(range(len(trails))), *_first_block_input(stream))
    return ended, further


def _bounds(ledger: LogitTerms, stream: Stream) -> Float[Tensor, "layer head token"]:
    """Return R by layer, head and token: a bound on what any path adds to a head's values.

    The values are taken along a direction of length 1.
    """
    result, outward, carried = [], [], []
    entering, width = _first_block_input(stream)[1], stream.embedding.shape[-1]
    for layer, attention in enumerate(ledger.trace.layers):
        check()
        value, constant, deviation = _values(ledger, stream, layer)
        gained = torch.einsum("wtd,hed->whte", entering, value) / deviation[:, None]
        gained[-1] += constant[:, None]
        options = [gained.norm(dim=-1)]
        for earlier in range(layer):
            gained = torch.einsum("wtd,hed->whte", _layer_outputs(ledger, stream, earlier)[1], value)
            through = _spectral_norm_bounds(torch.einsum("hed,dkf->khef", value, outward[earlier]))
            onward = through[..., None] * carried[earlier][:, None]
            options += [gained.norm(dim=-1) / deviation, onward / deviation]
        best = torch.cat(options).amax(dim=0)
        result.append(best)
        each = (attention.weights(heads=slice(n, n + 1))[0] for n in range(len(best)))
        onward = torch.stack([weights @ one for weights, one in zip(each, best, strict=True)])
        replaced = list(attention.replaced)
        onward[replaced] = stream.heads[layer][replaced].norm(dim=-1)
        onward = stream.divided(onward, layer)
        if stream.gates:
            onward = onward * stream.gates[layer].unflatten(1, (len(best), -1)).abs().amax(dim=-1).mT
        carried.append(onward)
        back = ledger.readout.layers[layer].back(torch.eye(width).to(best))[0]
        outward.append(back.unflatten(1, (len(best), -1)))
    return torch.stack(result)


def _spectral_norm_bounds(matrices: Float[Tensor, "*lead row col"]) -> Float[Tensor, "*lead"]:
    """Return an upper bound on each spectral norm, |(M M')^4|_F^(1/8); too large by rank^(1/16) at most."""
    scale = matrices.norm(dim=(-2, -1), keepdim=True).clamp_min(torch.finfo(matrices.dtype).tiny)
    power = matrices / scale
    power = power @ power.mT
    power = power @ power
    return (power @ power).norm(dim=(-2, -1)) ** 0.125 * scale[..., 0, 0]


def _values(
    ledger: LogitTerms, stream: Stream, layer: int
) -> tuple[Float[Tensor, "head dim width"], Float[Tensor, "head dim"], Float[Tensor, " token"]]:
    """Return weight, constant and deviation of a layer's values v_j = weight x_j / deviation_j + constant."""
    tokens, heads = ledger.trace.tokens[layer], ledger.trace.layers[layer].heads
    side, norm = stream.readers[layer].sides["value"], stream.readers[layer].norm
    weight = side.weight.to(tokens)
    constant = tokens.new_zeros(len(weight)) if side.bias is None else side.bias.to(tokens)
    deviation = torch.ones_like(tokens[:, 0]) if norm is None else norm.deviation(tokens)
    if norm is not None:
        constant, weight = constant + norm.constant(weight), norm.back(weight)
    return weight.unflatten(0, (heads, -1)), constant.unflatten(0, (heads, -1)), deviation


def _first_block_input(stream: Stream) -> tuple[list[Writer], Float[Tensor, "writer token width"]]:
    """Return the writers of the first block's input and their vectors, normed if a norm stands there."""
    starts = [one for one in (stream.embedding, stream.positions) if one is not None]
    constant = torch.zeros_like(stream.embedding)
    if stream.entry is not None:
        deviation = stream.entry.deviation(sum(starts)).unsqueeze(-1)
        starts = [replace(stream.entry, bias=None).normalise(one, deviation) for one in starts]
        constant = constant if stream.entry.bias is None else constant + stream.entry.bias.to(constant)
    kinds = ["embedding", "positions"][: len(starts)]
    return [Writer(one) for one in (*kinds, "constant")], torch.stack([*starts, constant])


def _layer_outputs(
    ledger: LogitTerms, stream: Stream, layer: int
) -> tuple[list[Writer], Float[Tensor, "writer token width"]]:
    """Return a layer's two writers "bias" and "mlp", and the vectors that they add to the residual stream."""
    held = stream.held(layer)
    nothing, mlp = torch.zeros_like(stream.heads[layer]), stream.mlps[layer]
    nothing = nothing if any(one is not None for one in held) else nothing[:, :1]  # equal at every token
    bias = ledger.readout.layers[layer].forth(nothing, *held)[-1]
    return [Writer("bias", layer), Writer("mlp", layer)], torch.stack([bias.expand_as(mlp), mlp])
