"""Faithfulness of a linear toy model whose optimal areas are known."""

import math
from dataclasses import replace

import pytest
import torch

from vitviz.analyses import saliency
from vitviz.analyses.example import example_trace
from vitviz.analyses.faithfulness import evaluation as faithfulness
from vitviz.analyses.faithfulness.curves import RemovalCurves
from vitviz.analyses.saliency import SaliencyMap
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid

GRID = Grid(4, 5, (4, 4), ("class",))
C = torch.tensor([2.0**-i for i in range(20)], dtype=torch.float64)[
    torch.randperm(20, generator=torch.Generator().manual_seed(0))
]


class Toy:
    """Linear model: the first logit is the sum of c_i over the kept patches, the second is 0."""

    def __init__(self):
        self.target = 0
        self.trace = replace(
            example_trace(GRID), logits=torch.tensor([C.sum().item(), 0.0], dtype=torch.float64)
        )
        self.answer = C.sum().item()

    def answers(self, kept):
        return torch.stack([C[kept].sum(dim=-1), torch.zeros(len(kept))], dim=1)

    def unexpected_call(self, *_):
        raise AssertionError("the evaluation needs nothing else")

    tail = ledger = gradients = frozen_gradients = path = patches = cam_place = unexpected_call


def evaluate(monkeypatch, values, **settings):
    methods = {
        **saliency.METHODS,
        "given": lambda passes: SaliencyMap("given", values.view(4, 5), passes.answer),
    }
    monkeypatch.setattr(saliency, "METHODS", methods)
    monkeypatch.setattr(faithfulness, "METHODS", methods)
    return faithfulness.evaluate_methods(Toy(), ["given", "random", "centre"], **settings)


def trapezoid(values):
    return sum((a + b) / 2 for a, b in zip(values, values[1:], strict=False)) / (len(values) - 1)


def test_true_contributions_rank_first_with_known_areas(monkeypatch):
    found = evaluate(monkeypatch, C.clone(), draws=40)
    order = sorted(C.tolist(), reverse=True)
    most = [sum(order[2 * step :]) for step in range(11)]
    least = [sum(order[: 20 - 2 * step]) for step in range(11)]
    assert found.areas("given", "logit") == pytest.approx((trapezoid(most), trapezoid(least)))
    assert found.curves["given"].saco == 1
    assert found.ranking("logit")[0][0] == "given" and "given" in found.beats_chance("logit")
    first = found.curves["given"].most["probability"][1].item()
    assert first == pytest.approx(1 / (1 + math.exp(-most[1])))


def test_reversed_map_swaps_removal_curves(monkeypatch):
    one, other = evaluate(monkeypatch, C.clone()).curves["given"], evaluate(monkeypatch, -C).curves["given"]
    for score in ("kept", "probability", "logit"):
        torch.testing.assert_close(one.most[score], other.least[score])
        torch.testing.assert_close(one.least[score], other.most[score])
    assert other.saco == -1
    inserted = torch.tensor(
        [C.sort().values[: 2 * step].sum() for step in range(11)]
    )  # the least relevant patches are inserted first
    torch.testing.assert_close(one.most["logit"].flip(0), inserted)


def test_constant_map_scores_like_random(monkeypatch):
    found = evaluate(monkeypatch, torch.ones(20, dtype=torch.float64), draws=200)
    mean, deviation = found.chance("logit")
    assert found.curves["given"].saco == 0
    assert abs(dict(found.ranking("logit"))["given"]) < 4 * deviation / 200**0.5
    assert abs(mean) < 4 * deviation / 200**0.5 and "given" not in found.beats_chance("logit")
    assert sum(found.areas("given", "logit")) / 2 == pytest.approx(C.sum().item() / 2, rel=0.1)


@pytest.mark.sweep  # 1500 evaluations
@pytest.mark.parametrize("methods", [1, 12])
def test_random_maps_beat_chance_at_five_percent(methods):
    """Simulate tables of random maps only. With 12 maps, a limit of two deviations would let half pass."""
    shape, beaten = (1500, faithfulness.DRAWS + methods), 0
    for row in torch.randn(shape, generator=torch.Generator().manual_seed(0)).tolist():
        draws, given = row[: faithfulness.DRAWS], row[faithfulness.DRAWS :]
        curves = {f"map {i}": constant_curves(gap) for i, gap in enumerate(given)} | {
            "random": constant_curves(0.0)
        }
        ends = tuple(map(constant_curves, draws))
        result = faithfulness.Faithfulness("x", (0,), 0, "dropped", 0, (0.0, 1.0), {}, curves, ends, {}, 0)
        beaten += bool(result.beats_chance())
    assert beaten / 1500 == pytest.approx(0.05, abs=0.02)


def test_tie_limit_is_the_threshold_of_a_difference_of_two_maps():
    stats = pytest.importorskip("scipy.stats")
    gaps, curves = [0.3, -0.2, 0.1, 0.5, -0.4], {name: constant_curves(0.0) for name in ("random", "a", "b")}
    draws = tuple(map(constant_curves, gaps))
    trial = faithfulness.Faithfulness("x", (0,), 0, "dropped", 0, (0.0, 1.0), {}, curves, draws, {}, 0)
    tail, deviation = 1 - 0.95 ** (1 / 2), stats.tstd(gaps)  # Sidak for two maps
    expected = stats.t.ppf(1 - tail, len(gaps) - 1) * deviation * 2**0.5
    assert trial.tie_limit() == pytest.approx(expected)
    for share, tied in ((0.99, True), (1.01, False)):
        other = replace(trial, curves={**curves, "b": constant_curves(share * expected)})
        assert other.tied("a", "b") is tied


def constant_curves(gap):
    """Return removal curves of which only the gap matters."""
    return RemovalCurves({"probability": torch.zeros(2)}, {"probability": torch.full((2,), gap)}, 0.0)


def test_curve_ends_repeatability_progress_and_rejections(monkeypatch):
    def raise_inapplicable(passes):
        raise VitvizError("not applicable, because of the test.")

    monkeypatch.setitem(methods := {**saliency.METHODS}, "chefer", raise_inapplicable)
    monkeypatch.setattr(saliency, "METHODS", methods)
    progress_shares = []
    found = faithfulness.evaluate_methods(
        Toy(), ["chefer", "centre"], progress=lambda share, what: progress_shares.append(share)
    )
    again = faithfulness.evaluate_methods(Toy(), ["chefer", "centre"])
    assert (
        found.refused == {"chefer": "not applicable, because of the test."}
        and progress_shares == sorted(progress_shares)
        and progress_shares[-1] == 1
    )
    for curves in found.curves.values():
        assert curves.most["logit"][0] == pytest.approx(C.sum().item()) and curves.most["logit"][-1] == 0
    assert found.ranking() == again.ranking()
    reasons = {row["method"]: row["reason"] for row in found.rows()}
    assert reasons == {"centre": "", "random": "", **found.refused}
    with pytest.raises(VitvizError, match="from 0 to 1"):
        faithfulness.evaluate_methods(Toy(), shares=(0, 0.5))
    with pytest.raises(VitvizError, match="expected some of ledger"):
        faithfulness.evaluate_methods(Toy(), ["lime"])
