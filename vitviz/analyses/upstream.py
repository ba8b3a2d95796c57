"""One page deeper than the account: who wrote what a head reads.

What head h of layer l reads at token j is x_j = e_j + p_j + sum_(l'<l) (sum_h' W_O z_j^(l',h') + b_O + m_j):
embedding, position, every earlier head, bias and MLP. With the deviations of norms held the way from x_j to
the head's queries, keys and values is affine, y_j = W n(x_j) + b, so y_j is a sum over those who wrote x_j
(`parts`), and with the head's attention held so is its share of a logit,

    share = sum_j <d_j, v_j> = sum_writers sum_j <d_j, part of v_j> + constants

where d_j is the sum over those who read of A_ij u, u the answer's direction at the head's values. An earlier
head's part is sum_i <d'_i, v'_i> in its own values (`flow`), so the same question can be asked of it: a path.
Norms of queries and keys are held likewise, rotary positions turn every part alike. MLPs' results are what
was recorded at all tokens, never a difference of residuals, which would make every sum right. Source: Elhage
et al. 2021 (A Mathematical Framework for Transformer Circuits), with norms and biases as lines.

It does not show why a part was written: an MLP's line is what it wrote, whoever it had read. What attention
would have been without a writer is not in it; `vitviz.edge_ablation` makes those passes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.logit_account import head_direction
from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.readout_stage import Norm
from vitviz.errors import VitvizError, quoted
from vitviz.traces.display import NotebookDisplay, NotebookTable

_ROWS = 512  # of attention at a time


class Writer(NamedTuple):
    """Who wrote: "embedding", "positions", "head", "bias" (of a layer's attention), "mlp", or "constant"."""

    kind: str
    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True)
