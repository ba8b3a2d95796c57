"""Sufficient edges: the largest edges that preserve a prediction, with all others replaced.

An edge goes from a writer (the embedding, the positions, a head, an MLP) to the values of a later head, or to
what the classifier reads (the prediction). Its share is everything that flows along it, to the prediction
directly and through later heads, with attention, norms and MLPs' outputs held:

    g^l = sum_i c_i u + sum_(later heads) D W_V' / sigma,   D = A' g^l W_O,   share = <D W_V' / sigma, w>

where w is what the writer wrote, minus its replacement. Real passes then keep the n edges of largest |share|.
Every other writer's contribution is replaced, in that reader alone, by its mean over images or by zero.
Faithfulness is the position of the prediction's margin over the next class, from 0 with no edge to 1 with
all. Margins need not grow with n: a prediction that n edges preserve can be lost with more. So a size that
preserves it says nothing about sizes that were not tried. Queries, keys and MLPs read the tokens of that same
pass unedited: the edges tell what must be moved between tokens and to the prediction, and nothing about what
must be computed. For comparison: Vi-CD (2604.14477), by learned masks.
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
from vitviz.traces.display import NotebookChart, NotebookTable

ROWS = 256  # tokens at a time
KEPT = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)  # fractions of the edges that are tried


@dataclass(frozen=True)
class SufficientEdges(NotebookChart, NotebookTable):
    """Margins of a prediction with some of the edges kept; edges are in descending order of |share|."""

    edges: tuple[Edge, ...]
    shares: Float[Tensor, " edge"]
    counts: tuple[int, ...]  # numbers of edges kept
    margins: dict[str, Float[Tensor, "draw count"]]  # by order: "share", "random", "effect"; logits
    parts_as: str
    curve: tuple[tuple[int, float], ...]  # every size tried by share, with its margin; includes `counts`

    @property
    def tried(self) -> int:
        """Number of sizes tried with the edges of largest |share|."""
        return len(self.curve)

    @property
    def smallest_preserving(self) -> int | None:
        """Smallest tried size that preserves the prediction; an untried smaller size may preserve it too."""
        return preserving_sizes(*zip(*self.curve, strict=True))[0]

    @property
    def preserving_from(self) -> int | None:
        """Smallest size from which every tried size preserves the prediction; untried sizes may not."""
        return preserving_sizes(*zip(*self.curve, strict=True))[1]

    def faithfulness(self, order: str = "share") -> Float[Tensor, "draw count"]:
        """Return the margin scaled to 0 with no edge and 1 with all edges: (draw, count)."""
        none, whole = self.margins["share"][0, [0, -1]]
        return (self.margins[order] - none) / (whole - none)

    def rows(self) -> list[dict]:
        """Return one row per count, order and draw."""
        return [
            {"kept": count, "order": order, "draw": draw, "margin": margin}
            for order, margins in self.margins.items()
            for draw, row in enumerate(margins.tolist())
            for count, margin in zip(self.counts, row, strict=True)
        ]


def every_edge(layers: int, heads: int, positions: bool) -> list[Edge]:
    """Return all edges into values and into the prediction."""
    ends = [(layer, head, "value") for layer in range(layers) for head in range(heads)]
    ends.append((layers, None, "answer"))
    return [edge for layer, head, into in ends for edge in edges_into(layer, head, heads, into, positions)]


def edge_flows(
    ledger: LogitTerms, stream: Stream, basis: Tensor
) -> Iterator[tuple[int, Writer, Float[Tensor, " reader"]]]:
    """Yield (reading layer, writer, shares in logits of its edges to the readers), for all edges.

    The readers of a layer are its heads. The prediction is one more layer with a single reader. `basis` is
    the logit's direction, see `logit_account.directions`. Source: see the module.
    """
    trace, heads = ledger.trace, ledger.trace.layers[0].heads
    back = basis.new_zeros(trace.tokens[0].shape)
    back[ledger.readout.pooling.readers] = trace.written.weights.to(basis) @ basis
    rows = [slice(row, row + ROWS) for row in range(0, len(back), ROWS)]
    readers = back[None]
    for layer in range(len(trace.layers), -1, -1):
        if layer < len(trace.layers):
            attention, norm = trace.layers[layer], stream.readers[layer].norm
            at = stream.divided(ledger.readout.layers[layer].back(back)[0].mT, layer).mT
            at = at.unflatten(1, (heads, -1)).transpose(0, 1)
            along = sum(attention.weights(one).mT @ at[:, one] for one in rows)
            weight = stream.readers[layer].sides["value"].weight.to(basis).unflatten(0, (heads, -1))
            readers = along @ (weight if norm is None else norm.back(weight))
            readers = readers if norm is None else readers / norm.deviation(trace.tokens[layer])[:, None]
            back = back + readers.sum(dim=0)
        ends = [one for one in ("embedding", "positions") if getattr(stream, one) is not None]
        writers = [one.writer for one in edges_into(layer, None, heads, "answer", "positions" in ends)]
        # Allocated at once: small results kept between large ones would fragment the memory.
        table = basis.new_zeros(len(writers), len(readers))
        for some in rows:
            flat = readers[:, some].flatten(1)
            for place, kind in enumerate(ends):
                table[place] += flat @ getattr(stream, kind)[some].flatten()
            for earlier in range(layer):
                handed, held = stream.heads[earlier][:, some], stream.held(earlier, some)
                wrote = ledger.readout.layers[earlier].forth(handed, *held)
                wrote[-1] = stream.mlps[earlier][some]  # the bias, equal for every image, is overwritten
                first = len(ends) + earlier * (heads + 1)
                table[first : first + heads + 1] += wrote.flatten(1) @ flat.mT
        yield from ((layer, *pair) for pair in zip(writers, table, strict=True))


def edge_shares(
    ledger: LogitTerms, stream: Stream, basis: Tensor, edges: Sequence[Edge]
) -> Float[Tensor, " edge"]:
    """Return the share of each of these edges, in logits."""
    result = {(layer, writer): some for layer, writer, some in edge_flows(ledger, stream, basis)}
    return torch.stack([result[one.layer, one.writer][one.head or 0] for one in edges]).double()


def edge_orders(edges: int, draws: int, seed: int) -> dict[str, list[list[int]]]:
    """Return the orders in which edges are added: "share" is the given order, "random" has `draws` orders."""
    made = torch.Generator().manual_seed(seed)
    chance = [torch.randperm(edges, generator=made).tolist() for _ in range(draws)]
    return {"share": [list(range(edges))], "random": chance}


def kept_counts(edges: int) -> tuple[int, ...]:
    """Return the numbers of edges kept in turn, from none to all."""
    return tuple(round(share * edges) for share in KEPT)


def preserving_sizes(sizes: Sequence[int], margins: Sequence[float]) -> tuple[int | None, int | None]:
    """Return the smallest size with a margin above 0, and the size from which all tried sizes have one.

    Each is None if there is no such size. Sizes ascend.

    >>> preserving_sizes([0, 10, 20, 30, 40], [-1.0, 0.5, -0.2, 0.1, 0.3])
    (10, 30)
    """
    kept = [margin > 0 for margin in margins]
    after = len(kept) - next((n for n, one in enumerate(reversed(kept)) if not one), len(kept))
    smallest = next((size for size, one in zip(sizes, kept, strict=True) if one), None)
    return smallest, sizes[after] if after < len(sizes) else None


def margin_of(
    logits: Float[Tensor, "row class"], classes: Sequence[int], prediction: int | None = None
) -> Float[Tensor, " row"]:
    """Return by row a class's logit minus the largest other logit, or minus that of a given second class.

    For a single output it is the logit's distance from zero on the side of the `prediction`: positive for 1,
    negative for 0.

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
