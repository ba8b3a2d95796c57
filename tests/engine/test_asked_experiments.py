"""`vitviz.perturbation`: the curves of the page in Python, in float32 and in bfloat16."""

import numpy as np
import pytest
import torch
from PIL import Image

import vitviz
from vitviz.analyses import patches_kept
from vitviz.analyses.protocol import DRAWS, SHARES
from vitviz.engine.studies.perturbation import PerturbedLogits, perturbed_logits
from vitviz.errors import Stopped, UnsupportedModel, VitvizError
from vitviz.notebook import html
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.runs import Ablation
from vitviz.views import ViewContext
from vitviz.views.experiment import PerturbationsView

WAYS = {"drop": ["dropped", "black"], "shuffle": ["shuffled"]}


@pytest.fixture(scope="module")
def found(inspector, photo):
    return {kind: vitviz.perturbation(inspector, photo, kind) for kind in WAYS}


@pytest.fixture(scope="module")
def rough(photo):
    half = vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16")
    return half, half.trace(photo)


@pytest.mark.long
@pytest.mark.parametrize("kind", list(WAYS))
def test_it_is_what_the_page_shows(inspector, photo, found, kind):
    view, subject = PerturbationsView(), ViewContext(inspector, inspector.trace(photo))
    numbers, one = view.numbers(subject, view.settings({"kind": kind}, subject.about)), found[kind]
    assert list(one.probability) == list(one.kept) == WAYS[kind] and one.refused == {}
    assert list(one.steps) == numbers["steps"].tolist() and one.label == "espresso"
    for score in ("probability", "kept"):
        for i, way in enumerate(WAYS[kind]):
            np.testing.assert_allclose(getattr(one, score)[way], numbers[score][i], atol=1e-6)
            for (mean, error), draws in zip(one.curve(way, score), numbers[score][i], strict=True):
                assert mean == pytest.approx(draws.mean(), abs=1e-6)
                assert error == pytest.approx(draws.std(ddof=1) / DRAWS**0.5, abs=1e-6)


def test_a_draw_stays_the_same_draw_however_many_there_are(inspector, photo, found):
    few, told = [], []
    few = vitviz.perturbation(
        inspector, inspector.trace(photo), draws=2, progress=lambda *one: told.append(one)
    )
    for way, values in found["drop"].probability.items():
        torch.testing.assert_close(few.probability[way], values[:, :2], atol=1e-5, rtol=0)
    assert [share for share, _ in told] == pytest.approx([i / 22 for i in range(22)])
    assert [way for _, way in told] == ["dropped"] * 11 + ["black"] * 11


def test_the_frame_has_a_row_a_way_step_and_draw(found):
    frame = found["drop"].frame()
    assert list(frame) == ["way", "dropped", "draw", "probability", "kept"] and len(frame) == 2 * 11 * DRAWS
    row = frame[(frame["way"] == "black") & (frame["dropped"] == 98) & (frame["draw"] == 3)].iloc[0]
    assert row["probability"] == found["drop"].probability["black"][5, 2].item()
    assert list(found["shuffle"].frame()) == ["way", "pieces", "draw", "probability", "kept"]


def test_the_card_says_means_and_how_many_keep_the_answer(found):
    text = html(found["drop"])
    mean, error = found["drop"].curve("dropped")[5]
    assert f"{mean:.1%} ± {2 * error:.1%}" in text and "espresso" in text and "float32" not in text
    assert f"{found['drop'].kept['black'][8].mean():.0%}" in text


@pytest.mark.sweep  # a whole experiment in bfloat16
def test_in_bfloat16_it_is_the_models_own_answer_and_says_how_far_that_is(rough, photo, found):
    half, trace = rough
    one = vitviz.perturbation(half, trace)
    assert one.dtype == "bfloat16" and one.deviation is trace.deviation is not None
    assert torch.equal(perturbed_logits(half, trace, "dropped", 0)[0], trace.logits)
    for way in ("dropped", "black"):
        kept = set(patches_kept(trace.grid, SHARES[4], 3).tolist())
        gone = [patch for patch in range(trace.grid.patches) if patch not in kept]
        other = half.trace(photo, ablation=Ablation(patches=gone, patches_as=way)).logits
        torch.testing.assert_close(perturbed_logits(half, trace, way, 4)[2], other, atol=0.06, rtol=0.02)
        exact = found["drop"].probability[way]
        assert (one.probability[way] - exact).abs().max() < 20 * trace.deviation.classes
        assert not torch.equal(one.probability[way][3:], exact[3:]), "it is not float32's"
    assert f"up to {trace.deviation.classes:.2g} from float32" in html(one)


def test_black_is_black_in_bfloat16_too(rough):
    half, trace = rough
    black = half.trace(Image.new("RGB", (300, 300))).logits
    torch.testing.assert_close(perturbed_logits(half, trace, "black", 10)[0], black, atol=0, rtol=0)


def test_a_way_that_does_not_exist_is_named_with_the_reason(inspector, photo, monkeypatch):
    reason, whole = LocalizedText("it pools with positions of its own"), PerturbedLogits.kept

    def refusing(draws, kept, patches_as):
        if patches_as == "dropped":
            raise UnsupportedModel(reason)
        return whole(draws, kept, patches_as)

    monkeypatch.setattr(PerturbedLogits, "kept", refusing)
    one = vitviz.perturbation(inspector, photo, draws=1)
    assert one.refused == {"dropped": reason} and list(one.probability) == ["black"] == list(one.kept)
    assert one.curve("black")[1][1] == 0 and reason in html(one)
    with pytest.raises(VitvizError, match="way='dropped', score='probability'; expected one of black, and"):
        one.curve("dropped")
    with pytest.raises(VitvizError, match="score='steps'"):
        one.curve("black", "steps")


def test_what_cannot_be_asked_is_said(inspector, photo):
    from vitviz.traces import cancellation

    for given, said in (
        ({"kind": "swap"}, "kind='swap'; expected one of drop, shuffle"),
        ({"draws": 0}, "draws=0; expected a whole number from 1"),
        ({"draws": True}, "draws=True; expected"),
        ({"draws": 2.0}, "draws=2.0; expected"),
    ):
        with pytest.raises(VitvizError, match=said):
            vitviz.perturbation(inspector, photo, **given)
    with pytest.raises(VitvizError, match="needs the full model"):
        vitviz.perturbation(inspector, inspector.trace(photo, ablation=Ablation(heads=[(0, 1)])))
    with cancellation.when(lambda: True), pytest.raises(Stopped):
        vitviz.perturbation(inspector, photo)


def test_a_model_without_a_classifier_has_no_answer_to_watch():
    import timm

    model = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=0)
    bare = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    with pytest.raises(VitvizError, match="has no classifier"):
        vitviz.perturbation(bare, np.zeros((224, 224, 3), np.uint8))
