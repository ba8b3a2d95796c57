"""`vitviz.perturbation`: the curves of the page from Python, in float32 and bfloat16."""

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
from vitviz.views.routes import parse_settings

WAYS_BY_KIND = {"drop": ["dropped", "black"], "shuffle": ["shuffled"]}


@pytest.fixture(scope="module")
def perturbations(inspector, photo):
    return {kind: vitviz.perturbation(inspector, photo, kind) for kind in WAYS_BY_KIND}


@pytest.fixture(scope="module")
def bf16_model(photo):
    half = vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16")
    return half, half.trace(photo)


@pytest.mark.long
@pytest.mark.parametrize("kind", list(WAYS_BY_KIND))
def test_perturbation_equals_page_numbers(inspector, photo, perturbations, kind):
    view, subject = PerturbationsView(), ViewContext(inspector, inspector.trace(photo))
    settings, result = parse_settings(view, {"kind": kind}, subject.about), perturbations[kind]
    numbers = view.numbers(subject, settings)
    assert list(result.probability) == list(result.kept) == WAYS_BY_KIND[kind] and result.refused == {}
    assert list(result.steps) == numbers["steps"].tolist() and result.label == "espresso"
    for score in ("probability", "kept"):
        for i, way in enumerate(WAYS_BY_KIND[kind]):
            np.testing.assert_allclose(getattr(result, score)[way], numbers[score][i], atol=1e-6)
            for (mean, error), draws in zip(result.curve(way, score), numbers[score][i], strict=True):
                assert mean == pytest.approx(draws.mean(), abs=1e-6)
                assert error == pytest.approx(draws.std(ddof=1) / DRAWS**0.5, abs=1e-6)


def test_first_draws_do_not_depend_on_number_of_draws(inspector, photo, perturbations):
    reports = []
    fewer = vitviz.perturbation(
        inspector, inspector.trace(photo), draws=2, progress=lambda *report: reports.append(report)
    )
    for way, values in perturbations["drop"].probability.items():
        torch.testing.assert_close(fewer.probability[way], values[:, :2], atol=1e-5, rtol=0)
    assert [share for share, _ in reports] == pytest.approx([i / 22 for i in range(22)])
    assert [way for _, way in reports] == ["dropped"] * 11 + ["black"] * 11


def test_frame_has_row_per_way_step_and_draw(perturbations):
    frame = perturbations["drop"].frame()
    assert list(frame) == ["way", "dropped", "draw", "probability", "kept"] and len(frame) == 2 * 11 * DRAWS
    row = frame[(frame["way"] == "black") & (frame["dropped"] == 98) & (frame["draw"] == 3)].iloc[0]
    assert row["probability"] == perturbations["drop"].probability["black"][5, 2].item()
    assert list(perturbations["shuffle"].frame()) == ["way", "pieces", "draw", "probability", "kept"]


def test_card_shows_means_and_kept_predictions(perturbations):
    text = html(perturbations["drop"])
    mean, error = perturbations["drop"].curve("dropped")[5]
    assert f"{mean:.1%} ± {2 * error:.1%}" in text and "espresso" in text and "float32" not in text
    assert f"{perturbations['drop'].kept['black'][8].mean():.0%}" in text


@pytest.mark.sweep  # a perturbation in bfloat16
def test_bfloat16_perturbation_uses_its_own_model_and_reports_deviation(bf16_model, photo, perturbations):
    half, trace = bf16_model
    result = vitviz.perturbation(half, trace, draws=3)
    assert result.dtype == "bfloat16" and result.deviation is trace.deviation is not None
    assert torch.equal(perturbed_logits(half, trace, "dropped", 0)[0], trace.logits)
    for way in ("dropped", "black"):
        kept = set(patches_kept(trace.grid, SHARES[4], 3).tolist())
        removed = [patch for patch in range(trace.grid.patches) if patch not in kept]
        other = half.trace(photo, ablation=Ablation(patches=removed, patches_as=way)).logits
        torch.testing.assert_close(perturbed_logits(half, trace, way, 4)[2], other, atol=0.06, rtol=0.02)
        exact = perturbations["drop"].probability[way][:, :3]
        assert (result.probability[way] - exact).abs().max() < 20 * trace.deviation.classes
        assert not torch.equal(result.probability[way][3:], exact[3:]), "the result is that of float32"
    assert f"up to {trace.deviation.classes:.2g} from float32" in html(result)


def test_black_image_is_exact_in_bfloat16(bf16_model):
    half, trace = bf16_model
    black = half.trace(Image.new("RGB", (300, 300))).logits
    torch.testing.assert_close(perturbed_logits(half, trace, "black", 10)[0], black, atol=0, rtol=0)


def test_unsupported_way_is_reported_with_reason(inspector, photo, monkeypatch):
    reason, original = LocalizedText("it pools with positions of its own"), PerturbedLogits.kept

    def reject_dropped(draws, kept, patches_as):
        if patches_as == "dropped":
            raise UnsupportedModel(reason)
        return original(draws, kept, patches_as)

    monkeypatch.setattr(PerturbedLogits, "kept", reject_dropped)
    result = vitviz.perturbation(inspector, photo, draws=1)
    assert result.refused == {"dropped": reason} and list(result.probability) == ["black"] == list(
        result.kept
    )
    assert result.curve("black")[1][1] == 0 and reason in html(result)
    with pytest.raises(
        VitvizError, match="way='dropped' with score='probability' is not valid; expected one of black, and"
    ):
        result.curve("dropped")
    with pytest.raises(VitvizError, match="score='steps'"):
        result.curve("black", "steps")


def test_invalid_arguments_are_rejected(inspector, photo):
    from vitviz.traces import cancellation

    for arguments, message in (
        ({"kind": "swap"}, "kind='swap' is not valid; expected one of drop, shuffle"),
        ({"draws": 0}, "draws=0 is not valid; expected a whole number from 1"),
        ({"draws": True}, "draws=True is not valid; expected"),
        ({"draws": 2.0}, "draws=2.0 is not valid; expected"),
    ):
        with pytest.raises(VitvizError, match=message):
            vitviz.perturbation(inspector, photo, **arguments)
    with pytest.raises(VitvizError, match="needs the full model"):
        vitviz.perturbation(inspector, inspector.trace(photo, ablation=Ablation(heads=[(0, 1)])))
    with cancellation.when(lambda: True), pytest.raises(Stopped):
        vitviz.perturbation(inspector, photo)


def test_model_without_classifier_is_rejected():
    import timm

    model = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=0)
    bare = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    with pytest.raises(VitvizError, match="has no classifier"):
        vitviz.perturbation(bare, np.zeros((224, 224, 3), np.uint8))
