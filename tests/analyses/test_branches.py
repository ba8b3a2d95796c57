"""Ratio of skip to branch, against hooks on timm's own branches and against known numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.constructions import small_model
from tests.engine.random_inspectors import inspect, noise
from vitviz import Grid
from vitviz.analyses import skip_ratios
from vitviz.analyses.example import example_trace
from vitviz.analyses.readout_stage import Projection
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.errors import UnsupportedModel

FAMILIES = [
    "class", "registers", "distilled", "norm, then average", "RMSNorm, SwiGLU", "norm before the projection",
    "norm behind the branch", "EVA-02", "BEiT", "attention pooling",
]  # fmt: skip


def ratios_by_hooks(model, pixels) -> tuple[np.ndarray, np.ndarray]:
    """Return skip norm / branch norm of every token in float64, from each block's input and added outputs."""
    recorded: list[list[np.ndarray]] = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, args: recorded.append([args[0][0].double().numpy()]))
        for part in (block.drop_path1, block.drop_path2):
            part.register_forward_hook(
                lambda _, args, output: recorded[-1].append(output[0].double().numpy())
            )
    with torch.no_grad():
        model(pixels)

    def length(tokens):
        return np.sqrt(np.square(tokens).sum(-1))

    attention = [length(t) / length(a) for t, a, _ in recorded]
    return np.stack(attention), np.stack([length(t + a) / length(m) for t, a, m in recorded])


@pytest.mark.parametrize("family", FAMILIES)
def test_skip_ratios_match_hooks_on_timm_branches(family):
    inspector = inspect(small_model(family).float())
    trace = inspector.trace(noise())
    found = skip_ratios(trace, inspector.tail().layers)
    pixels = prepare(open_image(noise()), inspector.preprocessing).tensor[None]
    attention, mlp = ratios_by_hooks(inspector.model, pixels)
    np.testing.assert_allclose(found.attention.numpy(), attention, rtol=2e-4)
    np.testing.assert_allclose(found.mlp.numpy(), mlp, rtol=2e-4)
    assert not np.allclose(attention, mlp, rtol=0.1)


def test_skip_ratios_of_known_lengths():
    """Attention returns the mean of the values. The projection doubles it; the MLP adds (0, 0, 0, 4)."""
    grid = Grid(1, 2, (4, 4), ("class",))
    trace = example_trace(grid, layers=1, heads=1)
    entering = torch.zeros(3, 4) + torch.tensor([6.0, 0, 0, 0])
    added = torch.tensor([0, 3.0, 0, 0]).expand(3, 4)
    leaving = entering + added + torch.tensor([0, 0, 0, 4.0])
    call = replace(trace.layers[0], v=(added / 2)[None].contiguous())
    trace = replace(trace, layers=(call,), tokens=(entering, leaving))
    found = skip_ratios(trace, [Projection(2 * torch.eye(4), None)])
    assert found.attention.tolist() == [[2.0] * 3]
    assert found.mlp[0].tolist() == pytest.approx([45**0.5 / 4] * 3)


def test_gated_branch_is_rejected():
    inspector = inspect(small_model("gated").float())
    with pytest.raises(UnsupportedModel, match="not applicable, because a gate stands between"):
        skip_ratios(inspector.trace(noise()), inspector.tail().layers)
