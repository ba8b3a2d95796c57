"""Saliency maps for every construction: frozen maps balance in every layer, gradients and patch removal are
correct.
"""

import threading

import pytest
import torch

from tests.engine.constructions import CONSTRUCTIONS, QUICK, small_model
from tests.engine.saliency_oracle import small_saliency_inputs
from tests.tiers import sweep
from vitviz.analyses.saliency import METHODS, saliency_map
from vitviz.engine import memory
from vitviz.engine.forward import capture, gradients
from vitviz.errors import OutOfMemory, Stopped, UnsupportedModel, VitvizError


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
@pytest.mark.parametrize("target", [2, (1, 4)])
def test_frozen_map_balances_in_every_layer(construction, target):
    inputs = small_saliency_inputs(construction, target)
    for at in ("pixels", "tokens", 1, 2, 3):
        result = saliency_map(inputs, "frozen", at)
        terms = result.map.abs().sum().item() + sum(map(abs, result.constants.values()))
        assert abs(result.unexplained) <= 1e-12 * max(1.0, terms), (at, result.unexplained)


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
def test_every_method_gives_map_or_reason(construction):
    inputs = small_saliency_inputs(construction)
    for name in METHODS:
        try:
            result = saliency_map(inputs, name)
        except UnsupportedModel as reason:
            assert "not applicable, because" in str(reason)
        else:
            assert result.map.shape == (3, 4) and bool(result.map.isfinite().all()), name


def test_pixel_gradients_equal_finite_differences():
    inputs = small_saliency_inputs("registers")
    generator = torch.Generator().manual_seed(3)
    direction = torch.randn(inputs.pixels.shape, generator=generator, dtype=torch.float64)
    step = 1e-5
    with torch.no_grad():
        slope = (
            inputs._score(inputs.pixels + step * direction) - inputs._score(inputs.pixels - step * direction)
        ).item() / (2 * step)
    pixels = inputs.pixels
    # the directional derivative is a sum of value times gradient times this ratio
    ratio = direction / pixels
    leaf = pixels.clone().requires_grad_()
    with gradients.gradient_pass(inputs.model, inputs.blocks, held=False):
        (pixel_gradient,) = torch.autograd.grad(inputs._score(leaf).sum(), leaf)
    assert (pixel_gradient * pixels * ratio).sum().item() == pytest.approx(slope, rel=1e-7)
    assert saliency_map(inputs, "input_gradient").map.sum().item() == pytest.approx(
        (pixel_gradient * pixels).sum().item(), rel=1e-12
    )


class ShiftedAttention(gradients.GradientPass):
    """A gradient pass with one entry of one layer's attention changed."""

    edit = (0, 0, 0, 0, 0.0)

    def _attend(self, query, key, value, **others):
        super()._attend(query, key, value, **others)
        layer, head, row, col, by = self.edit
        inside = 0 <= self._depth <= self._last
        attention = (self.attentions[self._depth] if inside else self.pooling)[-1].clone()
        if inside and self._depth == layer:
            attention[0, head, row, col] += by
        return attention @ value


@pytest.mark.parametrize("layer, head, row, col", [(0, 1, 3, 5), (1, 2, 0, 4), (2, 0, 0, 7)])
def test_attention_gradients_equal_finite_differences(monkeypatch, layer, head, row, col):
    inputs = small_saliency_inputs("class")
    entry_gradient = inputs.gradients().attentions[layer].gradient[head, row, col].item()
    scores = []
    for by in (1e-5, -1e-5):
        monkeypatch.setattr(ShiftedAttention, "edit", (layer, head, row, col, by))
        monkeypatch.setattr(gradients, "GradientPass", ShiftedAttention)
        with gradients.gradient_pass(inputs.model, inputs.blocks, held=False):
            scores.append(inputs._score(inputs.pixels).item())
    assert entry_gradient == pytest.approx((scores[0] - scores[1]) / 2e-5, rel=1e-5, abs=1e-9)


def test_grad_cam_is_blank_after_last_attention_and_exact_for_average():
    inputs = small_saliency_inputs("average, then norm")
    assert inputs.cam_place() == "the last block's output"
    slopes = inputs.gradients().slopes
    torch.testing.assert_close(slopes, slopes[:1].expand_as(slopes), rtol=0, atol=1e-14)
    torch.testing.assert_close(
        saliency_map(inputs, "grad_cam").map, saliency_map(inputs, "hires_cam").map.clamp(min=0)
    )
    with gradients.gradient_pass(
        (model := small_model("class")), capture.transformer_blocks(model), held=False
    ) as opened:
        score = model(inputs.pixels)[0, 2]
    (at_the_end,) = torch.autograd.grad(score, opened.tokens[-1])
    assert bool((at_the_end[:, 1:] == 0).all()) and bool((at_the_end[:, 0] != 0).any())


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
def test_dropped_patches_equal_masked_keys(construction):
    """Removing tokens and masking their keys in every layer give the same logits."""
    inputs = small_saliency_inputs(construction)
    kept = torch.tensor([[0, 3, 4, 7, 11], [1, 2, 5, 6, 9]])
    removal = inputs._removal
    dropped = None
    for masked in (False, True) if not removal._masked else (True,):
        removal._masked = masked
        removal_logits = removal.answers(kept)
        if dropped is not None:
            torch.testing.assert_close(removal_logits, dropped, rtol=0, atol=1e-11)
        dropped = removal_logits
    whole = removal.answers(torch.arange(12)[None])
    torch.testing.assert_close(whole[0], inputs.trace.logits, rtol=0, atol=1e-12)
    with torch.no_grad():
        assert not torch.allclose(removal_logits[0], whole[0])


