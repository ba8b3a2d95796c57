"""The smallest part of a model that answers: edges kept by what flows along them, all others replaced.

An edge goes from a writer (the embedding, the positions, a head, an MLP) into the values of a later head, or
into what the classifier reads (the answer). Its share is all that flows along it, on to the answer directly
and through later heads, with attention, norms and MLPs' results held:

    g^l = sum_i c_i u + sum_(later heads) D W_V' / sigma,   D = A' g^l W_O,   share = <D W_V' / sigma, w>

where w is what the writer wrote, less what stands in its place. Real passes then keep the n edges of largest
|share|; every other writer's part is replaced, in that reader alone, by its mean over pictures or by zero.
Faithfulness is how far the answer's margin over the next class has come, from nothing kept to all. Margins
need not grow with n: a prediction that n edges preserve can be lost with more. So a size that preserves it
says nothing about sizes between those that were tried. Queries, keys and MLPs read what they read in that
very pass: such a part says what must be moved between tokens and into the answer, and nothing about what must
be computed. Yardstick: Vi-CD (2604.14477), by learned masks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.effects import Edge, edges_into
from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.target import score_of
from vitviz.analyses.upstream import Stream, Writer
from vitviz.traces.display import NotebookTable

ROWS = 256  # tokens at a time
KEPT = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)  # shares of the edges that are tried


@dataclass(frozen=True)
class SufficientEdges(NotebookTable):
    """How much of an answer is left with some of the edges; `edges` and `shares` with the largest first."""

    edges: tuple[Edge, ...]
    shares: Float[Tensor, " edge"]
    counts: tuple[int, ...]  # of edges kept
    margins: dict[str, Float[Tensor, "draw count"]]  # by order: "share", "random", "effect"; logits
    parts_as: str
    curve: tuple[tuple[int, float], ...]  # every size tried by share, with its margin; `counts` and more

    @property
    def tried(self) -> int:
        """How many sizes were tried, with the edges of largest |share| kept."""
        return len(self.curve)

    @property
    def smallest_preserving(self) -> int | None:
        """The smallest tried size that preserves the prediction; an untried smaller one may do so too."""
        return preserving(*zip(*self.curve, strict=True))[0]

    @property
    def preserving_from(self) -> int | None:
        """The tried size from which on every tried size preserves the prediction; untried ones may not."""
        return preserving(*zip(*self.curve, strict=True))[1]

    def faithfulness(self, order: str = "share") -> Float[Tensor, "draw count"]:
        """0 with no edge kept, 1 with all of them."""
        none, whole = self.margins["share"][0, [0, -1]]
        return (self.margins[order] - none) / (whole - none)

    def rows(self) -> list[dict]:
        """One row a count, order and draw."""
        return [
            {"kept": count, "order": order, "draw": draw, "margin": margin}
            for order, margins in self.margins.items()
            for draw, row in enumerate(margins.tolist())
            for count, margin in zip(self.counts, row, strict=True)
        ]


def every_edge(layers: int, heads: int, positions: bool) -> list[Edge]:
    """All edges into values and into the answer."""
    ends = [(layer, head, "value") for layer in range(layers) for head in range(heads)]
    ends.append((layers, None, "answer"))
    return [edge for layer, head, into in ends for edge in edges_into(layer, head, heads, into, positions)]


def flows(
    ledger: LogitTerms, stream: Stream, basis: Tensor
) -> Iterator[tuple[int, Writer, Float[Tensor, " reader"]]]:
    """What flows along every edge: the layer that reads, the writer, one number a reader (a layer's heads; of
    the answer, as one layer more, a single one). `basis`: see `evidence.directions`. Source: see the module.
    """
    trace, heads = ledger.trace, ledger.trace.layers[0].heads
    width = trace.tokens[0].shape[-1]
    back = basis.new_zeros(len(trace.tokens[0]), width)
    back[ledger.readout.pooling.readers] = trace.written.weights.to(basis) @ basis
    rows = [slice(row, row + ROWS) for row in range(0, len(back), ROWS)]
    readers = back[None]
    for layer in range(len(trace.layers), -1, -1):
        if layer < len(trace.layers):
            attention, norm = trace.layers[layer], stream.readers[layer].norm
            at = ledger.readout.layers[layer].back(back)[0]
            for deviations in (stream.post, stream.inner):
                at = at / deviations[layer][:, None] if deviations else at
            at = at.unflatten(1, (heads, -1)).transpose(0, 1)
            along = sum(attention.weights(one).mT @ at[:, one] for one in rows)
            weight = stream.readers[layer].sides["value"].weight.to(basis).unflatten(0, (heads, -1))
            readers = along @ (weight if norm is None else norm.back(weight))
            readers = readers if norm is None else readers / norm.deviation(trace.tokens[layer])[:, None]
            back = back + readers.sum(dim=0)
        ends = [one for one in ("embedding", "positions") if getattr(stream, one) is not None]
        writers = [one.writer for one in edges_into(layer, None, heads, "answer", "positions" in ends)]
        # made at once: small results that are kept between large ones would leave no room for these again
        table = basis.new_zeros(len(writers), len(readers))
        for some in rows:
            flat = readers[:, some].flatten(1)
            for place, kind in enumerate(ends):
                table[place] += flat @ getattr(stream, kind)[some].flatten()
            for earlier in range(layer):
                held = [None if not one else one[earlier][None, some] for one in (stream.inner, stream.post)]
                wrote = ledger.readout.layers[earlier].forth(stream.heads[earlier][:, some], *held)
                wrote[-1] = stream.mlps[earlier][some]  # the bias, the same for every picture, gives way
                first = len(ends) + earlier * (heads + 1)
                table[first : first + heads + 1] += wrote.flatten(1) @ flat.mT
        yield from ((layer, *pair) for pair in zip(writers, table, strict=True))


def shares_of(
    ledger: LogitTerms, stream: Stream, basis: Tensor, edges: Sequence[Edge]
) -> Float[Tensor, " edge"]:
    """What flows along each of these edges, in logits."""
    found = {(layer, writer): some for layer, writer, some in flows(ledger, stream, basis)}
    return torch.stack([found[one.layer, one.writer][one.head or 0] for one in edges]).double()


def orders_of(edges: int, draws: int, seed: int) -> dict[str, list[list[int]]]:
    """In which order edges are added, by name: by share, as they stand, and at random, so many times."""
    made = torch.Generator().manual_seed(seed)
    chance = [torch.randperm(edges, generator=made).tolist() for _ in range(draws)]
    return {"share": [list(range(edges))], "random": chance}


def kept_counts(edges: int) -> tuple[int, ...]:
    """How many edges are kept in turn, from none to all."""
    return tuple(round(share * edges) for share in KEPT)


def preserving(sizes: Sequence[int], margins: Sequence[float]) -> tuple[int | None, int | None]:
    """Return the smallest of the tried sizes with a margin above 0, and the size from which on all have one;
    None where there is none. Sizes ascend.

    >>> preserving([0, 10, 20, 30, 40], [-1.0, 0.5, -0.2, 0.1, 0.3])
    (10, 30)
    """
    kept = [margin > 0 for margin in margins]
    after = len(kept) - next((n for n, one in enumerate(reversed(kept)) if not one), len(kept))
    smallest = next((size for size, one in zip(sizes, kept, strict=True) if one), None)
    return smallest, sizes[after] if after < len(sizes) else None


def margin_of(
    logits: Float[Tensor, "row class"], classes: Sequence[int], prediction: int | None = None
) -> Float[Tensor, " row"]:
    """By how much a class's logit lies above every other's, or above that of a second class; of a single
    output by how much it lies on the side of the `prediction`, above zero for 1 and below for 0.

    >>> margin_of(torch.tensor([[2.0], [-1.0]]), [0], prediction=0).tolist()
    [-2.0, 1.0]
    """
    if len(classes) == 2:
        return score_of(logits, classes)
    if logits.shape[1] == 1 and prediction is not None:
        return logits[:, 0] * (1 if prediction else -1)
    own = torch.zeros_like(logits, dtype=torch.bool)
    own[:, classes[0]] = True
    return logits[:, classes[0]] - logits.masked_fill(own, -torch.inf).amax(dim=1)
