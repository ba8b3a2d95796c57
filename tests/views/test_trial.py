"""Faithfulness view: separate evaluations of methods equal the joint evaluation."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import vitviz
from vitviz.analyses.faithfulness import evaluation as trials
from vitviz.analyses.protocol import DENSE, TITLES
from vitviz.errors import Stopped, Unknown, WrongSetting
from vitviz.server.services.cache import Cache
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.runs import Ablation
from vitviz.views import ViewContext
from vitviz.views import trial as view
from vitviz.views.base import find_item
from vitviz.views.routes import parse_settings
from vitviz.views.trial import ORDER, FaithfulnessView, compute, tested_methods

VIEW = FaithfulnessView()
FEW = ("random", "centre", "ledger", "chefer", "rollout")


CLASS = 4


@pytest.fixture(scope="module")
def subject(small_inspector, small_trace):
    kept: Cache = Cache(500, lambda entry: 1)
    return ViewContext(small_inspector, small_trace, once=kept.get)


@pytest.fixture(scope="module")
def whole(subject):
    return compute.evaluate_all(subject, CLASS, "dropped", FEW)


def asked(subject, name, **given):
    settings = parse_settings(VIEW, given, subject.about)
    return json.loads(
        find_item(VIEW, name).checked(VIEW.item(subject, name, settings), subject.about).tobytes()
    )


def test_every_method_is_listed_once_with_a_title():
    assert sorted(ORDER) == sorted(vitviz.METHODS) == sorted(TITLES) and ORDER[0] == "random"


@pytest.mark.parametrize("left_out", range(5))
def test_groups_partition_methods_by_kind(monkeypatch, left_out):
    """Fewer usual methods shift every later group boundary."""
    usual = [name for name in ORDER if name not in DENSE]
    monkeypatch.setattr(view, "ORDER", (*usual[: len(usual) - 2 - left_out], *DENSE, *usual[-2:]))
    groups = list(dict.fromkeys(map(view.method_group, view.ORDER)))
    assert [name for group in groups for name in group] == list(view.ORDER)
    assert all(len(group) <= view.TOGETHER for group in groups)
    assert all(len({name in DENSE for name in group}) == 1 for group in groups)
    few = -(-(len(usual) - 3 - left_out) // view.TOGETHER) + len(DENSE) // view.TOGETHER
    assert len(groups) == few + 3, "as few as can be, and chance and the expensive ones by themselves"


def test_separate_evaluations_equal_joint_evaluation(subject, whole):
    together = vitviz.faithfulness(subject.inspector, subject.trace, CLASS, methods=FEW)
    assert [row["method"] for row in together.rows()] == [row["method"] for row in whole.rows()]
    for name in FEW:
        for score in ("kept", "probability", "logit"):
            assert whole.areas(name, score) == pytest.approx(together.areas(name, score), abs=1e-4)
        assert whole.curves[name].saco == pytest.approx(together.curves[name].saco, abs=1e-3)
    assert whole.chance() == pytest.approx(together.chance(), abs=1e-4)


def test_items_equal_evaluation(subject, whole):
    one = asked(subject, "tried", target=str(CLASS), method="chefer")
    for side, panel in zip(
        ("most", "least"), asked(subject, "panels", target=str(CLASS), method="chefer"), strict=True
    ):
        line = panel["series"][-1]
        assert line["key"] == "chefer" and line["x"] == pytest.approx(list(range(0, 101, 10)))
        curve = getattr(whole.curves["chefer"], side)["probability"]
        assert line["y"] == pytest.approx(curve.tolist(), rel=1e-4, abs=1e-7)
    assert one["map"] == pytest.approx(whole.maps["chefer"].map.flatten().tolist(), rel=1e-5)
    told = compute.ranking_json(whole, "probability")
    assert [row["method"] for row in told["rows"]] == [name for name, _ in whole.ranking()]
    assert {row["method"] for row in told["rows"] if row["beats"]} == set(whole.beats_chance())
    assert "methods beat random maps" in told["verdict"]["text"]
    alike = told["agreement"]["values"]
    assert np.shape(alike) == (5, 5) and np.diag(alike).tolist() == [1] * 5


def test_verdict_of_methods_so_far_uses_threshold_of_all(subject):
    """A method that beats random maps now must still do so when the others have been added."""
    order = tested_methods(subject)
    told = asked(subject, "verdict", target=str(CLASS), method=order[3])
    assert {row["method"] for row in told["rows"]} == set(order[:4])
    mean, deviation = told["chance"]
    level = 1 - 0.95 ** (1 / (len(order) - 1))  # Sidak, for all methods but the random maps
    expected = float(scipy.stats.t.ppf(1 - level, 9)) * deviation * 1.1**0.5  # of ten random maps
    assert told["reach"] == pytest.approx(expected, rel=1e-3)
    assert all(
        row["beats"] is (row["gap"] > mean + expected and row["method"] != "random") for row in told["rows"]
    )


def test_random_band_is_95_percent_and_nonnegative(whole):
    low, high = compute.chance_band(whole, "most", "logit")
    draws = np.array([draw.most["logit"].numpy() for draw in whole.draws])
    t9 = 2.262157 * (1 + 1 / 10) ** 0.5  # Student's t with 9 degrees of freedom at 97.5 %, from a table
    np.testing.assert_allclose(low, draws.mean(0) - t9 * draws.std(0, ddof=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((low + high) / 2, draws.mean(0), rtol=1e-4)
    for side in ("most", "least"):
        low, high = compute.chance_band(whole, side, "probability")
        assert min(low) >= 0 and max(high) <= 1 and all(a <= b for a, b in zip(low, high, strict=True))


def test_numbers_and_table_match_evaluation(whole):
    arrays = compute.result_arrays(whole)
    names = arrays["methods"].tolist()
    assert arrays["maps"].shape == (5, 4, 4) and arrays["curves"].shape == (5, 2, 3, 11)
    at, scores = names.index("ledger"), arrays["scores"].tolist()
    areas = np.trapezoid(arrays["curves"], arrays["shares"], axis=-1)
    np.testing.assert_allclose(areas, arrays["areas"], atol=1e-12)
    assert arrays["areas"][at, :, scores.index("logit")] == pytest.approx(whole.areas("ledger", "logit"))
    rows = list(csv.DictReader(io.StringIO(compute.result_csv(whole).decode())))
    assert len(rows) == 5 and rows[0]["rank"] == "1" and rows[0]["patches_as"] == "dropped"
    assert float(rows[0]["gap_probability"]) == pytest.approx(whole.ranking()[0][1])
    assert {row["reason"] for row in rows} == {""}


def test_table_lists_inapplicable_methods_last_with_reason(whole):
    reason = "mine: not applicable, because no attention has a gradient."
    part = whole.part("random")
    refused = replace(whole, refused={"grad_cam": reason})
    *ranked, last = csv.DictReader(io.StringIO(compute.result_csv(refused).decode()))
    assert [row["method"] for row in ranked] == [name for name, _ in whole.ranking()]
    assert (last["method"], last["title"], last["reason"]) == ("grad_cam", TITLES["grad_cam"], reason)
    assert last["rank"] == last["gap_probability"] == last["saco"] == "", "no number where there is none"
    assert last["patches_as"] == "dropped" and last["checkpoint"] == whole.checkpoint
    assert refused.frame()["reason"].tolist() == [*[""] * 5, reason]
    assert replace(part, curves={}, refused={"chefer": reason}).rows()[0]["reason"] == reason


def test_class_sensitivity_of_methods(subject, whole):
    name, found = compute.class_sensitivity_column(subject, CLASS, ["rollout", "ledger"])
    order = subject.trace.logits.argsort(descending=True).tolist()
    assert name == subject.trace.named(next(one for one in order if one != CLASS))
    assert found["rollout"] == pytest.approx(1) and found["ledger"] < 0.99
    ranked = [one for one, _ in whole.ranking()]
    figure = compute.correlation_matrix(whole, "probability", (name, found))
    at = ranked.index("rollout")
    assert figure.values.shape == (5, 7) and figure.values[at, 6] == found["rollout"]
    said, row, col = (line.values["line"] for line in figure.told)
    assert [said[at][one] for one in (at, 5, 6)] == ["1.00", "", "1.00"]
    assert (row[at], col[0][at], col[0][6]) == (
        [TITLES["rollout"]],
        TITLES["rollout"],
        f"{name}, same method",
    )


def test_verdict_texts(whole):
    from vitviz.analyses.faithfulness.ranking import tied_methods_text, verdict_text

    tied = replace(whole, curves={**whole.curves, "chefer": whole.curves["ledger"]})
    for trial, count in ((whole, 1), (tied, 2)):
        said = verdict_text(trial)
        assert isinstance(said, LocalizedText) and TITLES[trial.ranking()[0][0]] in said
        first, *others = trial.beats_chance()
        near = [name for name in others if trial.tied(first, name)]
        assert len(near) == len(others) == count - 1 and all(
            TITLES[name] in tied_methods_text(trial) for name in near
        )
        assert bool(near) is bool(tied_methods_text(trial)) is ("within noise" in said)
    blind = trials.join_results([made_part(whole, name) for name in ("random", "rollout")])
    assert verdict_text(blind).pattern.startswith("No method beats")


def made_part(whole, name):
    return replace(whole, maps={name: whole.maps[name]}, curves={name: whole.curves[name]})


def test_unknown_method_or_class_raises(subject):
    with pytest.raises(Unknown, match="expected one of random"):
        asked(subject, "tried", method="lime")
    with pytest.raises(WrongSetting, match="a class from 0 to 6"):
        asked(subject, "tried", target="7", method="ledger")
    trace = subject.inspector.trace(vitviz.sample_image("coffee"), ablation=Ablation(heads=[(1, 1)]))
    assert "full model" in VIEW.unsupported(ViewContext(subject.inspector, trace))


def test_stopped_evaluation_is_not_cached_as_rejected(subject, monkeypatch):
    from vitviz.traces import cancellation

    with cancellation.when(lambda: True), pytest.raises(Stopped):
        compute.evaluate_method(subject, 2, "dropped", "chefer")
    assert "chefer" in compute.evaluate_method(subject, 2, "dropped", "chefer").curves


def test_rejection_reason_is_kept(subject, monkeypatch):
    from vitviz.analyses import saliency
    from vitviz.errors import UnsupportedModel
    from vitviz.traces.localized_text import not_applicable

    def refusing(passes):
        raise UnsupportedModel(not_applicable("mine", LocalizedText("no attention has a gradient")))

    monkeypatch.setattr(saliency, "METHODS", {**saliency.METHODS, "chefer": refusing})
    told = compute.method_json(compute.evaluate_method(subject, 6, "dropped", "chefer"))
    assert told["refused"]["text"] == "{checkpoint}: not applicable, because {reason}."
    assert told["refused"]["values"]["reason"]["text"] == "no attention has a gradient"


def test_tied_map_averages_its_orders(inspector, trace):
    passes = compute.passes_of(ViewContext(inspector, trace), CLASS)
    tied, single = torch.zeros(14, 14), torch.arange(196.0).view(14, 14)
    from vitviz.analyses.faithfulness.curves import removal_curves

    found, sets = removal_curves(
        {"tied": tied, "single": single}, passes.answers, (CLASS,), CLASS, (0.0, 0.5, 1.0), 0, 3
    )
    assert sets == 2 + 3 * 2 + 10 + 2 + 10  # both ends, two halves an order, ten groups each
    assert found["tied"].saco == 0 and set(found) == {"tied", "single"}
