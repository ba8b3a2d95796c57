"""The `trial` endpoint returns the faithfulness evaluation of the Python API as plain JSON."""

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
    return small_inspector  # an evaluation needs hundreds of passes


@pytest.fixture(scope="module")
def trace(small_trace):
    return small_trace


def json_round_trip(answer):
    """Return the response after a JSON round trip without NaN."""
    return json.loads(json.dumps(answer, allow_nan=False))


@pytest.fixture(scope="module", params=["dropped", "black"])
def expected(inspector, trace, request):
    """Evaluate with the Python API, for all scores."""
    return vitviz.faithfulness(inspector, trace, 4, ["ledger"], request.param)


def test_single_method_matches_python_for_every_score(ask, expected):
    for score in ("probability", "logit", "kept"):
        own, patches_as = expected, expected.patches_as
        response = json_round_trip(
            ask("coffee", target="4", patches_as=patches_as, score=score, method="ledger")
        )
        assert (
            response["target"] == [4]
            and response["patches_as"] == patches_as
            and set(response["maps"]) == {"ledger", "random"}
        )
        assert response["checkpoint"] == "small" and response["dtype"] == "float32"
        assert response["shares"] == pytest.approx(own.shares) and response["grid"]["rows"] == 4
        assert [row["method"] for row in response["rows"]] == [name for name, _ in own.ranking(score)]
        assert response["chance"] == pytest.approx((*own.chance(score), own.reach(score)), abs=1e-4)
        for row in response["rows"]:
            name, curves = row["method"], own.curves[row["method"]]
            assert row["areas"] == pytest.approx(own.areas(name, score), abs=1e-4)
            assert row["gap"] == pytest.approx(row["areas"][1] - row["areas"][0], abs=1e-6)
            assert row["saco"] == pytest.approx(curves.saco, abs=1e-3)
            assert row["beats"] is (name in own.beats_chance(score))
            for side in ("most", "least"):
                values = getattr(curves, side)[score].tolist()
                assert response["curves"][name][side] == pytest.approx(values, abs=1e-3)
        np.testing.assert_allclose(response["maps"]["ledger"], own.maps["ledger"].map, atol=1e-4)


def test_all_methods_and_verdict_without_a_method(ask, inspector, trace, monkeypatch):
    monkeypatch.setattr(view, "ORDER", FEW)
    response, own = (
        json_round_trip(ask("coffee")),
        vitviz.faithfulness(inspector, trace, int(trace.logits.argmax()), FEW),
    )
    assert set(response["curves"]) == set(FEW) and response["target"] == [int(trace.logits.argmax())]
    from vitviz.analyses.faithfulness.ranking import verdict_text

    assert response["verdict"] == str(verdict_text(own)) and response["refused"] == {}


def test_class_pair_matches_python(ask, inspector, trace):
    response = json_round_trip(ask("coffee", target="5-3", score="logit", method="frozen"))
    own = vitviz.faithfulness(inspector, trace, (5, 3), ["frozen"])
    assert response["target"] == [5, 3]
    assert response["curves"]["frozen"]["most"][0] == pytest.approx(
        (trace.logits[5] - trace.logits[3]).item(), abs=1e-3
    )
    (row,) = (row for row in response["rows"] if row["method"] == "frozen")
    assert row["areas"] == pytest.approx(own.areas("frozen", "logit"), abs=1e-3)
    assert row["unexplained"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"target": "7"}, "a class from 0 to 6"),
        ({"target": "first"}, "expected a text like"),
        ({"patches_as": "green"}, "expected one of dropped"),
        ({"score": "loss"}, "expected one of probability"),
        ({"method": "lime"}, "There is no method 'lime'"),
        ({"checkpoint": "no-such-model"}, "no-such-model"),
    ],
)
def test_invalid_argument_is_rejected_with_message(ask, given, message):
    with pytest.raises(VitvizError, match=message):
        ask("coffee", **given)


def test_bfloat16_is_reported_as_not_applicable():
    service = AnalysisService(ServiceSettings(device="cpu", dtype="bfloat16"))
    response = json_round_trip(Endpoints(service).trial("coffee", method="ledger"))
    assert set(response) == {"checkpoint", "not_applicable"} and "float32" in response["not_applicable"]


def test_inapplicable_method_is_listed_with_its_reason(ask, monkeypatch):
    from vitviz.analyses import saliency
    from vitviz.errors import UnsupportedModel
    from vitviz.traces.localized_text import LocalizedText, not_applicable

    def refusing(passes):
        raise UnsupportedModel(not_applicable("mine", LocalizedText("no attention has a gradient")))

    monkeypatch.setattr(saliency, "METHODS", {**saliency.METHODS, "attention_grad_cam": refusing})
    response = json_round_trip(ask("coffee", target="6", method="attention_grad_cam"))
    assert response["refused"] == {
        "attention_grad_cam": "mine: not applicable, because no attention has a gradient."
    }
    assert set(response["maps"]) == {"random"}
