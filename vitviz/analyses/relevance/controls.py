"""Maps that know nothing of the answer: what any other has to beat."""

from __future__ import annotations

import torch

from vitviz.analyses.relevance.found import Relevance
from vitviz.analyses.relevance.passes import Passes


def random(passes: Passes, seed: int = 0) -> Relevance:
    """Numbers from a seed. Whatever a test says of this map, it says of chance."""
    grid = passes.trace.grid
    numbers = torch.rand(
        grid.rows, grid.cols, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return Relevance("random", numbers, passes.answer, "nowhere", signed=False)


def centre(passes: Passes) -> Relevance:
    """A Gaussian in the middle, a quarter of the picture wide: photographers put what they mean there."""
    grid = passes.trace.grid
    rows = (torch.arange(grid.rows, dtype=torch.float64) + 0.5) / grid.rows - 0.5
    cols = (torch.arange(grid.cols, dtype=torch.float64) + 0.5) / grid.cols - 0.5
    blob = torch.exp(-8 * (rows[:, None] ** 2 + cols[None] ** 2))
    return Relevance("centre", blob, passes.answer, "nowhere", signed=False)
