"""The endpoint `trial`: what a program gets is the trial that Python makes, in plain JSON."""

import json

import numpy as np
import pytest

import vitviz
from vitviz.errors import VitvizError
from vitviz.server.api.endpoints import Endpoints
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.views import trial as view

FEW = ("random", "centre", "ledger", "chefer", "rollout")


@pytest.fixture(scope="module")
def ask(small_weights):
    return Endpoints(
        AnalysisService(ServiceSettings(checkpoint="small", weights=small_weights, device="cpu"))
    ).trial


@pytest.fixture(scope="module")
def inspector(small_inspector):
    return small_inspector  # a trial is hundreds of passes


@pytest.fixture(scope="module")
def trace(small_trace):
    return small_trace


def told(answer):
    """As it travels, which knows no NaN."""
    return json.loads(json.dumps(answer, allow_nan=False))


@pytest.fixture(scope="module", params=["dropped", "black"])
def pythons(inspector, trace, request):
    """What the scores are all of."""
    return vitviz.faithfulness(inspector, trace, 4, ["ledger"], request.param)


def test_one_method_beside_chance_is_pythons_by_every_score(ask, pythons):
    for score in ("probability", "logit", "kept"):
        own, patches_as = pythons, pythons.patches_as
        found = told(ask("coffee", target="4", patches_as=patches_as, score=score, method="ledger"))
        assert found["target"] == [4] and found["patches_as"] == patches_as and set(found["maps"]) == {
            "ledger", "random",
        }  # fmt: skip
        assert found["checkpoint"] == "small" and found["dtype"] == "float32"
        assert found["shares"] == pytest.approx(own.shares) and found["grid"]["rows"] == 4
        assert [row["method"] for row in found["rows"]] == [name for name, _ in own.ranking(score)]
        assert found["chance"] == pytest.approx((*own.chance(score), own.reach(score)), abs=1e-4)
        for row in found["rows"]:
            name, curves = row["method"], own.curves[row["method"]]
            assert row["areas"] == pytest.approx(own.areas(name, score), abs=1e-4)
            assert row["gap"] == pytest.approx(row["areas"][1] - row["areas"][0], abs=1e-6)
            assert row["saco"] == pytest.approx(curves.saco, abs=1e-3)
            assert row["beats"] is (name in own.beats_chance(score))
            for side in ("most", "least"):
                expected = getattr(curves, side)[score].tolist()
                assert found["curves"][name][side] == pytest.approx(expected, abs=1e-3)
        np.testing.assert_allclose(found["maps"]["ledger"], own.maps["ledger"].map, atol=1e-4)


def test_without_a_method_all_of_them_and_the_verdict(ask, inspector, trace, monkeypatch):
    monkeypatch.setattr(view, "ORDER", FEW)
    found, own = told(ask("coffee")), vitviz.faithfulness(inspector, trace, int(trace.logits.argmax()), FEW)
    assert set(found["curves"]) == set(FEW) and found["target"] == [int(trace.logits.argmax())]
    from vitviz.analyses.faithfulness.ranking import verdict_text

    assert found["verdict"] == str(verdict_text(own)) and found["refused"] == {}


def test_one_class_rather_than_another(ask, inspector, trace):
    found = told(ask("coffee", target="5-3", score="logit", method="frozen"))
    own = vitviz.faithfulness(inspector, trace, (5, 3), ["frozen"])
    assert found["target"] == [5, 3]
    assert found["curves"]["frozen"]["most"][0] == pytest.approx(
        (trace.logits[5] - trace.logits[3]).item(), abs=1e-3
    )
    (row,) = (row for row in found["rows"] if row["method"] == "frozen")
    assert row["areas"] == pytest.approx(own.areas("frozen", "logit"), abs=1e-3)
    assert row["unexplained"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"target": "7"}, "a class from 0 to 6"),
        ({"target": "first"}, "expected a text like"),
        ({"patches_as": "green"}, "expected one of dropped"),
        ({"score": "loss"}, "expected one of probability"),
        ({"method": "lime"}, "There is no method 'lime'"),
        ({"checkpoint": "no-such-model"}, "no-such-model"),
    ],
)
def test_what_cannot_be_is_a_sentence(ask, given, said):
    with pytest.raises(VitvizError, match=said):
        ask("coffee", **given)


def test_where_no_map_can_be_tried_it_says_why():
    rough = AnalysisService(ServiceSettings(device="cpu", dtype="bfloat16"))
    found = told(Endpoints(rough).trial("coffee", method="ledger"))
    assert set(found) == {"checkpoint", "not_applicable"} and "float32" in found["not_applicable"]


def test_a_method_that_does_not_apply_stands_with_its_reason(ask, monkeypatch):
    from vitviz.analyses import saliency
    from vitviz.errors import UnsupportedModel
    from vitviz.traces.localized_text import LocalizedText, not_applicable

    def refusing(passes):
        raise UnsupportedModel(not_applicable("mine", LocalizedText("no attention has a gradient")))

    monkeypatch.setattr(saliency, "METHODS", {**saliency.METHODS, "attention_grad_cam": refusing})
    found = told(ask("coffee", target="6", method="attention_grad_cam"))
    assert found["refused"] == {
        "attention_grad_cam": "mine: not applicable, because no attention has a gradient."
    }
    assert set(found["maps"]) == {"random"}
