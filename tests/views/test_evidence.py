"""What the Evidence view hands out: numbers that add up, for what is asked and for what is chosen."""

import json

import numpy as np
import pytest
import torch

import vitviz
from vitviz.errors import WrongSetting
from vitviz.runs import Without
from vitviz.views import Subject
from vitviz.views.evidence import MAPS, Evidence

VIEW = Evidence()


@pytest.fixture(scope="module")
def inspector():
    return vitviz.load("vitviz-tiny", device="cpu")


@pytest.fixture(scope="module")
def subject(inspector):
    return Subject(inspector, inspector.trace(vitviz.sample_image("coffee")))


def asked(subject, name: str, **given: str) -> np.ndarray:
    settings = VIEW.settings(given, subject.about)
    return VIEW.declared(name).checked(VIEW.item(subject, name, settings), subject.about)


@pytest.mark.parametrize("given", [{}, {"target": "7"}, {"target": "193-7"}, {"relative": "yes"}])
def test_the_items_add_up_to_the_logit_that_was_asked_for(subject, given):
    start, pooling, norm_bias, head_bias, logit, total = asked(subject, "lines", **given)
    shares = [asked(subject, name, **given).sum(dtype=np.float64) for name in ("heads", "mlps", "biases")]
    assert start + pooling + norm_bias + head_bias + sum(shares) == pytest.approx(total, abs=1e-4)
    logits = subject.trace.logits.double()
    first, *other = [int(part) for part in given.get("target", str(int(logits.argmax()))).split("-")]
    expected = logits[first] - (logits[other[0]] if other else 0)
    if given.get("relative"):
        expected = expected - logits.mean()
    assert logit == pytest.approx(expected.item(), abs=1e-4) and total == pytest.approx(logit, abs=1e-4)


def test_a_head_and_the_others_add_up_to_the_map_of_all(subject):
    about = subject.about
    single = [
        asked(subject, "map", chosen=f"{layer}.{head}")
        for layer in range(1, about.layers + 1)
        for head in range(1, about.heads + 1)
    ]
    np.testing.assert_allclose(np.sum(single, axis=0), asked(subject, "map"), atol=1e-5)
    layer = np.sum(single[: about.heads], axis=0)
    np.testing.assert_allclose(layer, asked(subject, "map", chosen="1"), atol=1e-6)


def test_what_patches_gave_through_each_head_adds_up_to_their_place_in_the_map(subject):
    patches, whole = [104, 105, 118], asked(subject, "map").ravel()
    through = asked(subject, "heads", patches=".".join(map(str, patches)))
    assert through.sum() == pytest.approx(whole[patches].sum(), abs=1e-5)
    sources = asked(subject, "sources")
    assert sources[0] == pytest.approx(whole.sum(), abs=1e-4)
    assert sources.sum() == pytest.approx(asked(subject, "heads").sum(), abs=1e-4)


def test_the_answer_forms_towards_the_models_own(subject):
    forming, share = asked(subject, "forming"), asked(subject, "share")
    top = subject.trace.logits.double().softmax(-1).topk(5)
    np.testing.assert_allclose(forming[-1], top.values.numpy(), atol=1e-5)
    assert share[-1] == pytest.approx(subject.trace.logits.max().item(), abs=1e-4)
    assert len(share) == len(forming) == subject.about.layers + 1
    classes = json.loads(asked(subject, "classes").tobytes())
    assert [one["class"] for one in classes] == top.indices.tolist()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "200"}, "a class from 0 to 199"),
        ({"target": "3-3"}, "two different ones"),
        ({"target": "x"}, "target='x'"),
        ({"chosen": "9.1"}, "layer 1 to 8"),
        ({"chosen": "1.4"}, "head 1 to 3"),
        ({"patches": "196"}, "from 0 to 195"),
    ],
)
def test_what_does_not_exist_is_refused_counted_from_1(subject, given, said):
    with pytest.raises(WrongSetting, match=said):
        asked(subject, "map" if "chosen" in given else "heads", **given)


def test_a_map_that_balances_says_so_and_one_that_cannot_has_no_sum(subject):
    explained, rest = asked(subject, "explained", method="frozen")
    assert explained == pytest.approx(subject.trace.logits.max().item(), abs=1e-3) and abs(rest) < 1e-3
    assert np.isnan(asked(subject, "explained", method="chefer")).all()
    maps = {name: asked(subject, "map", method=name) for name, _ in MAPS}
    assert all(np.isfinite(found).all() for found in maps.values())
    ranks = {name: found.ravel().argsort().argsort() for name, found in maps.items()}
    assert len({tuple(rank) for rank in ranks.values()}) == len(maps), "each method's own"


def test_a_head_that_was_taken_away_for_zero_has_no_share(inspector):
    trace = inspector.trace(vitviz.sample_image("coffee"), without=Without(heads=[(4, 1)], heads_as="zero"))
    edited = Subject(inspector, trace)
    assert asked(edited, "heads")[4, 1] == 0.0
    *_, logit, total = asked(edited, "lines")
    assert total == pytest.approx(logit, abs=1e-4) and not torch.equal(
        trace.logits, inspector.trace(trace.view.picture).logits
    )
    with pytest.raises(vitviz.VitvizError, match="taken away"):
        asked(edited, "map", method="frozen")
