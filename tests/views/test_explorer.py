"""Attention explorer: numbers equal what it shows."""

import json
from dataclasses import replace

import numpy as np
import pytest

import vitviz
from tests.engine.constructions import small_model
from tests.engine.random_inspectors import inspect, noise
from vitviz.errors import UnsupportedModel
from vitviz.views import ViewContext
from vitviz.views.availability import refusal
from vitviz.views.explorer import AttentionView, opening_head, patch_contributions, score
from vitviz.views.routes import item_array, parse_settings


@pytest.fixture(scope="module")
def subject(inspector, trace):
    return ViewContext(inspector, trace)


def test_displayed_rollout_is_among_numbers(subject):
    view = AttentionView()
    found = view.numbers(
        subject, parse_settings(view, {"show": "rollout", "token": "0", "pins": "20.30"}, subject.about)
    )
    for given, query in zip(found["rollout"], ("class", 19, 29), strict=True):
        assert np.array_equal(given, vitviz.rollout(subject.trace, query=query).numpy())
    assert "rollout" not in view.numbers(subject, parse_settings(view, {"token": "0"}, subject.about))


def test_numbers_contain_attention_of_displayed_tokens(subject):
    view = AttentionView()
    found = view.numbers(
        subject,
        parse_settings(view, {"layer": "2", "token": "5", "pins": "7", "direction": "column"}, subject.about),
    )
    whole = subject.trace.attention(1).numpy()
    assert found["queries"].tolist() == ["4", "6"], "patches from 0, behind the class token"
    np.testing.assert_allclose(found["attention"], np.stack([whole[:, :, 5], whole[:, :, 7]]), atol=1e-6)


def test_attention_with_removed_patches_keeps_positions(subject):
    gone, view = [0, 30, 105], AttentionView()
    trace = subject.inspector.trace(vitviz.sample_image("coffee"), ablation=vitviz.Ablation(patches=gone))
    short = ViewContext(subject.inspector, trace)
    assert refusal(view, short) is None
    own, kept = trace.attention(1).double().numpy(), [patch for patch in range(196) if patch not in gone]
    whole = view.item(short, "layer", {**parse_settings(view, {}, short.about), "layer": 2})
    for i, query in enumerate(kept):
        assert np.isnan(whole[:, 1 + query, [1 + patch for patch in gone]]).all()
        np.testing.assert_allclose(whole[:, 1 + query, 1 + np.array(kept)], own[:, 1 + i, 1:], atol=1e-6)
    assert np.isnan(whole[:, 1 + gone[1]]).all() and not np.isnan(whole[:, 0, 0]).any()
    absent = parse_settings(view, {"token": str(1 + gone[1]), "show": "rollout"}, short.about)
    for name in ("line", "rollout"):
        assert np.isnan(view.item(short, name, absent)).all()
    assert not np.asarray(view.item(short, "wallmax", absent)).any()


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ({"layer": "3", "head": "2", "token": "20", "key": "4"}, (20, 5, None)),
        ({"layer": "8", "head": "1", "token": "20", "key": "class", "against": "30"}, (20, 0, 31)),
        ({"layer": "3", "head": "2", "token": "20", "key": "4", "direction": "column"}, (5, 20, None)),
        ({"layer": "2", "head": "3", "token": "0"}, (0, None, None)),
    ],
)
@pytest.mark.parametrize("few", [48, 6])
def test_displayed_score_is_relative_to_other_keys(subject, monkeypatch, given, places, few):
    monkeypatch.setattr(score, "FEW", few)
    view = AttentionView()
    settings = parse_settings(view, {"beside": "score", **given}, subject.about)
    told = json.loads(item_array(view, subject, "score", settings).tobytes())
    layer, head = subject.trace.layers[settings["layer"] - 1], settings["head"] - 1
    q, k = layer.q[head].double(), layer.k[head].double()
    query, key, against = places
    key = int((q[query] @ k.mT).argmax()) if key is None else key
    scores = q[query] @ k.mT * layer.scale
    other = scores.mean() if against is None else scores[against]
    matrix = told["matrix"]
    values = np.asarray(matrix["values"])
    assert values.sum() == pytest.approx(float(scores[key] - other), abs=1e-3)
    assert told["places"] == [one for one in (query, key, against) if one is not None]
    heads = settings["layer"] - 1
    count = 3 + heads * (1 + (subject.about.heads if 3 + heads * 4 <= few else 1))
    assert values.shape == (count, count) and len(told["heads"]) == len(matrix["rows"]) == count
    taken = view.numbers(subject, settings)
    whole = taken["score_sums"]
    assert whole[0] == pytest.approx(float(scores[key]), abs=1e-3) and whole[1] == pytest.approx(
        whole[0], abs=1e-3
    )
    assert taken["score_relative"].sum() == pytest.approx(values.sum(), abs=1e-3)
    assert taken["score"].shape == (len(taken["score_writers"]),) * 2


def test_score_panel_states_why_it_is_unavailable():
    def told(construction: str, **without):
        inspector = inspect(small_model(construction))
        trace = inspector.trace(noise(), ablation=vitviz.Ablation(**without) if without else None)
        short, view = ViewContext(inspector, trace), AttentionView()
        return score.score_panel(view, short, parse_settings(view, {"layer": "2", "head": "2"}, short.about))

    assert told("class")["above"].startswith("Query × key: content × content")
    assert "adds no position embedding" in told("relative positions")["above"]
    assert any("relative position bias" in note for note in told("relative positions")["notes"])
    taken = told("class", heads=[(1, 1)])
    assert list(taken) == ["notes"] and "ablated" in "".join(taken["notes"])


def test_initial_head_depends_most_on_query(trace):
    found = {}
    for layer in range(3, 8):  # from the middle on
        for head, weights in enumerate(trace.attention(layer)[:, 1:, 1:].double().numpy()):
            joint = weights / weights.sum(axis=1, keepdims=True) / len(weights)
            apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            found[layer + 1, head + 1] = (joint * np.log(joint / apart)).sum()
    assert opening_head(trace) == max(found, key=found.get) != (1, 1)


def test_contributions_are_those_of_attribution_and_need_a_classifier(inspector, trace):
    told = patch_contributions(ViewContext(inspector, trace))
    answer = int(trace.logits.argmax())
    account = vitviz.logit_attribution(inspector, trace, target=answer)
    np.testing.assert_allclose(told["values"], account.patches.flatten(), atol=1e-6)
    assert told["class"] == trace.labels[answer] and np.ptp(told["values"]) > 0.1
    headless = ViewContext(inspector, replace(trace, logits=None))
    with pytest.raises(UnsupportedModel, match="has no classifier"):
        patch_contributions(headless)
