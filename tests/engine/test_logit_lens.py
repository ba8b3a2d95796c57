"""The logit lens, against timm's own norm and head, and models where a patch has no prediction."""

import math

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

import vitviz
from tests.engine.constructions import CONSTRUCTIONS, QUICK, pixels_for, small_model, trace_and_readout
from tests.engine.random_inspectors import inspect, noise
from tests.engine.small_models import perturbed
from tests.tiers import sweep
from vitviz import analyses
from vitviz.engine.studies import attribution
from vitviz.errors import VitvizError


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
def test_last_layer_is_logits_and_shares_differ_by_layer_contributions(construction):
    model = small_model(construction).float()
    inspector = inspect(model)
    trace = inspector.trace(noise())
    now, share = vitviz.logit_lens(inspector, trace), vitviz.logit_lens(inspector, trace, form="share")
    assert now.shape == share.shape == (4, 6) and torch.equal(now[-1], trace.logits)
    torch.testing.assert_close(share[-1], trace.logits, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(now[1], model.forward_head(model.norm(trace.tokens[1][None]))[0])
    for target in (0, 4):
        account = vitviz.logit_attribution(inspector, trace, target)
        steps = account.heads.sum(dim=1) + account.projection_biases + account.mlps
        torch.testing.assert_close(share.diff(dim=0)[:, target], steps.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("construction", ["norm, then average", "average, then norm", "EVA-02"])
def test_mean_of_last_patch_shares_is_logit(construction):
    model = small_model(construction)
    trace, readout = trace_and_readout(model, pixels_for(model))
    ledger = analyses.logit_terms(trace, readout)
    answers = analyses.lens_patches(ledger, 2, form="share")
    assert answers.shape == (4, 3, 4) and answers[-1].mean().item() == pytest.approx(
        trace.logits[2].item(), abs=1e-10
    )
    torch.testing.assert_close(answers.mean(dim=(1, 2)), analyses.lens_shares(ledger)[:, 2])
    # each patch has its own norm, which is the model's norm here
    if construction == "norm, then average":
        torch.testing.assert_close(analyses.lens_patches(ledger, 2)[-1], answers[-1])
    assert analyses.lens_kind(readout) == "reading"


def test_patch_of_class_token_model_uses_norm_and_both_heads():
    for construction in ("class", "distilled"):
        model = small_model(construction)
        trace, readout = trace_and_readout(model, pixels_for(model))
        answers = analyses.lens_patches(analyses.logit_terms(trace, readout), (1, 3))
        with torch.no_grad():
            patches = model.norm(trace.tokens[2][trace.grid.prefix :])
            expected = (
                model.head(patches)
                if construction == "class"
                else (model.head(patches) + model.head_dist(patches)) / 2
            )
        torch.testing.assert_close(answers[2].flatten(), expected[:, 1] - expected[:, 3])
        assert analyses.lens_kind(readout) == "probe"


@pytest.mark.parametrize("construction", ["class", "distilled", "norm, then average", "average, then norm"])
def test_patch_probabilities_equal_timm_single_patch_results(construction):
    model = small_model(construction)
    trace, readout = trace_and_readout(model, pixels_for(model))
    for depth in range(len(trace.tokens)):
        probabilities = analyses.lens_probabilities(analyses.logit_terms(trace, readout), depth)
        for row in range(3):
            for col in range(4):
                token = trace.tokens[depth][trace.grid.token(row, col)]
                with torch.no_grad():
                    y = getattr(model, "fc_norm", torch.nn.Identity())(model.norm(token[None, None]))[0, 0]
                    logits = model.head(y)
                    if construction == "distilled":
                        logits = (logits + model.head_dist(y)) / 2
                powers = [math.exp(logit) for logit in logits.tolist()]
                expected = torch.tensor([logit / sum(powers) for logit in powers], dtype=probabilities.dtype)
                torch.testing.assert_close(probabilities[:, row, col], expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(IndexError, match="no tokens at layer 4"):
        analyses.lens_probabilities(analyses.logit_terms(trace, readout), 4)


def test_removed_patch_has_no_lens_and_others_keep_positions():
    inspector = inspect(small_model("class").float())
    trace = inspector.trace(noise(), ablation=vitviz.Ablation(patches=[0, 5]))
    probabilities = analyses.lens_probabilities(attribution.checked_logit_terms(inspector, trace), 3)
    assert probabilities.isnan().all(dim=0).flatten().nonzero().flatten().tolist() == [0, 5]
    kept = attribution.checked_logit_terms(inspector, trace).trace.tokens[3][trace.grid.prefix :]
    with torch.no_grad():
        expected = inspector.model.head(inspector.model.norm(kept)).double().softmax(-1)
    torch.testing.assert_close(
        probabilities.flatten(1)[:, list(trace.kept)].mT, expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "construction, reason",
    [("attention pooling", "weighs all patches together"), ("class and mean", "side by side")],
)
def test_patch_lens_is_rejected_if_patches_are_combined(construction, reason):
    inspector = inspect(small_model(construction).float())
    trace = inspector.trace(noise())
    for compute in (
        lambda: vitviz.logit_lens(inspector, trace, patches=True, target=0),
        lambda: attribution.lens_kind(inspector),
    ):
        with pytest.raises(VitvizError, match=f"not applicable, because .*{reason}"):
            compute()


class Scaled(VisionTransformer):
    """Logits divided by a temperature."""

    def forward(self, x):
        return 3 * super().forward(x)


class TwoDepths(VisionTransformer):
    """A classifier of the mean of the last two blocks' outputs."""

    def forward_features(self, x, **options):
        x = self.norm_pre(self._pos_embed(self.patch_embed(x)))
        outputs = [x := block(x) for block in self.blocks]
        return self.norm((outputs[-1] + outputs[-2]) / 2)


@pytest.mark.parametrize("kind", [Scaled, TwoDepths])
def test_model_with_other_logits_than_its_readout_is_rejected(kind):
    model = kind(img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3, num_classes=5).eval()
    inspector = vitviz.Inspector.of(perturbed(model), mean=0.5, std=0.5, crop_pct=1.0)
    image = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    trace = inspector.trace(image)
    for compute in (
        lambda: vitviz.logit_lens(inspector, trace),
        lambda: inspector.effects(image, 0),
        lambda: inspector.layer_effects(image, 1),
    ):
        with pytest.raises(VitvizError, match="its forward pass does more"):
            compute()


def test_model_without_head_supports_directions_only():
    inspector = inspect(small_model("class", num_classes=0).float())
    trace = inspector.trace(noise())
    for compute in (
        lambda: vitviz.logit_lens(inspector, trace),
        lambda: vitviz.logit_lens(inspector, trace, form="share"),
        lambda: vitviz.logit_attribution(inspector, trace, 0),
    ):
        with pytest.raises(VitvizError, match="has no classifier"):
            compute()
    direction = torch.randn(24)
    account = vitviz.logit_attribution(inspector, trace, direction)
    assert (
        account.logit == pytest.approx((inspector.readout(trace) @ direction).item(), abs=1e-5)
        and abs(account.gap) < 1e-5
    )