class Side:
    """Queries, keys or values of all heads: y = norm(W x + b), turned by rotary positions."""

    weight: Float[Tensor, "inner width"]
    bias: Float[Tensor, " inner"] | None
    norm: Norm | None = None  # of each head by itself
    turned: bool = False

    def of_head(self, head: int, heads: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of one of so many heads."""
        both = self.weight, self.bias
        return tuple(None if one is None else one.unflatten(0, (heads, -1))[head].to(like) for one in both)


@dataclass(frozen=True)
class Reader:
    """What one layer's attention makes of the tokens that enter it."""

    norm: Norm | None
    sides: dict[str, Side]  # "query", "key", "value"


@dataclass(frozen=True)
class Stream:
    """What every part wrote at all tokens of a pass, and how heads read it; holds no trace."""

    readers: tuple[Reader, ...]
    embedding: Float[Tensor, "token width"]  # patches' E x_p, prefix tokens' own vectors
    positions: Float[Tensor, "token width"] | None  # E_pos; None where none is added
    entry: Norm | None  # between these and the first block
    heads: tuple[Float[Tensor, "head token dim"], ...]  # what each handed on, before gate, norm, projection
    mlps: tuple[Float[Tensor, "token width"], ...]  # as they were added
    inner: tuple[Float[Tensor, " token"], ...] = ()  # deviations of the norm between heads and projection
    post: tuple[Float[Tensor, " token"], ...] = ()  # of the norm behind attention's branch
    gates: tuple[Float[Tensor, "token inner"], ...] = ()
    turns: tuple[Tensor | None, ...] = ()  # rotary positions' sines and cosines by layer, patches alone
    halves: bool = False  # rotary pairs are (i, i + dim / 2) instead of neighbours


@dataclass(frozen=True)
class ByWriter:
    """Numbers of all writers, NaN from the reading head's layer on; a last axis, token, where by token."""

    embedding: Tensor
    positions: Tensor | None  # None for a model without learned absolute positions
    constant: Tensor  # biases of the norms and of the values
    heads: Float[Tensor, "layer head ..."]
    biases: Float[Tensor, "layer ..."]  # of each layer's attention branch
    mlps: Float[Tensor, "layer ..."]

    def of(self, writer: Writer) -> Tensor | None:
        """Those of one writer; IndexError for no such head or layer."""
        kind, *place = writer
        table = getattr(self, {"head": "heads", "bias": "biases", "mlp": "mlps"}.get(kind, kind))
        return table if table is None else table[tuple(one for one in place if one is not None)]


@dataclass(frozen=True)
class Upstream(NotebookTable):
    """One head's share of a logit (or of what flows through `via`), by who wrote what it reads; from 0."""

    share: float
    layer: int
    head: int
    via: tuple[tuple[int, int], ...]  # the heads between this one and the answer, the answer's first
    embedding: float
    positions: float | None
    constant: float
    heads: Float[Tensor, "layer head"]
    biases: Float[Tensor, " layer"]
    mlps: Float[Tensor, " layer"]
    by_token: ByWriter

    def lines(self) -> list[tuple[Writer, float]]:
        """Every writer with its part; they add up to `total`."""
        ends = [(Writer(kind), getattr(self, kind)) for kind in ("embedding", "positions", "constant")]
        found = [(writer, part) for writer, part in ends if part is not None]
        for layer in range(self.layer):
            found += [(Writer("head", layer, h), part) for h, part in enumerate(self.heads[layer].tolist())]
            found.append((Writer("bias", layer), self.biases[layer].item()))
            found.append((Writer("mlp", layer), self.mlps[layer].item()))
        return found

    @property
    def total(self) -> float:
        """The sum of all lines."""
        return sum(part for _, part in self.lines())

    @property
    def gap(self) -> float:
        """What the lines leave unexplained: share - total."""
        return self.share - self.total

    def rows(self) -> list[dict]:
        """One row a line."""
        return [{**writer._asdict(), "logits": part} for writer, part in self.lines()]


@dataclass(frozen=True)
class ScoreAttribution(NotebookDisplay):
    """One score before the softmax by who wrote the query's side (rows) and who the key's (columns)."""

    score: float  # the model's own, with its relative bias
    writers: tuple[Writer, ...]
    matrix: Float[Tensor, "writer writer2"]
    rest: float  # what is added to the scores: a relative bias
    relative: Float[Tensor, "writer writer2"]  # the same less the mean over keys, or another key's
    relative_rest: float

    @property
    def total(self) -> float:
        return self.matrix.sum().item() + self.rest

    @property
    def gap(self) -> float:
        """What matrix and rest leave unexplained: score - total."""
        return self.score - self.total

    @property
    def content_position(self) -> Float[Tensor, "side side2"] | None:
        """Of `relative`: content and position of the query's side by those of the key's; position is E_pos's
        direct part alone. None where the model has no E_pos.
        """
        if Writer("positions") not in self.writers:
            return None
        position = torch.tensor([float(one.kind == "positions") for one in self.writers])
        split = torch.stack([1 - position, position]).to(self.relative)
        return split @ self.relative @ split.mT


def parts(
    ledger: LogitTerms, stream: Stream, layer: int, head: int, *names: str, sums: Tensor | None = None
) -> Iterator[tuple[str, int | None, Float[Tensor, "writer row dim"]]]:
    """What each writer gives to a head's queries, keys or values (`names`); they add up to it. A row is a
    token, or a sum over the tokens with the weights `sums` (row, token), taken before anything is projected.

    Writers of one kind and layer come together; `names` side by side, if they are neither normed nor turned.
    Source: see the module.
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
    early = summed is not None and turns is None  # every token is turned by its own position

    def rows(found: Float[Tensor, "*lead token some"], scale: Float[Tensor, " token"]) -> Tensor:
        return (summed * scale) @ found if early else found * scale[:, None]

    def split(found: Float[Tensor, "*lead row dim"]) -> Tensor:
        if turns is None:
            return found
        found = _turned(found, turns, ledger.trace.length, tokens, head, stream)
        return found if summed is None else summed @ found

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
        if 4 * handed.shape[1] < len(weight):  # of few rows it is cheaper to write out what was written
            held = handed.new_ones(1, handed.shape[1])
            wrote = projection.forth(handed, held, held)
            post = None if projection.post is None else projection.post.bias
            added = torch.zeros_like(wrote[-1, 0]) if post is None else post.to(wrote)
            found, projected = wrote[:-1] @ weight.mT, (wrote[-1, 0] - added) @ weight.mT
            added = added @ weight.mT
        else:
            at, added, projected = projection.back(weight)
            found = handed @ rearrange(at, "dim (head dim2) -> head dim2 dim", head=len(handed))
        through = rows(ones, down) if stream.post else every
        yield "bias", earlier, split((every * added + through * projected)[None])
        yield "head", earlier, split(found)
        yield "mlp", earlier, split((rows(stream.mlps[earlier][tokens], scale) @ weight.mT)[None])
    yield "constant", None, split(rows(constants, ones[:, 0])[None])


def read(
    ledger: LogitTerms, stream: Stream, layer: int, head: int, name: str,
    entering: Float[Tensor, "token width"]
) -> Float[Tensor, "token dim"]:  # fmt: skip
    """What a head makes of other tokens, their norms taken anew: its queries, keys or values."""
    side, norm = stream.readers[layer].sides[name], stream.readers[layer].norm
    weight, bias = side.of_head(head, ledger.trace.layers[layer].heads, entering)
    found = (entering if norm is None else norm(entering)) @ weight.mT
    found = found if bias is None else found + bias
    found = found if side.norm is None else side.norm(found)
    turns = stream.turns[layer] if stream.turns and side.turned else None
    if turns is None:
        return found
    return _turned(found[None], turns, len(found), slice(None), head, stream)[0]


def flow(
    ledger: LogitTerms, stream: Stream, basis: Tensor, head: tuple[int, int], via: Sequence = ()
) -> Float[Tensor, "token dim"]:
    """d_j of a head, given as (layer, head): what its values at each token are multiplied by in the answer,
    or in what of it flows through the heads `via`, the answer's first. `basis`: the answer's direction, see
    `evidence.directions`.
    """
    steps = [*via, head]
    found = head_direction(ledger, basis, *steps[0])
    for reader, (layer, number) in zip(steps, steps[1:], strict=False):
        at = _at_head(ledger, stream, reader, (layer, number), found)
        attention, rows = ledger.trace.layers[layer], range(0, len(at), _ROWS)
        some = (slice(row, row + _ROWS) for row in rows)
        found = sum(attention.weights(one, slice(number, number + 1))[0].mT @ at[one] for one in some)
    return found


def writers_of(
    ledger: LogitTerms, stream: Stream, basis: Tensor, layer: int, head: int, via: Sequence = ()
) -> Upstream:
    """Who wrote what a head reads, as parts of its share along `basis`; VitvizError for no head or path."""
    trace, via = ledger.trace, tuple((int(one), int(two)) for one, two in via)
    _check(trace, layer, head, via)
    along = flow(ledger, stream, basis, (layer, head), via)
    own = along.new_full((len(trace.layers), trace.layers[0].heads, trace.length), float("nan"))
    lines = {"head": own, "bias": own[:, 0].clone(), "mlp": own[:, 0].clone(), "positions": None}
    for kind, earlier, found in parts(ledger, stream, layer, head, "value"):
        by_token = (found * along).sum(dim=-1)
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


def score_of(
    ledger: LogitTerms, stream: Stream, layer: int, head: int, query: int, key: int,
    against: int | None = None
) -> ScoreAttribution:  # fmt: skip
    """The score of a query and key, tokens from 0; `relative` to the mean over keys, or to `against`."""
    trace = ledger.trace
    _check(trace, layer, head)
    for name, token in (("query", query), ("key", key), ("key to compare with", against or 0)):
        if not 0 <= token < trace.length:
            raise VitvizError(
                f"Given {quoted(token)} as the {name}; expected a token from 0 to {trace.length - 1}."
            )
    attention, asked, keys, names = trace.layers[layer], [], [], []
    picked = torch.tensor([query, key, against or 0], device=attention.q.device)
    asking, asked_key, usual = torch.nn.functional.one_hot(picked, trace.length).to(attention.q)
    usual = torch.full_like(usual, 1 / trace.length) if against is None else usual
    rows, sides = torch.stack([asking, asked_key, usual]), stream.readers[layer].sides
    turned = stream.turns and stream.turns[layer] is not None
    if turned or any(sides[one].norm is not None for one in ("query", "key")):
        found = parts(ledger, stream, layer, head, "key", sums=rows[1:])
        each = zip(parts(ledger, stream, layer, head, "query", sums=rows[:1]), found, strict=True)
        each = ((kind, earlier, one, two) for (kind, earlier, one), (*_, two) in each)
    else:  # what was written is carried to both at once
        found = parts(ledger, stream, layer, head, "query", "key", sums=rows)
        each = ((*whose, *one.chunk(2, dim=-1)) for *whose, one in found)
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
    rest = bias[key].item()
    score = attention.q[head, query].double() @ attention.k[head, key].double() * attention.scale + bias[key]
    return ScoreAttribution(
        score.item(), tuple(names), matrix, rest, matrix - other, rest - (bias @ usual).item()
    )


def _at_head(
    ledger: LogitTerms, stream: Stream, reader: tuple[int, int], writer: tuple[int, int], along: Tensor
) -> Float[Tensor, "token dim"]:
    """What a later head's values are multiplied by, carried back to what an earlier head handed on."""
    (layer, head), (earlier, number) = reader, writer
    trace, norm = ledger.trace, stream.readers[layer].norm
    weight = stream.readers[layer].sides["value"].weight.unflatten(0, (trace.layers[layer].heads, -1))[head]
    scale, weight = along.new_ones(len(along)), weight.to(along)
    if norm is not None:
        scale, weight = 1 / norm.deviation(trace.tokens[layer]), norm.back(weight)
    for deviations in (stream.post, stream.inner):
        scale = scale / deviations[earlier] if deviations else scale
    at = ledger.readout.layers[earlier].back(weight)[0]
    heads = trace.layers[earlier].heads
    found = along @ at.unflatten(1, (heads, -1))[:, number] * scale[:, None]
    return found * stream.gates[earlier].unflatten(1, (heads, -1))[:, number] if stream.gates else found


def _turned(
    found: Float[Tensor, "writer token dim"], turns: Tensor, length: int, tokens, head: int, stream: Stream
) -> Tensor:
    """Patches' rows turned by their positions, prefix tokens left as they are."""
    turns = (turns[head] if turns.ndim == 3 else turns).to(found)
    still = torch.cat([turns.new_zeros(1, found.shape[-1]), turns.new_ones(1, found.shape[-1])], dim=-1)
    turns = torch.cat([still.expand(length - len(turns), -1), turns])[tokens]
    sines, cosines = turns.chunk(2, dim=-1)
    if stream.halves:
        one, two = found.chunk(2, dim=-1)
        crossed = torch.cat([-two, one], dim=-1)
    else:
        crossed = torch.stack([-found[..., 1::2], found[..., ::2]], dim=-1).flatten(-2)
    return found * cosines + crossed * sines


def _check(trace, layer: int, head: int, via: tuple = ()) -> None:
    layers, heads = len(trace.layers), trace.layers[0].heads
    for one, two in (*via, (layer, head)):
        if not (0 <= one < layers and 0 <= two < heads):
            raise VitvizError(
                f"Given head {(one, two)}; {trace.checkpoint} has layers 0 to {layers - 1} and heads 0 to"
                f" {heads - 1}, counted from 0."
            )
        if two in trace.layers[one].replaced:
            raise VitvizError(
                f"Head {(one, two)} was replaced in this pass, so what it handed on it did not read."
            )
    trail = [one for one, _ in (*via, (layer, head))]
    if any(later <= earlier for later, earlier in zip(trail, trail[1:], strict=False)):
        raise VitvizError(f"Given the path {[*via, (layer, head)]}; expected each head in an earlier layer.")
