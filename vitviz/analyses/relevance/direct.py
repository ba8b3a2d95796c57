"""Maps without a gradient of the whole network: the ledger's, and what happens when one patch is really left
out.
"""

from __future__ import annotations

import torch
from einops import rearrange

from vitviz.analyses.evidence import account_of
from vitviz.analyses.relevance.found import Relevance
from vitviz.analyses.relevance.passes import Passes
from vitviz.analyses.target import class_index
from vitviz.errors import VitvizError


def ledger(passes: Passes) -> Relevance:
    """Every head's direct share of the answer, by source patch, summed over layers and heads; it adds up.

    Gandelsman et al. 2024 (arXiv 2310.05916); see `evidence`. Direct effects only: what a head does through
    later layers stands in their lines. The start, MLPs and biases are lines of no patch, and often large.
    """
    account, grid = account_of(passes.ledger(), passes.target), passes.trace.grid
    by_token = account.sources.sum(dim=(0, 1), dtype=torch.float64)
    constants = {
        "start": account.start,
        "MLPs": account.mlps.sum().item(),
        "projections' biases": account.projection_biases.sum().item(),
        "norm bias": account.norm_bias,
        "head bias": account.head_bias,
    }
    if account.pool is not None:
        constants["attention pooling"] = account.pool.total
    prefix = by_token[: grid.prefix].sum().item()
    return Relevance("ledger", account.patches, account.logit, "all layers", prefix, constants, adds_up=True)


def leave_one_out(passes: Passes) -> Relevance:
    """s(x) - s(x without patch i): each patch's token is left out by itself, and the rest goes through the
    model.

    Zeiler and Fergus 2014 with real absence in place of grey (Jain et al. 2022, arXiv 2204.08945). N passes
    of N - 1 tokens. Two patches that say the same thing hide each other, and the sum is no account of the
    answer.
    """
    grid = passes.trace.grid
    if isinstance(passes.target, torch.Tensor) or passes.trace.logits is None:
        raise VitvizError(
            "Leaving patches out asks about classes; hand in a class, or (a, b) for a rather than b."
        )
    everything = torch.arange(grid.patches)
    kept = torch.stack([torch.cat([everything[:i], everything[i + 1 :]]) for i in range(grid.patches)])
    whole = score_of(passes, passes.trace.logits[None].double())
    found = whole - score_of(passes, passes.answers(kept).double())
    cells = rearrange(found, "(row col) -> row col", row=grid.rows)
    return Relevance("leave_one_out", cells, passes.answer, "the picture")


def score_of(passes: Passes, logits: torch.Tensor) -> torch.Tensor:
    """The explained class's logit, or the difference of two, of every row of logits."""
    pair = passes.target if isinstance(passes.target, tuple) else (passes.target,)
    classes = [class_index(passes.trace, one) for one in pair]
    return logits[:, classes[0]] - (logits[:, classes[1]] if len(classes) == 2 else 0)
