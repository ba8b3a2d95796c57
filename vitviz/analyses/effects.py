"""What happens to an answer when a part is taken away, beside what the part itself wrote: total effect and
direct share.

The ledger's line of a head is its direct share of a logit: what it wrote where the classifier reads. When
the head is taken away, later layers see other tokens and write other things too, so the logit falls by
more, by less, or rises. Both are true, and where they disagree later layers react. Their correlation says
how much of a model's answer can be read off its last writings alone. A total effect depends on what stands
in the part's place, the effects of two parts do not add up, and they do not show which later part reacted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.evidence import Evidence
from vitviz.shown import Shown


@dataclass(frozen=True)
class Effects(Shown):
    """How much of a target's logit goes when a part is taken away alone: with - without it, in logits; NaN
    for what was not tried."""

    logit: float  # with everything in its place
    heads: Float[Tensor, "layer head"]
    mlps: Float[Tensor, " layer"]
    heads_as: str  # what stood in a part's place, as in `Without`
    reference: str = ""  # which means these were, where they were means


class Agreement(NamedTuple):
    """Pearson's correlation of total effects and direct shares; NaN where none are, or all are alike."""

    heads: float
    mlps: float


def agreement(effects: Effects, account: Evidence) -> Agreement:
    """How well direct shares foretell what happens when a part is taken away, over all heads and over all
    MLPs.

    Both of one picture and target. Source: see the module. Raises nothing.

    >>> from vitviz.analyses.evidence import evidence
    >>> from vitviz.analyses.example import example_account
    >>> from vitviz.grid import Grid
    >>> account = evidence(*example_account(Grid(2, 3, (4, 4), ("class",)), seed=1), target=0)
    >>> agreement(Effects(0.0, 2 * account.heads, -account.mlps, "zero"), account)
    Agreement(heads=1.0, mlps=-1.0)
    """
    return Agreement(_correlation(effects.heads, account.heads), _correlation(effects.mlps, account.mlps))


def _correlation(one: Tensor, two: Tensor) -> float:
    one, two = one.double().flatten(), two.double().flatten()
    tried = one.isfinite() & two.isfinite()
    if tried.sum() < 2:
        return float("nan")
    return round(torch.corrcoef(torch.stack([one[tried], two[tried]]))[0, 1].item(), 12)
