"""Saliency methods on known attention and gradients, without a model."""

from types import SimpleNamespace

import pytest
import torch

from vitviz.analyses.correlation import spearman
from vitviz.analyses.example import example_trace
from vitviz.analyses.saliency import METHODS, saliency_map
from vitviz.analyses.saliency.passes import Gradients, WeightedAttention
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid

GRID = Grid(2, 3, (4, 4), ("class",))


def stub_passes(attentions, gradients, **others):
    weighed = tuple(
        WeightedAttention(a.double(), g.double()) for a, g in zip(attentions, gradients, strict=True)
    )
    recorded = Gradients(3.0, torch.zeros(len(weighed) + 1, 7), {}, attentions=weighed, **others)
    trace = example_trace(GRID, layers=len(weighed))
    stubs = {
        name: lambda *_: None for name in ("tail", "ledger", "frozen_gradients", "path", "answers", "patches")
    }
    return SimpleNamespace(
        trace=trace, target=0, answer=3.0, gradients=lambda: recorded, cam_place=lambda: "here", **stubs
    )  # fmt: skip


def uniform_passes(layers, slope):
    attention = torch.full((layers, 2, 7, 7), 1 / 7, dtype=torch.float64)
    return stub_passes(attention, torch.full_like(attention, slope))


@pytest.mark.parametrize("layers, g", [(1, 0.5), (3, 2.0)])
def test_gradient_methods_of_uniform_attention_have_closed_form(layers, g):
    a = (1 / (1 + g)) ** layers
    expected = torch.full((2, 3), (1 - a) / 7, dtype=torch.float64)
    torch.testing.assert_close(saliency_map(uniform_passes(layers, g), "gradient_rollout").map, expected)
    expected = torch.full((2, 3), ((1 + g) ** layers - 1) / 7, dtype=torch.float64)
    torch.testing.assert_close(saliency_map(uniform_passes(layers, g), "chefer").map, expected)


@pytest.mark.parametrize("method", ["gradient_rollout", "chefer", "attention_grad_cam"])
@pytest.mark.parametrize("slope", [0.0, -1.0])
def test_map_without_positive_values_is_exactly_zero(method, slope):
    found = saliency_map(
        uniform_passes(3, slope) if method != "attention_grad_cam" else uniform_passes(3, slope), method
    )
    assert bool((found.map == 0).all()) and found.nothing_positive and found.explained is None


def random_passes(layers=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    attention = torch.rand(layers, 2, 7, 7, generator=generator, dtype=torch.float64).softmax(-1)
    return attention, torch.randn(layers, 2, 7, 7, generator=generator, dtype=torch.float64)


def test_gradient_rollout_and_chefer_match_full_matrix_product():
    """Both methods pair gradient and attention of one layer.

    Rollout divides rows; chefer clamps before the mean.
    """
    attention, slopes = random_passes()
    rolled, generic = torch.eye(7).double(), torch.eye(7).double()
    for a, g in zip(attention, slopes, strict=True):
        mixed = ((a * g).mean(0).clamp(min=0) + torch.eye(7)) / 2
        rolled = (mixed / mixed.sum(1, keepdim=True)) @ rolled
        generic = generic + (a * g).clamp(min=0).mean(0) @ generic
    torch.testing.assert_close(
        saliency_map(stub_passes(attention, slopes), "gradient_rollout").map.flatten(), rolled[0, 1:]
    )
    torch.testing.assert_close(
        saliency_map(stub_passes(attention, slopes), "chefer").map.flatten(), generic[0, 1:]
    )
    one = saliency_map(stub_passes(attention[:1], slopes[:1]), "chefer").map.flatten()
    torch.testing.assert_close(one, (attention[0] * slopes[0]).clamp(min=0).mean(0)[0, 1:])


def test_grad_cam_and_hires_cam_match_definition():
    generator = torch.Generator().manual_seed(1)
    a, g = (torch.randn(6, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    one = stub_passes(*(x[:1] for x in random_passes()), activations=a, slopes=g)
    expected = [max(0.0, sum(g[:, c].mean().item() * a[i, c].item() for c in range(5))) for i in range(6)]
    assert saliency_map(one, "grad_cam").map.flatten().tolist() == pytest.approx(expected)
    assert saliency_map(one, "hires_cam").map.sum().item() == pytest.approx((a * g).sum().item())


def test_unknown_method_or_readout_raises():
    one = uniform_passes(1, 1.0)
    with pytest.raises(VitvizError, match="There is no method 'lime'; expected one of ledger, frozen"):
        saliency_map(one, "lime")
    with pytest.raises(VitvizError, match="which reads one place only"):
        saliency_map(one, "chefer", "pixels")
    assert list(METHODS)[-2:] == ["random", "centre"]


def test_spearman_matches_scipy_with_ties():
    stats = pytest.importorskip("scipy.stats")
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(0, 4, (50,), generator=generator).double() for _ in range(2))
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b)[0])
    assert spearman(a, torch.ones(50)) is None
