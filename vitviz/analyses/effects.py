"""Ablation effects compared with direct contributions.

The direct contribution of a head to a logit comes from what it writes into the tokens that the classifier
reads. If the head is ablated, later layers receive other tokens and write other vectors, so the logit falls
by more, by less, or rises. Both numbers are correct; where they disagree, later layers react. Their
correlation tells how much of a prediction the direct contributions explain. An effect depends on the
replacement of the component, the effects of two components do not add up, and they do not show which later
component reacted.

Edge ablation: remove one writer's contribution from the input of a single reader, in a real pass.

Upstream contributions hold attention, norms and MLPs, so they add up. Path patching (Wang et al. 2022, arXiv
2211.00593) holds nothing: the writer's contribution is replaced by its reference in the input of one head's
values (or queries, or keys), the norm is recomputed, and everything else responds. The contribution and the
effect of an edge agree if later layers do not react. Their correlation tells how reliable the contributions
are. An effect says nothing about several edges at once: two edges removed together have another effect than
the sum of the two.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.correlation import pearson
from vitviz.analyses.logit_account import Attribution
from vitviz.analyses.upstream import Writer
from vitviz.traces.display import NotebookChart, NotebookTable


@dataclass(frozen=True)
class AblationEffects(NotebookChart):
    """Drop of a target's logit when one component is ablated: with - without it; NaN if not run."""

    logit: float  # of the whole model
    heads: Float[Tensor, "layer head"]
    mlps: Float[Tensor, " layer"]
    heads_as: str  # replacement of a component, as in `Ablation`
    reference: str = ""  # name of the reference means, if any


class Agreement(NamedTuple):
    """Pearson's correlation of effects and direct contributions; NaN without values or if constant."""

    heads: float
    mlps: float


def agreement(effects: AblationEffects, account: Attribution) -> Agreement:
    """Return the correlation of ablation effects and direct contributions, over all heads and over all MLPs.

    Args:
        effects: ablation effects, in logits.
        account: logit attribution of the same image and target.

    Returns:
        `Agreement`: two numbers from -1 to 1.

    Source: see the module. Raises nothing.

    >>> from vitviz.analyses.logit_account import logit_attribution
    >>> from vitviz.analyses.example import example_account
    >>> account = logit_attribution(*example_account(seed=1), target=0)
    >>> agreement(AblationEffects(0.0, 2 * account.heads, -account.mlps, "zero"), account)
    Agreement(heads=1.0, mlps=-1.0)
    """
    return Agreement(pearson(effects.heads, account.heads), pearson(effects.mlps, account.mlps))


SIDES = ("query", "key", "value")


@dataclass(frozen=True)
class Edge:
    """Edge from a writer to one side of a head, or to the prediction; layers and heads from 0."""

    writer: Writer
    layer: int  # number of layers: the prediction
    head: int | None
    into: str = "value"

    @property
    def reader(self) -> tuple:
        """The reader as a tuple: ("readout",) for the prediction, else (`into`, layer, head)."""
        return ("readout",) if self.into == "answer" else (self.into, self.layer, self.head)


@dataclass(frozen=True)
class EdgeAblationEffects(NotebookChart, NotebookTable):
    """Drop of a target's logit when one edge is ablated, with the edge's contribution, in logits."""

    edges: tuple[Edge, ...]
    effects: Float[Tensor, " edge"]  # with - without the edge; NaN if not run
    shares: Float[Tensor, " edge"]  # contributions; NaN for queries and keys, which have none
    of: int  # number of all edges, of which these are a seeded sample
    parts_as: str

    @property
    def correlation(self) -> float:
        """Pearson's correlation of contribution and effect over the edges run; NaN if there are too few."""
        return pearson(self.effects, self.shares)

    def rows(self) -> list[dict]:
        """Return one row per edge."""
        each = zip(self.edges, self.effects.tolist(), self.shares.tolist(), strict=True)
        return [
            {f"writer_{name}": value for name, value in one.writer._asdict().items()}
            | {"layer": one.layer, "head": one.head, "into": one.into, "effect": effect, "share": share}
            for one, effect, share in each
        ]


def edges_into(layer: int, head: int | None, heads: int, into: str, positions: bool) -> list[Edge]:
    """Return the edges from all writers of earlier layers into one side of a head, or into the prediction.

    Biases are not writers here, because they are equal for every image.
    """
    writers = [Writer("embedding"), *([Writer("positions")] if positions else [])]
    for earlier in range(layer):
        writers += [Writer("head", earlier, number) for number in range(heads)]
        writers.append(Writer("mlp", earlier))
    return [Edge(writer, layer, head, into) for writer in writers]


def sample_edges(edges: list[Edge], count: int | None, seed: int) -> list[Edge]:
    """Return `count` edges drawn at random with a seed, in their original order; with None, all edges."""
    if count is None or count >= len(edges):
        return edges
    chosen = torch.randperm(len(edges), generator=torch.Generator().manual_seed(seed))[:count]
    return [edges[number] for number in sorted(chosen.tolist())]
