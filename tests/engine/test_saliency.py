"""Maps of every construction: the frozen map balances at every depth, gradients are the model's, removal is
absence.
"""

import threading

import pytest
import torch

from tests.engine.accounts import CONSTRUCTIONS, QUICK, small_model
from tests.engine.saliency_oracle import small_saliency_inputs
from tests.tiers import sweep
from vitviz.analyses.saliency import METHODS, saliency_map
from vitviz.engine import memory
from vitviz.engine.forward import capture, gradients
from vitviz.errors import OutOfMemory, Stopped, UnsupportedModel, VitvizError


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
@pytest.mark.parametrize("target", [2, (1, 4)])
def test_the_frozen_map_balances_at_every_depth(construction, target):
    one = small_saliency_inputs(construction, target)
    for at in ("pixels", "tokens", 1, 2, 3):
        found = saliency_map(one, "frozen", at)
        terms = found.map.abs().sum().item() + sum(map(abs, found.constants.values()))
        assert abs(found.unexplained) <= 1e-12 * max(1.0, terms), (at, found.unexplained)


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
def test_every_method_speaks_or_says_why_not(construction):
    one = small_saliency_inputs(construction)
    for name in METHODS:
        try:
            found = saliency_map(one, name)
        except UnsupportedModel as reason:
            assert "not applicable, because" in str(reason)
        else:
            assert found.map.shape == (3, 4) and bool(found.map.isfinite().all()), name


def test_pixels_gradients_are_finite_differences():
    one = small_saliency_inputs("registers")
    generator = torch.Generator().manual_seed(3)
    way = torch.randn(one.pixels.shape, generator=generator, dtype=torch.float64)
    step = 1e-5
    with torch.no_grad():
        slope = (one._score(one.pixels + step * way) - one._score(one.pixels - step * way)).item() / (
            2 * step
        )
    pixels = one.pixels
    ratio = way / pixels  # value times gradient, asked for along another way
    leaf = pixels.clone().requires_grad_()
    with gradients.gradient_pass(one.model, one.blocks, held=False):
        (own,) = torch.autograd.grad(one._score(leaf).sum(), leaf)
    assert (own * pixels * ratio).sum().item() == pytest.approx(slope, rel=1e-7)
    assert saliency_map(one, "input_gradient").map.sum().item() == pytest.approx(
        (own * pixels).sum().item(), rel=1e-12
    )


class Edited(gradients.GradientPass):
    """The same pass with one entry of one layer's attention moved."""

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
def test_attentions_gradients_are_finite_differences_in_their_own_layer(monkeypatch, layer, head, row, col):
    one = small_saliency_inputs("class")
    own = one.gradients().attentions[layer].gradient[head, row, col].item()
    scores = []
    for by in (1e-5, -1e-5):
        monkeypatch.setattr(Edited, "edit", (layer, head, row, col, by))
        monkeypatch.setattr(gradients, "GradientPass", Edited)
        with gradients.gradient_pass(one.model, one.blocks, held=False):
            scores.append(one._score(one.pixels).item())
    assert own == pytest.approx((scores[0] - scores[1]) / 2e-5, rel=1e-5, abs=1e-9)


def test_grad_cam_is_blank_behind_the_last_attention_and_exact_for_an_average():
    one = small_saliency_inputs("average, then norm")
    assert one.cam_place() == "the last block's output"
    slopes = one.gradients().slopes
    torch.testing.assert_close(slopes, slopes[:1].expand_as(slopes), rtol=0, atol=1e-14)
    torch.testing.assert_close(
        saliency_map(one, "grad_cam").map, saliency_map(one, "hires_cam").map.clamp(min=0)
    )
    with gradients.gradient_pass(
        (model := small_model("class")), capture.transformer_blocks(model), held=False
    ) as opened:
        score = model(one.pixels)[0, 2]
    (at_the_end,) = torch.autograd.grad(score, opened.tokens[-1])
    assert bool((at_the_end[:, 1:] == 0).all()) and bool((at_the_end[:, 0] != 0).any())


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
def test_dropped_is_masked(construction):
    """Leaving tokens out, and shutting their keys in every layer, are one answer."""
    one = small_saliency_inputs(construction)
    kept = torch.tensor([[0, 3, 4, 7, 11], [1, 2, 5, 6, 9]])
    removal = one._removal
    dropped = None
    for masked in (False, True) if not removal._masked else (True,):
        removal._masked = masked
        found = removal.answers(kept)
        if dropped is not None:
            torch.testing.assert_close(found, dropped, rtol=0, atol=1e-11)
        dropped = found
    whole = removal.answers(torch.arange(12)[None])
    torch.testing.assert_close(whole[0], one.trace.logits, rtol=0, atol=1e-12)
    if not removal._masked or construction:
        with torch.no_grad():
            assert not torch.allclose(found[0], whole[0])


