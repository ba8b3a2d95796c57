"""Oracle for the formulas of DEFINITIONS.md: float64, plain loops, whole matrices, no code of vitviz."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from vitviz.analyses.example import example_trace
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Attention, Trace

GRIDS = [
    Grid(2, 3, (4, 6)),
    Grid(3, 2, (8, 8), ("class",)),
    Grid(2, 4, (16, 8), ("class", "distillation")),
    Grid(3, 4, (14, 14), ("class", "register 1", "register 2", "register 3", "register 4")),
]


def grid_id(grid: Grid) -> str:
    return f"{grid.rows}x{grid.cols}+{grid.prefix}"


def softmax_rows(scores: np.ndarray) -> np.ndarray:
    result = np.zeros_like(scores)
    for i, row in enumerate(scores):
        powers = [math.exp(score - max(row)) for score in row]
        result[i] = [power / sum(powers) for power in powers]
    return result


def attention_of(call: Attention, bias: np.ndarray | None = None) -> np.ndarray:
    """Return head x query x key, from q and k."""
    q, k = call.q.double().numpy(), call.k.double().numpy()
    scores = [
        [[sum(a * b for a, b in zip(x, y, strict=True)) * call.scale for y in k[h]] for x in q[h]]
        for h in range(len(q))
    ]
    return np.stack(
        [softmax_rows(np.array(s) + (0 if bias is None else bias[h])) for h, s in enumerate(scores)]
    )


def all_attention(trace: Trace) -> np.ndarray:
    """Return layer x head x query x key."""
    return np.stack([attention_of(call) for call in trace.layers])


def trace_with(grid: Grid, attention: np.ndarray, **changes) -> Trace:
    """Return a trace with the given attention (layer x head x query x key): q = ln A and k = I."""
    layers = []
    for heads in attention:
        q = torch.tensor(np.log(np.maximum(heads, 1e-90))).float()  # exp of the floor is 0 in float32
        k = torch.eye(grid.tokens).expand(len(heads), -1, -1)
        layers.append(Attention(q, k, k, 1.0))
    return replace(example_trace(grid), layers=tuple(layers), **changes)


def random_attention(grid: Grid, layers: int, heads: int, seed: int) -> np.ndarray:
    powers = np.exp(2 * np.random.default_rng(seed).normal(size=(layers, heads, grid.tokens, grid.tokens)))
    return powers / powers.sum(-1, keepdims=True)


def cells(grid: Grid) -> list[tuple[int, int]]:
    return [(row, col) for row in range(grid.rows) for col in range(grid.cols)]


def pixel_distance(grid: Grid, one: tuple[int, int], two: tuple[int, int]) -> float:
    return math.sqrt((grid.patch[0] * (one[0] - two[0])) ** 2 + (grid.patch[1] * (one[1] - two[1])) ** 2)


def head_distance(attention: np.ndarray, grid: Grid, renormalise: bool) -> float:
    total = 0.0
    for i, one in enumerate(cells(grid)):
        row = attention[grid.prefix + i]
        mass = sum(row[grid.prefix + j] for j in range(grid.patches))
        length = sum(
            row[grid.prefix + j] * pixel_distance(grid, one, two) for j, two in enumerate(cells(grid))
        )
        total += length / mass if renormalise else length
    return total / grid.patches


def head_prefix_mass(attention: np.ndarray, grid: Grid) -> float:
    return (
        sum(attention[grid.prefix + i][j] for i in range(grid.patches) for j in range(grid.prefix))
        / grid.patches
    )


def rollout_matrix(
    attention: np.ndarray, grid: Grid, fusion="mean", discard=0.0, residual=0.5, axis=1
) -> np.ndarray:
    """Return R for attention of shape layer x head x query x key. `axis=0` is a known mistake."""
    result = np.eye(grid.tokens)
    for heads in attention:
        fused = {"mean": np.mean, "max": np.max, "min": np.min}[fusion](heads, axis=0)
        entries = [(fused[i, j], i, j) for i in range(grid.tokens) for j in range(grid.prefix, grid.tokens)]
        entries.sort(key=lambda entry: entry[0])  # Python's sort is stable
        for _, i, j in entries[: math.floor(discard * len(entries))]:
            fused[i, j] = 0
        layer = residual * np.eye(grid.tokens) + (1 - residual) * fused
        if axis == 0:
            layer = layer / layer.sum(axis=0, keepdims=True)
        else:
            for i in range(grid.tokens):
                layer[i] = layer[i] / layer[i].sum() if layer[i].sum() > 0 else np.eye(grid.tokens)[i]
        result = layer @ result
    return result
