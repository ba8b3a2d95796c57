"""Upstream contributions: which earlier components wrote what a head reads.

The input of head h of layer l at token j is x_j = e_j + p_j + sum_(l'<l) (sum_h' W_O z_j^(l',h') + b_O +
m_j): embedding, position, every earlier head, bias and MLP. With the deviations of norms held, the map from
x_j to the head's queries, keys and values is affine, y_j = W n(x_j) + b. So y_j is a sum over the writers of
x_j (`writer_parts`), and with the head's attention held so is its contribution to a logit,

    share = sum_j <d_j, v_j> = sum_writers sum_j <d_j, part of v_j> + constants

where d_j is the sum over the readers of A_ij u, u the logit's direction at the head's values. An earlier
head's part is sum_i <d'_i, v'_i> in its own values (`value_factors`), so the same decomposition applies to
it: a path. Norms of queries and keys are held likewise, and rotary positions rotate every part alike.
MLPs' outputs are those recorded at all tokens, never a difference of residuals, which would make every sum
correct. Source: Elhage et al. 2021 (A Mathematical Framework for Transformer Circuits), with norms and
biases as terms.

It does not show why a part was written: an MLP's term is its output, whatever the MLP read. It does not
include how attention would change without a writer; `vitviz.edge_ablation` runs those passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.logit_account import head_direction
from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.readout_stage import Norm, ReadoutStage
from vitviz.errors import VitvizError, quoted
from vitviz.traces.display import NotebookChart, NotebookDisplay, NotebookTable
from vitviz.traces.trace import Trace

_ROWS = 512  # rows of attention at a time


class Writer(NamedTuple):
    """Component that writes into the residual stream.

    `kind`: "embedding", "positions", "head", "bias" (of a layer's attention), "mlp" or "constant".
    """

    kind: str
    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True)
class Side:
    """Queries, keys or values of all heads: y = norm(W x + b), rotated if the model uses rotary positions."""

    weight: Float[Tensor, "inner width"]
    bias: Float[Tensor, " inner"] | None
    norm: Norm | None = None  # norm of each head by itself
    turned: bool = False

    def of_head(self, head: int, heads: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias of one of `heads` heads."""
        both = self.weight, self.bias
        return tuple(None if one is None else one.unflatten(0, (heads, -1))[head].to(like) for one in both)


@dataclass(frozen=True)
class Reader:
    """Norm of a layer's attention input, and its projections to queries, keys and values."""

    norm: Norm | None
    sides: dict[str, Side]  # "query", "key", "value"


@dataclass(frozen=True)
class Stream:
    """Outputs of every component at all tokens of a pass, and how heads read them; holds no trace."""

    readers: tuple[Reader, ...]
    embedding: Float[Tensor, "token width"]  # E x_p of patches, the vectors of prefix tokens
    positions: Float[Tensor, "token width"] | None  # E_pos; None where none is added
    entry: Norm | None  # norm between the embeddings and the first block
    heads: tuple[Float[Tensor, "head token dim"], ...]  # each head's output, before gate, norm and projection
    mlps: tuple[Float[Tensor, "token width"], ...]  # as added
    inner: tuple[Float[Tensor, " token"], ...] = ()  # deviations of the norm between heads and projection
    post: tuple[Float[Tensor, " token"], ...] = ()  # deviations of the norm after the attention branch
    gates: tuple[Float[Tensor, "token inner"], ...] = ()
    turns: tuple[Tensor | None, ...] = ()  # sines and cosines of rotary positions by layer, patches only
    halves: bool = False  # True if rotary pairs are (i, i + dim / 2) instead of neighbours

    def divided(self, values: Float[Tensor, "*lead token"], layer: int) -> Float[Tensor, "*lead token"]:
        """Return values by token, divided by the deviations of a layer's norms behind its heads."""
        for deviations in (self.post, self.inner):
            values = values / deviations[layer] if deviations else values
        return values

    def minus(self, other: Stream) -> Stream:
        """Return this stream with the writers' outputs minus those of `other`, such as their replacements."""
        heads, mlps = map(torch.sub, self.heads, other.heads), map(torch.sub, self.mlps, other.mlps)
        return replace(self, embedding=self.embedding - other.embedding, heads=tuple(heads), mlps=tuple(mlps))

    def held(self, layer: int, tokens: slice = slice(None)) -> list[Float[Tensor, "1 token"] | None]:
        """Return the deviations of both norms as `Projection.forth` takes them; None without a norm."""
        return [one[layer][None, tokens] if one else None for one in (self.inner, self.post)]


@dataclass(frozen=True)
class ByWriter:
    """Numbers of all writers, NaN from the reading head's layer on; a last axis holds tokens if by token."""

    embedding: Tensor
    positions: Tensor | None  # None for a model without learned absolute positions
    constant: Tensor  # biases of the norms and of the values
    heads: Float[Tensor, "layer head ..."]
    biases: Float[Tensor, "layer ..."]  # of each layer's attention branch
    mlps: Float[Tensor, "layer ..."]

    def of(self, writer: Writer) -> Tensor | None:
        """Return the numbers of one writer; raise IndexError for an unknown head or layer."""
        kind, *place = writer
        table = getattr(self, {"head": "heads", "bias": "biases", "mlp": "mlps"}.get(kind, kind))
        return table if table is None else table[tuple(one for one in place if one is not None)]


@dataclass(frozen=True)
class Upstream(NotebookChart, NotebookTable):
    """Contribution of a head to a logit, or to what flows through `via`, by writer; counts from 0."""

    share: float
    layer: int
    head: int
    # heads between this one and the prediction, the one next to the prediction first
    via: tuple[tuple[int, int], ...]
    embedding: float
    positions: float | None
    constant: float
    heads: Float[Tensor, "layer head"]
    biases: Float[Tensor, " layer"]
    mlps: Float[Tensor, " layer"]
    by_token: ByWriter

    def lines(self) -> list[tuple[Writer, float]]:
        """Return every writer with its part; the parts add up to `total`."""
        ends = [(Writer(kind), getattr(self, kind)) for kind in ("embedding", "positions", "constant")]
        result = [(writer, part) for writer, part in ends if part is not None]
        for layer in range(self.layer):
            result += [(Writer("head", layer, h), part) for h, part in enumerate(self.heads[layer].tolist())]
            result.append((Writer("bias", layer), self.biases[layer].item()))
            result.append((Writer("mlp", layer), self.mlps[layer].item()))
        return result

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return sum(part for _, part in self.lines())

    @property
    def gap(self) -> float:
        """Unexplained rest: share - total."""
        return self.share - self.total

    def rows(self) -> list[dict]:
        """Return one row per part."""
        return [{**writer._asdict(), "logits": part} for writer, part in self.lines()]


@dataclass(frozen=True)
class ScoreAttribution(NotebookDisplay):
    """Attention score before the softmax, by writers of the query (rows) and of the key (columns)."""

    score: float  # the model's own score, with its relative bias
    writers: tuple[Writer, ...]
    matrix: Float[Tensor, "writer writer2"]
    rest: float  # additive term of the scores: a relative bias
    relative: Float[Tensor, "writer writer2"]  # matrix minus its mean over keys, or minus that of another key
    relative_rest: float

    @property
    def total(self) -> float:
        """The sum of the matrix over all pairs of writers, plus the relative bias."""
        return self.matrix.sum().item() + self.rest

    @property
    def gap(self) -> float:
        """Unexplained rest of the score: score - total."""
        return self.score - self.total

    @property
    def content_position(self) -> Float[Tensor, "side side2"] | None:
        """Return `relative` by content and position of the query's side (rows) and of the key's (columns).

        Position is the direct part of E_pos alone. None if the model has no E_pos.
        """
        if Writer("positions") not in self.writers:
            return None
        position = torch.tensor([float(one.kind == "positions") for one in self.writers])
        split = torch.stack([1 - position, position]).to(self.relative)
        return split @ self.relative @ split.mT


class TracedBlocks(NamedTuple):
    """A trace and the readout of its model, of which the projections of the blocks are enough."""

    trace: Trace
    readout: ReadoutStage


def writer_parts(
    ledger: LogitTerms | TracedBlocks, stream: Stream, layer: int, head: int, *names: str,
    sums: Tensor | None = None,
) -> Iterator[tuple[str, int | None, Float[Tensor, "writer row dim"]]]:  # fmt: skip
    """Yield the part of each writer in a head's queries, keys or values (`names`); the parts add up to them.

    A row is a token, or a sum over the tokens with the weights `sums` (row, token), taken before any
    projection. Writers of one kind and layer come together. `names` are concatenated if they are neither
    normed nor rotated. Source: see the module.
    """
    (side, *others), norm = (stream.readers[layer].sides[one] for one in names), stream.readers[layer].norm
    whole = sums is None or bool(sums.all(dim=1).any())
    tokens = slice(None) if whole else sums.any(dim=0).nonzero()[:, 0]
    entering = ledger.trace.tokens[layer][tokens]
    both = [one.of_head(head, ledger.trace.layers[layer].heads, entering) for one in (side, *others)]
    bias = torch.cat([one.new_zeros(len(one)) if added is None else added for one, added in both])
    weight = torch.cat([one for one, _ in both])
    scale, constant = entering.new_ones(len(entering)), None
    if side.norm is not None:
        own = (entering if norm is None else norm(entering)) @ weight.mT + bias
        within = side.norm.back(torch.eye(len(weight), dtype=weight.dtype))
        scale = 1 / side.norm.deviation(own)
        weight, bias, constant = within @ weight, within @ bias, side.norm.bias
    behind = bias if norm is None else bias + norm.constant(weight)
    constants = scale[:, None] * behind + (0 if constant is None else constant)
    if norm is not None:
        scale, weight = scale / norm.deviation(entering), norm.back(weight)
    turns = stream.turns[layer] if stream.turns and side.turned else None
    summed = None if sums is None else sums[:, tokens].to(entering)
    # each token has its own rotation, so rotated parts are summed afterwards
    early = summed is not None and turns is None

    def rows(found: Float[Tensor, "*lead token some"], scale: Float[Tensor, " token"]) -> Tensor:
        return (summed * scale) @ found if early else found * scale[:, None]

    def split(parts: Float[Tensor, "*lead row dim"]) -> Tensor:
        if turns is None:
            return parts
        rotated = _rotate_rows(parts, turns, ledger.trace.length, tokens, head, stream)
        return rotated if summed is None else summed @ rotated

    ones = torch.ones_like(scale)[:, None]
    every = rows(ones, scale)
    starts = [one[tokens] for one in (stream.embedding, stream.positions) if one is not None]
    at_start, down = weight, scale
    if stream.entry is not None:
        down = scale / stream.entry.deviation(sum(starts))
        constants = constants + scale[:, None] * stream.entry.constant(weight)
        at_start = stream.entry.back(weight)
    for kind, start in zip(("embedding", "positions"), starts, strict=False):
        yield kind, None, split(rows(start, down)[None] @ at_start.mT)
    for earlier, projection in enumerate(ledger.readout.layers[:layer]):
        handed = stream.heads[earlier][:, tokens]
        if stream.gates:
            gates = stream.gates[earlier][tokens]
            handed = handed * rearrange(gates, "token (head dim) -> head token dim", head=len(handed))
        down = scale / stream.post[earlier][tokens] if stream.post else scale
        handed = rows(handed, down / stream.inner[earlier][tokens] if stream.inner else down)
        if 4 * handed.shape[1] < len(weight):  # with few rows it is cheaper to compute the written vectors
            held = handed.new_ones(1, handed.shape[1])
            wrote = projection.forth(handed, held, held)
            post = None if projection.post is None else projection.post.bias
            added = torch.zeros_like(wrote[-1, 0]) if post is None else post.to(wrote)
            result, projected = wrote[:-1] @ weight.mT, (wrote[-1, 0] - added) @ weight.mT
            added = added @ weight.mT
        else:
            at, *biases = projection.back(weight)
            added, projected = (at.new_zeros(len(at)) if one is None else one for one in biases)
            result = handed @ rearrange(at, "dim (head dim2) -> head dim2 dim", head=len(handed))
        through = rows(ones, down) if stream.post else every
        yield "bias", earlier, split((every * added + through * projected)[None])
        yield "head", earlier, split(result)
        yield "mlp", earlier, split((rows(stream.mlps[earlier][tokens], scale) @ weight.mT)[None])
    yield "constant", None, split(rows(constants, ones[:, 0])[None])


def read_projection(
    ledger: LogitTerms, stream: Stream, layer: int, head: int, name: str,
    entering: Float[Tensor, "token width"]
) -> Float[Tensor, "token dim"]:  # fmt: skip
    """Return a head's queries, keys or values (`name`) of other input tokens, with their norms recomputed."""
    side, norm = stream.readers[layer].sides[name], stream.readers[layer].norm
    weight, bias = side.of_head(head, ledger.trace.layers[layer].heads, entering)
    result = (entering if norm is None else norm(entering)) @ weight.mT
    result = result if bias is None else result + bias
    result = result if side.norm is None else side.norm(result)
    turns = stream.turns[layer] if stream.turns and side.turned else None
    if turns is None:
        return result
    return _rotate_rows(result[None], turns, len(result), slice(None), head, stream)[0]


def value_factors(
    ledger: LogitTerms, stream: Stream, basis: Tensor, head: tuple[int, int], via: Sequence = ()
) -> Float[Tensor, "token dim"]:
    """Return d_j by token j for a (layer, head): its value v_j contributes <d_j, v_j> to the logit.

    With `via`, they are the factors in what flows through these heads, the one next to the prediction first.
    `basis` is the logit's direction, see `logit_account.directions`.
    """
    steps = [*via, head]
    result = head_direction(ledger, basis, *steps[0])
    for reader, (layer, number) in zip(steps, steps[1:], strict=False):
        at = _factors_of_writer(ledger, stream, reader, (layer, number), result)
        attention, rows = ledger.trace.layers[layer], range(0, len(at), _ROWS)
        some = (slice(row, row + _ROWS) for row in rows)
        result = sum(attention.weights(one, slice(number, number + 1))[0].mT @ at[one] for one in some)
    return result


def upstream_of(
    ledger: LogitTerms, stream: Stream, basis: Tensor, layer: int, head: int, via: Sequence = ()
) -> Upstream:
    """Return the parts of a head's contribution along `basis`, by writer of the head's input.

    Raises VitvizError for an unknown head or an invalid path.
    """
    try:
        trace, via = ledger.trace, tuple((int(one), int(two)) for one, two in via)
    except (TypeError, ValueError) as error:
        expected = "expected a list of (layer, head), such as [(7, 0)]"
        raise VitvizError(f"via={quoted(via)} is not valid; {expected}.") from error
    _check(trace, layer, head, via)
    along = value_factors(ledger, stream, basis, (layer, head), via)
    own = along.new_full((len(trace.layers), trace.layers[0].heads, trace.length), float("nan"))
    lines = {"head": own, "bias": own[:, 0].clone(), "mlp": own[:, 0].clone(), "positions": None}
    for kind, earlier, result in writer_parts(ledger, stream, layer, head, "value"):
        by_token = (result * along).sum(dim=-1)
        if earlier is None:
            lines[kind] = by_token[0]
        else:
            lines[kind][earlier] = by_token if kind == "head" else by_token[0]
    named = [lines[one] for one in ("embedding", "positions", "constant", "head", "bias", "mlp")]
    whole = [None if one is None else one.double().sum(dim=-1) for one in named]
    share = (along.double() * trace.layers[layer].v[head]).sum().item()
    return Upstream(
        share, layer, head, via,
        *(None if one is None else one.item() for one in whole[:3]), *whole[3:],
        ByWriter(*(None if one is None else trace.on_tokens(one) for one in named)),
    )  # fmt: skip


def attribute_score(
    ledger: LogitTerms | TracedBlocks, stream: Stream, layer: int, head: int, query: int, key: int,
    against: int | None = None
) -> ScoreAttribution:  # fmt: skip
    """Return one attention score by writers of its query and key, both given as tokens from 0.

    `relative` is compared with the mean over keys, or with the key `against`.
    """
    trace = ledger.trace
    _check(trace, layer, head)
    attention, asked, keys, names = trace.layers[layer], [], [], []
    picked = torch.tensor([query, key, against or 0], device=attention.q.device)
    asking, asked_key, usual = torch.nn.functional.one_hot(picked, trace.length).to(attention.q)
    usual = torch.full_like(usual, 1 / trace.length) if against is None else usual
    rows, sides = torch.stack([asking, asked_key, usual]), stream.readers[layer].sides
    turned = stream.turns and stream.turns[layer] is not None
    if turned or any(sides[one].norm is not None for one in ("query", "key")):
        result = writer_parts(ledger, stream, layer, head, "key", sums=rows[1:])
        each = zip(writer_parts(ledger, stream, layer, head, "query", sums=rows[:1]), result, strict=True)
        each = ((kind, earlier, one, two) for (kind, earlier, one), (*_, two) in each)
    else:  # the written vectors are carried to both sides at once
        result = writer_parts(ledger, stream, layer, head, "query", "key", sums=rows)
        each = ((*whose, *one.chunk(2, dim=-1)) for *whose, one in result)
    for kind, earlier, one, two in each:
        asked.append(one[:, 0])
        keys.append(two[:, -2:])
        names += [Writer(kind, earlier, number if kind == "head" else None) for number in range(len(one))]
    bias = 0.0 * attention.k[0, :, 0]
    if attention.bias is not None:
        rows = attention.bias.rows(picked[:1], slice(head, head + 1))
        bias = rows[0, 0].expand(len(bias))
    own = torch.cat(asked).double() * attention.scale
    matrix, other = (own @ one.mT for one in torch.cat(keys).double().unbind(dim=1))
    rest, score = bias[key].item(), attention.q[head, query].double() @ attention.k[head, key].double()
    score, relative = (score * attention.scale + bias[key]).item(), rest - (bias @ usual).item()
    return ScoreAttribution(score, tuple(names), matrix, rest, matrix - other, relative)


def _factors_of_writer(
    ledger: LogitTerms, stream: Stream, reader: tuple[int, int], writer: tuple[int, int], along: Tensor
) -> Float[Tensor, "token dim"]:
    """Return the factors of an earlier head's output before W_O, from those of a later head's values."""
    (layer, head), (earlier, number) = reader, writer
    trace, norm = ledger.trace, stream.readers[layer].norm
    weight = stream.readers[layer].sides["value"].weight.unflatten(0, (trace.layers[layer].heads, -1))[head]
    scale, weight = along.new_ones(len(along)), weight.to(along)
    if norm is not None:
        scale, weight = 1 / norm.deviation(trace.tokens[layer]), norm.back(weight)
    scale = stream.divided(scale, earlier)
    at = ledger.readout.layers[earlier].back(weight)[0]
    heads = trace.layers[earlier].heads
    result = along @ at.unflatten(1, (heads, -1))[:, number] * scale[:, None]
    return result * stream.gates[earlier].unflatten(1, (heads, -1))[:, number] if stream.gates else result


def _rotate_rows(
    parts: Float[Tensor, "writer token dim"], turns: Tensor, length: int, tokens, head: int, stream: Stream
) -> Tensor:
    """Return queries or keys of `tokens` rotated by rotary positions; prefix tokens stay unchanged."""
    turns = (turns[head] if turns.ndim == 3 else turns).to(parts)
    still = torch.cat([turns.new_zeros(1, parts.shape[-1]), turns.new_ones(1, parts.shape[-1])], dim=-1)
    turns = torch.cat([still.expand(length - len(turns), -1), turns])[tokens]
    sines, cosines = turns.chunk(2, dim=-1)
    if stream.halves:
        one, two = parts.chunk(2, dim=-1)
        crossed = torch.cat([-two, one], dim=-1)
    else:
        crossed = torch.stack([-parts[..., 1::2], parts[..., ::2]], dim=-1).flatten(-2)
    return parts * cosines + crossed * sines


def _check(trace, layer: int, head: int, via: tuple = ()) -> None:
    """Raise VitvizError for an unknown or replaced head (layer, head).

    Also if the path `via`, ending in this head, does not go from later to earlier layers.
    """
    layers, heads = len(trace.layers), trace.layers[0].heads
    for one, two in (*via, (layer, head)):
        if not (0 <= one < layers and 0 <= two < heads):
            raise VitvizError(
                f"Head {(one, two)} does not exist: {trace.checkpoint} has layers 0 to {layers - 1} and"
                f" heads 0 to {heads - 1}, counted from 0."
            )
        if two in trace.layers[one].replaced:
            reason = "so what it handed on it did not read"
            raise VitvizError(f"Head {(one, two)} was replaced in this pass, {reason}.")
    trail = [one for one, _ in (*via, (layer, head))]
    if any(later <= earlier for later, earlier in zip(trail, trail[1:], strict=False)):
        raise VitvizError(
            f"The path {[*via, (layer, head)]} is not valid; expected each head in an earlier"
            " layer than the one before it."
        )