def test_a_masked_key_is_one_whose_scores_are_minus_infinity():
    """By hand on a plain class-token model: tokens dropped after the position embedding."""
    one = small_saliency_inputs("class")
    model, kept = one.model, [0, 3, 4, 7, 11]
    with torch.no_grad():
        x = model.patch_embed(one.pixels)
        x = torch.cat([model.cls_token, x], dim=1) + model.pos_embed
        x = x[:, [0, *(1 + patch for patch in kept)]]
        for block in model.blocks:
            x = block(x)
        expected = model.head(model.norm(x)[:, 0])
    torch.testing.assert_close(one.answers(torch.tensor([kept])), expected, rtol=0, atol=1e-12)


def test_painted_patches():
    one = small_saliency_inputs("class", patches_as="mean")
    kept = torch.tensor([[0, 5]])
    pixels = torch.zeros_like(one.pixels)
    pixels[..., :4, :4] = one.pixels[..., :4, :4]
    pixels[..., 4:8, 4:8] = one.pixels[..., 4:8, 4:8]
    with torch.no_grad():
        torch.testing.assert_close(one.answers(kept), one.model(pixels), rtol=0, atol=1e-12)
        black = small_saliency_inputs("class", patches_as="black")
        torch.testing.assert_close(
            black.answers(kept[:, :0]), one.model(torch.full_like(pixels, -1.0)), rtol=0, atol=1e-12
        )
    with pytest.raises(VitvizError, match="expected one of dropped, mean, blur, black"):
        small_saliency_inputs(patches_as="green").answers(kept)


def test_nothing_stays_on_the_model_and_threads_do_not_meet():
    model = small_model("class")
    wishes = [one.requires_grad for one in model.parameters()]
    expected = [
        saliency_map(small_saliency_inputs(target=target, model=model, seed=target), "frozen").map
        for target in (1, 2)
    ]
    found, errors = {}, []

    def look(target):
        try:
            for _ in range(5):
                one = small_saliency_inputs(target=target, model=model, seed=target)
                found[target] = saliency_map(one, "frozen").map
                saliency_map(one, "gradient_rollout")
        except Exception as error:  # noqa: BLE001, a thread's error is told by the test
            errors.append(error)

    threads = [threading.Thread(target=look, args=(target,)) for target in (1, 2)]
    [one.start() for one in threads], [one.join() for one in threads]
    assert not errors
    for target, one in zip((1, 2), expected, strict=True):
        torch.testing.assert_close(found[target], one, rtol=0, atol=1e-12)
    assert [one.requires_grad for one in model.parameters()] == wishes
    assert all(one.grad is None for one in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_second_picture_is_looked_at_alone():
    """vit-explain kept lists between pictures."""
    model = small_model("class")
    small_saliency_inputs(model=model, seed=1).gradients()
    again = small_saliency_inputs(model=model, seed=2).gradients()
    fresh = small_saliency_inputs(seed=2).gradients()
    assert len(again.attentions) == 3
    torch.testing.assert_close(again.attentions[1].gradient, fresh.attentions[1].gradient)


def test_too_much_is_refused_before_and_what_does_not_balance_after(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(OutOfMemory, match="gradient of small's answer at 13 tokens needs"):
        small_saliency_inputs().gradients()
    monkeypatch.undo()
    model = small_model("class")
    for block in model.blocks:
        block.mlp.act = torch.nn.Softplus()
    with pytest.raises(UnsupportedModel, match="its parts add up to"):
        saliency_map(small_saliency_inputs(model=model), "frozen")


def test_it_stops_where_nobody_waits():
    from vitviz.traces import cancellation

    one = small_saliency_inputs()
    with cancellation.when(lambda: True), pytest.raises(Stopped):
        one.gradients()
    with cancellation.when(lambda: True), pytest.raises(Stopped):
        one.answers(torch.arange(5)[None])


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
@pytest.mark.parametrize("patches_as", ["dropped", "black"])
def test_every_construction_stands_a_trial(construction, patches_as):
    """Both ends of every curve are the whole picture's and the empty one's scores, whatever the map."""
    from vitviz.analyses.faithfulness.evaluation import evaluate_methods

    one = small_saliency_inputs(construction, patches_as=patches_as)
    found = evaluate_methods(
        one, ["ledger", "frozen", "chefer", "centre"], patches_as, shares=(0, 0.5, 1), draws=1
    )
    assert {"centre", "random"} <= set(found.curves) and found.sets >= 4
    empty = one.answers(torch.empty(1, 0, dtype=torch.long))[0, 2].item()
    for curves in found.curves.values():
        for side in (curves.most, curves.least):
            assert side["logit"][0].item() == pytest.approx(one.answer, abs=1e-9)
            assert side["logit"][-1].item() == pytest.approx(empty, abs=1e-9)
