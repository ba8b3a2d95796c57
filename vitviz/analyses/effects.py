"""What an answer loses when a part is taken away, beside what it wrote: total effect and direct share.

The ledger's line of a head is its direct share of a logit: what it wrote where the classifier reads. When
the head is taken away, later layers see other tokens and write other things too, so the logit falls by
more, by less, or rises. Both are true, and where they disagree later layers react. Their correlation says
how much of a model's answer can be read off its last writings alone. A total effect depends on what stands
in the part's place, the effects of two parts do not add up, and they do not show which later part reacted.

The held picture against the truth: a writer's part taken out of one reader's input alone, by a real pass.

`writers` holds attention, norms and MLPs, so that everything adds up. Path patching (Wang et al. 2022, arXiv
2211.00593) does not hold anything: the writer's part is replaced by its reference in what one head's values
(or queries, or keys) are made of, the norm taken anew, and all else runs on. Share and effect of an edge
agree where later layers do not react; their correlation says how far the shares carry. An effect says
nothing about several edges at once: two taken out together lose another number than the two alone.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.correlation import pearson
from vitviz.analyses.logit_account import Attribution
from vitviz.analyses.upstream import Writer
from vitviz.traces.display import NotebookDisplay, NotebookTable


@dataclass(frozen=True)
class AblationEffects(NotebookDisplay):
    """What a target's logit loses without a part alone: with - without it, in logits; NaN for the untried."""

    logit: float  # with everything in its place
    heads: Float[Tensor, "layer head"]
    mlps: Float[Tensor, " layer"]
    heads_as: str  # what stood in a part's place, as in `Without`
    reference: str = ""  # which means these were, where they were means


class Agreement(NamedTuple):
    """Pearson's correlation of total effects and direct shares; NaN where none are, or all are alike."""

    heads: float
    mlps: float


def agreement(effects: AblationEffects, account: Attribution) -> Agreement:
    """How well direct shares foretell what happens when a part is taken away, over all heads and all MLPs.

    Both of one picture and target. Source: see the module. Raises nothing.

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
    """From a writer to one side of a head that reads it, or to the answer; layers and heads from 0."""

    writer: Writer
    layer: int  # behind the last one: the answer
    head: int | None
    into: str = "value"

    @property
    def reader(self) -> tuple:
        """As passes without some edges name it."""
        return ("readout",) if self.into == "answer" else (self.into, self.layer, self.head)


@dataclass(frozen=True)
class EdgeAblationEffects(NotebookTable):
    """How much of a target's logit goes when an edge is taken out alone, beside its share, in logits."""

    edges: tuple[Edge, ...]
    effects: Float[Tensor, " edge"]  # with - without it; NaN for what was not run
    shares: Float[Tensor, " edge"]  # NaN for queries and keys, which have none
    of: int  # how many edges there are, of which these are a seeded sample
    parts_as: str

    @property
    def correlation(self) -> float:
        """Pearson's, of share and effect over the edges that were run; NaN where there are too few."""
        return pearson(self.effects, self.shares)

    def rows(self) -> list[dict]:
        """One row an edge."""
        each = zip(self.edges, self.effects.tolist(), self.shares.tolist(), strict=True)
        return [
            {f"writer_{name}": value for name, value in one.writer._asdict().items()}
            | {"layer": one.layer, "head": one.head, "into": one.into, "effect": effect, "share": share}
            for one, effect, share in each
        ]


def edges_into(layer: int, head: int | None, heads: int, into: str, positions: bool) -> list[Edge]:
    """All edges that end in one side of a head, or in the answer; biases are the same for every picture."""
    writers = [Writer("embedding"), *([Writer("positions")] if positions else [])]
    for earlier in range(layer):
        writers += [Writer("head", earlier, number) for number in range(heads)]
        writers.append(Writer("mlp", earlier))
    return [Edge(writer, layer, head, into) for writer in writers]


def sampled(edges: list[Edge], count: int | None, seed: int) -> list[Edge]:
    """So many of them by a seed, in their order; None for all."""
    if count is None or count >= len(edges):
        return edges
    chosen = torch.randperm(len(edges), generator=torch.Generator().manual_seed(seed))[:count]
    return [edges[number] for number in sorted(chosen.tolist())]
