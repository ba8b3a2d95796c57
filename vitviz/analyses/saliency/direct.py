"""Saliency maps without a gradient of the whole network: logit attribution, leave one patch out, controls."""

import torch

from vitviz.analyses.logit_account import attribution_of
from vitviz.analyses.saliency.passes import Passes, SaliencyMap
from vitviz.analyses.target import classes_of, score_of
from vitviz.errors import VitvizError


def ledger(passes: Passes) -> SaliencyMap:
    """Return the heads' direct contributions by patch; prefix tokens and constants complete the logit.

    Gandelsman et al. 2024 (arXiv 2310.05916); see `logit_account`. Direct effects only: the effect of a head
    through later layers is credited to those layers. The start, MLPs and biases are terms without a patch,
    and often large.
    """
    account, grid = attribution_of(passes.ledger(), passes.target), passes.trace.grid
    by_token = account.sources.sum(dim=(0, 1), dtype=torch.float64)
    prefix = by_token[: grid.prefix].sum().item()
    details = (account.logit, "all layers", prefix, account.constants)
    return SaliencyMap("ledger", account.patches, *details, adds_up=True)


def leave_one_out(passes: Passes) -> SaliencyMap:
    """Return the drop of a class score when each patch's token is dropped alone: s(x) - s(x without patch i).

    Zeiler and Fergus 2014 with dropped tokens instead of grey (Jain et al. 2022, arXiv 2204.08945). N passes
    of N - 1 tokens. Two patches with the same information hide each other, and the sum is not an account of
    the score. Raises VitvizError if the target is a direction or there is no classifier.
    """
    grid = passes.trace.grid
    if isinstance(passes.target, torch.Tensor) or passes.trace.logits is None:
        detail = "hand in a class, or (a, b) for a rather than b"
        raise VitvizError(f"Leaving patches out asks about classes; {detail}.")
    everything = torch.arange(grid.patches)
    kept = torch.stack([torch.cat([everything[:i], everything[i + 1 :]]) for i in range(grid.patches)])
    classes = classes_of(passes.trace, passes.target)
    whole = score_of(passes.trace.logits[None].double(), classes)
    result = whole - score_of(passes.answers(kept).double(), classes)
    return SaliencyMap.from_patches("leave_one_out", passes, result, "the picture")


def random(passes: Passes, seed: int = 0) -> SaliencyMap:
    """Return random numbers from a seed: the control for chance in every test."""
    grid, drawn = passes.trace.grid, torch.Generator().manual_seed(seed)
    numbers = torch.rand(grid.rows, grid.cols, generator=drawn, dtype=torch.float64)
    return SaliencyMap("random", numbers, passes.answer, "nowhere", signed=False)


def centre(passes: Passes) -> SaliencyMap:
    """Return a centred Gaussian, a quarter of the image wide: photographers centre their subjects."""
    grid = passes.trace.grid
    sides = grid.rows, grid.cols
    rows, cols = ((torch.arange(side, dtype=torch.float64) + 0.5) / side - 0.5 for side in sides)
    blob = torch.exp(-8 * (rows[:, None] ** 2 + cols[None] ** 2))
    return SaliencyMap("centre", blob, passes.answer, "nowhere", signed=False)
