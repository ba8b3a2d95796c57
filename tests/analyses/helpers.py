"""Shared helpers of the analysis tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from vitviz.analyses.example import example_trace
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Trace


def hsic_by_loops(K, L) -> float:
    """Compute HSIC number by number (Nguyen et al. 2021, equation 3)."""
    n = len(K)
    off = [[(i != j) for j in range(n)] for i in range(n)]
    K, L = ([[float(M[i][j]) * off[i][j] for j in range(n)] for i in range(n)] for M in (K, L))
    trace = sum(K[i][j] * L[j][i] for i in range(n) for j in range(n))
    sums = sum(map(sum, K)) * sum(map(sum, L)) / ((n - 1) * (n - 2))
    cross = sum(K[i][j] * L[j][k] for i in range(n) for j in range(n) for k in range(n)) * 2 / (n - 2)
    return (trace + sums - cross) / (n * (n - 3))


SHORT_GRID = Grid(2, 3, (4, 6))  # fewer patches than channels in some tests


LONG_GRID = Grid(6, 7, (4, 4), ("class", "register 1"))


def with_tokens(grid: Grid, *depths: np.ndarray) -> Trace:
    tokens = tuple(torch.tensor(one).float() for one in depths)
    return replace(example_trace(grid), tokens=tokens, patch_embedding=tokens[0][grid.prefix :])


def random_tokens(grid: Grid, width: int = 9, seed: int = 0, depths: int = 3) -> Trace:
    random = np.random.default_rng(seed)
    return with_tokens(grid, *(random.normal(size=(grid.tokens, width)) + 2 for _ in range(depths)))
