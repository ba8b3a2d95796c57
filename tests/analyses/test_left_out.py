"""Traces with removed patches: every map keeps its grid and has NaN at removed patches."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import vitviz
from tests.engine.forward.ablation_oracle import inspector_of
from tests.engine.random_inspectors import noise
from vitviz import Ablation, analyses
from vitviz.analyses.example import example_trace
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid
from vitviz.views.availability import refusal
from vitviz.views.routes import parse_settings

GRID, KEPT = Grid(3, 4, (4, 2), ("class",)), (1, 2, 5, 6, 8, 9, 10)
POSITIONS = [0, *(1 + patch for patch in KEPT)]


@pytest.fixture
def trace():
    return example_trace(GRID, layers=3, seed=4, kept=KEPT)


def scatter(values: np.ndarray) -> np.ndarray:
    whole = np.full(13, np.nan)
    whole[POSITIONS] = values
    return whole


def attention_by_hand(trace) -> list[np.ndarray]:
    weights = []
    for one in trace.layers:
        scores = np.einsum("hqd,hkd->hqk", one.q.double().numpy(), one.k.double().numpy()) * one.scale
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights.append(powers / powers.sum(axis=-1, keepdims=True))
    return weights


@pytest.mark.parametrize("query", ["class", "mean", 5, (2, 1)])
def test_rollout_and_attention_rows_have_nan_at_removed_patches(trace, query):
    query_vector = {
        "class": np.eye(8)[0],
        "mean": np.r_[0, np.full(7, 1 / 7)],
        5: np.eye(8)[3],
        (2, 1): np.eye(8)[6],
    }[query]
    row = query_vector
    for layer in reversed(attention_by_hand(trace)):
        row = row @ (0.5 * np.eye(8) + 0.5 * layer.mean(axis=0))
    expected = scatter(row)
    near = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}
    assert_close(analyses.rollout_row(trace, query).double().numpy(), expected, **near)
    assert_close(analyses.rollout(trace, query).double().numpy(), expected[1:].reshape(3, 4), **near)
    assert_close(analyses.sweep(trace, query).rollout.double().numpy(), expected[1:].reshape(3, 4), **near)
    mean = scatter(query_vector @ attention_by_hand(trace)[1].mean(axis=0))[1:].reshape(3, 4)
    assert_close(analyses.mean_attention(trace, query)[1].double().numpy(), mean, **near)
    if query != "mean":
        position = int(query_vector.argmax())
        assert_close(
            analyses.attends_to(trace, 1, query)[1].double().numpy(),
            scatter(attention_by_hand(trace)[1][1, position]),
            **near,
        )
        assert_close(
            analyses.attended_by(trace, 1, query)[1].double().numpy(),
            scatter(attention_by_hand(trace)[1][1, :, position]),
            **near,
        )
        assert_close(
            analyses.worked_row(trace, 1, 1, query).weights.numpy(),
            attention_by_hand(trace)[1][1, position],
            rtol=1e-5,
            atol=1e-6,
        )


def test_distances_use_kept_patches_only(trace):
    at = np.array([divmod(patch, 4) for patch in KEPT]) * (4, 2)
    lengths = np.hypot(*(at[:, None] - at).transpose(2, 0, 1))
    expected = [[(head[1:, 1:] * lengths).sum() / 7 for head in layer] for layer in attention_by_hand(trace)]
    assert_close(analyses.attention_distance(trace).double(), torch.tensor(expected), rtol=1e-5, atol=1e-5)
    assert_close(
        analyses.sweep(trace).distances.distance.double(), torch.tensor(expected), rtol=1e-5, atol=1e-5
    )


def test_removed_patch_as_query_raises(trace):
    for ask in (analyses.rollout, analyses.mean_attention):
        with pytest.raises(VitvizError, match="left out"):
            ask(trace, 4)
    for ask in (analyses.attends_to, analyses.attended_by):
        with pytest.raises(VitvizError, match="row 1, col 0"):
            ask(trace, 0, (1, 0))
    assert analyses.attention_entropy(trace, 0).shape == (2,)
    assert sum(rows.stop - rows.start for _, rows, _ in trace.attention_rows(0, block=3)) == 2 * 8


@pytest.mark.parametrize("form", ["now", "share"])
@pytest.mark.parametrize("family", ["class", "average, then norm", "norm, then average"])
def test_logit_lens_of_patches_with_removed_patches(family, form):
    inspector = inspector_of(family)
    trace = inspector.trace(noise(), ablation=Ablation(patches=[0, 6]))
    logits = vitviz.logit_lens(inspector, trace, form, patches=True, target=2)
    assert logits.shape == (4, 3, 4) and logits[0].isnan().flatten().nonzero().flatten().tolist() == [0, 6]
    if family == "norm, then average" or (family, form) == ("average, then norm", "share"):
        assert logits[-1].nanmean().item() == pytest.approx(trace.logits[2].item(), abs=1e-4)
    assert_close(vitviz.logit_lens(inspector, trace, "share")[-1], trace.logits, rtol=1e-4, atol=1e-4)
    assert_close(vitviz.logit_lens(inspector, trace)[-1], trace.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "family", ["class", "average, then norm", "attention pooling", "BEiT", "class and mean"]
)
def test_auto_rollout_covers_kept_tokens_only(family):
    inspector = inspector_of(family)
    trace = inspector.trace(noise(), ablation=Ablation(patches=[0, 6]))
    row = analyses.rollout_row(trace)
    assert row.nansum().item() == pytest.approx(1, abs=1e-5)
    assert row.isnan().nonzero().flatten().tolist() == [trace.grid.prefix, trace.grid.prefix + 6]


def test_views_of_every_patch_reject_removed_patches(inspector):
    from vitviz.views import VIEWS, ViewContext

    subject = ViewContext(
        inspector, inspector.trace(vitviz.sample_image("coffee"), ablation=Ablation(patches=[0, 5, 100]))
    )
    rejecting = [view.slug for view in VIEWS if refusal(view, subject)]
    assert rejecting == [view.slug for view in VIEWS if view.scope.every_patch]
    for view in VIEWS:
        if view.slug not in rejecting:
            view.summary(subject)
            assert view.numbers(subject, parse_settings(view, {}, subject.about))
