"""The trial on a linear toy model, whose best areas are known."""

import math
from dataclasses import replace

import pytest
import torch

from vitviz.analyses import saliency
from vitviz.analyses.example import example_trace
from vitviz.analyses.faithfulness import evaluation as trials
from vitviz.analyses.faithfulness.curves import RemovalCurves
from vitviz.analyses.saliency import SaliencyMap
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid

GRID = Grid(4, 5, (4, 4), ("class",))
C = torch.tensor([2.0**-i for i in range(20)], dtype=torch.float64)[
    torch.randperm(20, generator=torch.Generator().manual_seed(0))
]


class Toy:
    """s = sum of c_i over the patches that are there; the second class has 0."""

    def __init__(self):
        self.target = 0
        self.trace = replace(
            example_trace(GRID), logits=torch.tensor([C.sum().item(), 0.0], dtype=torch.float64)
        )
        self.answer = C.sum().item()

    def answers(self, kept):
        return torch.stack([C[kept].sum(dim=-1), torch.zeros(len(kept))], dim=1)

    def unasked(self, *_):
        raise AssertionError("nothing else is asked about")

    tail = ledger = gradients = frozen_gradients = path = patches = cam_place = unasked


def tried(monkeypatch, values, **settings):
    methods = {
        **saliency.METHODS,
        "given": lambda passes: SaliencyMap("given", values.view(4, 5), passes.answer),
    }
    monkeypatch.setattr(saliency, "METHODS", methods)
    monkeypatch.setattr(trials, "METHODS", methods)
    return trials.evaluate_methods(Toy(), ["given", "random", "centre"], **settings)


def trapezoid(values):
    return sum((a + b) / 2 for a, b in zip(values, values[1:], strict=False)) / (len(values) - 1)


def test_the_true_map_is_the_best_of_all(monkeypatch):
    found = tried(monkeypatch, C.clone(), draws=40)
    order = sorted(C.tolist(), reverse=True)
    most = [sum(order[2 * step :]) for step in range(11)]
    least = [sum(order[: 20 - 2 * step]) for step in range(11)]
    assert found.areas("given", "logit") == pytest.approx((trapezoid(most), trapezoid(least)))
    assert found.curves["given"].saco == 1
    assert found.ranking("logit")[0][0] == "given" and "given" in found.beats_chance("logit")
    first = found.curves["given"].most["probability"][1].item()
    assert first == pytest.approx(1 / (1 + math.exp(-most[1])))


def test_reversing_swaps_the_curves_and_deletion_is_insertion_of_the_reverse(monkeypatch):
    one, other = tried(monkeypatch, C.clone()).curves["given"], tried(monkeypatch, -C).curves["given"]
    for score in ("kept", "probability", "logit"):
        torch.testing.assert_close(one.most[score], other.least[score])
        torch.testing.assert_close(one.least[score], other.most[score])
    assert other.saco == -1
    inserted = torch.tensor(
        [C.sort().values[: 2 * step].sum() for step in range(11)]
    )  # least relevant put in first
    torch.testing.assert_close(one.most["logit"].flip(0), inserted)


def test_a_constant_map_is_chance(monkeypatch):
    found = tried(monkeypatch, torch.ones(20, dtype=torch.float64), draws=200)
    mean, deviation = found.chance("logit")
    assert found.curves["given"].saco == 0
    assert abs(dict(found.ranking("logit"))["given"]) < 4 * deviation / 200**0.5
    assert abs(mean) < 4 * deviation / 200**0.5 and "given" not in found.beats_chance("logit")
    assert sum(found.areas("given", "logit")) / 2 == pytest.approx(C.sum().item() / 2, rel=0.1)


@pytest.mark.sweep  # 1500 trials
@pytest.mark.parametrize("methods", [1, 12])
def test_chance_beats_chance_in_one_table_of_twenty(methods):
    """Tables of nothing but random maps, by simulation: of 12 maps two deviations would let half pass."""
    shape, beaten = (1500, trials.DRAWS + methods), 0
    for row in torch.randn(shape, generator=torch.Generator().manual_seed(0)).tolist():
        draws, given = row[: trials.DRAWS], row[trials.DRAWS :]
        curves = {f"map {i}": flat(gap) for i, gap in enumerate(given)} | {"random": flat(0.0)}
        ends = tuple(map(flat, draws))
        found = trials.Faithfulness("x", (0,), 0, "dropped", 0, (0.0, 1.0), {}, curves, ends, {}, 0)
        beaten += bool(found.beats_chance())
    assert beaten / 1500 == pytest.approx(0.05, abs=0.02)


def flat(gap):
    """A map's curves, of which only the gap is asked about."""
    return RemovalCurves({"probability": torch.zeros(2)}, {"probability": torch.full((2,), gap)}, 0.0)


def test_ends_seeds_rows_and_what_is_refused(monkeypatch):
    def refusing(passes):
        raise VitvizError("not applicable, because of the test.")

    monkeypatch.setitem(methods := {**saliency.METHODS}, "chefer", refusing)
    monkeypatch.setattr(saliency, "METHODS", methods)
    told = []
    found = trials.evaluate_methods(
        Toy(), ["chefer", "centre"], progress=lambda share, what: told.append(share)
    )
    again = trials.evaluate_methods(Toy(), ["chefer", "centre"])
    assert (
        found.refused == {"chefer": "not applicable, because of the test."}
        and told == sorted(told)
        and told[-1] == 1
    )
    for curves in found.curves.values():
        assert curves.most["logit"][0] == pytest.approx(C.sum().item()) and curves.most["logit"][-1] == 0
    assert found.ranking() == again.ranking()
    reasons = {row["method"]: row["reason"] for row in found.rows()}
    assert reasons == {"centre": "", "random": "", **found.refused}
    with pytest.raises(VitvizError, match="from 0 to 1"):
        trials.evaluate_methods(Toy(), shares=(0, 0.5))
    with pytest.raises(VitvizError, match="expected some of ledger"):
        trials.evaluate_methods(Toy(), ["lime"])