def test_dropped_patches_equal_hand_computed_pass():
    """Tokens of a plain class-token model are dropped after the position embedding."""
    inputs = small_saliency_inputs("class")
    model, kept = inputs.model, [0, 3, 4, 7, 11]
    with torch.no_grad():
        x = model.patch_embed(inputs.pixels)
        x = torch.cat([model.cls_token, x], dim=1) + model.pos_embed
        x = x[:, [0, *(1 + patch for patch in kept)]]
        for block in model.blocks:
            x = block(x)
        expected = model.head(model.norm(x)[:, 0])
    torch.testing.assert_close(inputs.answers(torch.tensor([kept])), expected, rtol=0, atol=1e-12)


def test_painted_patches_equal_painted_image():
    inputs = small_saliency_inputs("class", patches_as="mean")
    kept = torch.tensor([[0, 5]])
    pixels = torch.zeros_like(inputs.pixels)
    pixels[..., :4, :4] = inputs.pixels[..., :4, :4]
    pixels[..., 4:8, 4:8] = inputs.pixels[..., 4:8, 4:8]
    with torch.no_grad():
        torch.testing.assert_close(inputs.answers(kept), inputs.model(pixels), rtol=0, atol=1e-12)
        black = small_saliency_inputs("class", patches_as="black")
        torch.testing.assert_close(
            black.answers(kept[:, :0]), inputs.model(torch.full_like(pixels, -1.0)), rtol=0, atol=1e-12
        )
    with pytest.raises(VitvizError, match="expected one of dropped, mean, blur, black"):
        small_saliency_inputs(patches_as="green").answers(kept)


def test_saliency_leaves_model_unchanged_and_threads_are_independent():
    model = small_model("class")
    requires_grad_before = [one.requires_grad for one in model.parameters()]
    expected = [
        saliency_map(small_saliency_inputs(target=target, model=model, seed=target), "frozen").map
        for target in (1, 2)
    ]
    found, errors = {}, []

    def compute_maps(target):
        try:
            for _ in range(5):
                one = small_saliency_inputs(target=target, model=model, seed=target)
                found[target] = saliency_map(one, "frozen").map
                saliency_map(one, "gradient_rollout")
        except Exception as error:  # noqa: BLE001, the test reports the error of a thread
            errors.append(error)

    threads = [threading.Thread(target=compute_maps, args=(target,)) for target in (1, 2)]
    [one.start() for one in threads], [one.join() for one in threads]
    assert not errors
    for target, one in zip((1, 2), expected, strict=True):
        torch.testing.assert_close(found[target], one, rtol=0, atol=1e-12)
    assert [one.requires_grad for one in model.parameters()] == requires_grad_before
    assert all(one.grad is None for one in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_second_image_does_not_reuse_gradients():
    """vit-explain kept lists between images."""
    model = small_model("class")
    small_saliency_inputs(model=model, seed=1).gradients()
    second = small_saliency_inputs(model=model, seed=2).gradients()
    fresh = small_saliency_inputs(seed=2).gradients()
    assert len(second.attentions) == 3
    torch.testing.assert_close(second.attentions[1].gradient, fresh.attentions[1].gradient)


def test_memory_is_checked_before_and_balance_after_pass(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(OutOfMemory, match="gradient of small's prediction at 13 tokens needs"):
        small_saliency_inputs().gradients()
    monkeypatch.undo()
    model = small_model("class")
    for block in model.blocks:
        block.mlp.act = torch.nn.Softplus()
    with pytest.raises(UnsupportedModel, match="the contributions sum to"):
        saliency_map(small_saliency_inputs(model=model), "frozen")


def test_saliency_can_be_cancelled():
    from vitviz.traces import cancellation

    inputs = small_saliency_inputs()
    with cancellation.when(lambda: True), pytest.raises(Stopped):
        inputs.gradients()
    with cancellation.when(lambda: True), pytest.raises(Stopped):
        inputs.answers(torch.arange(5)[None])


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
@pytest.mark.parametrize("patches_as", ["dropped", "black"])
def test_faithfulness_curves_end_at_full_and_empty_image(construction, patches_as):
    """Both ends of every curve are the scores of the full and of the empty image, for any map."""
    from vitviz.analyses.faithfulness.evaluation import evaluate_methods

    inputs = small_saliency_inputs(construction, patches_as=patches_as)
    result = evaluate_methods(
        inputs, ["ledger", "frozen", "chefer", "centre"], patches_as, shares=(0, 0.5, 1), draws=1
    )
    assert {"centre", "random"} <= set(result.curves) and result.sets >= 4
    empty = inputs.answers(torch.empty(1, 0, dtype=torch.long))[0, 2].item()
    for curves in result.curves.values():
        for side in (curves.most, curves.least):
            assert side["logit"][0].item() == pytest.approx(inputs.answer, abs=1e-9)
            assert side["logit"][-1].item() == pytest.approx(empty, abs=1e-9)
