"""Logit attribution against the models: contributions sum to the logit, and each equals the effect of its
removal.
"""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timm.layers import LayerNorm, RmsNorm

from tests.engine.constructions import (
    CONSTRUCTIONS,
    QUICK,
    batch_and_readout,
    pixels_for,
    small_model,
    trace_and_readout,
)
from tests.engine.frozen_statistics import FrozenStatistics
from tests.tiers import sweep
from vitviz import analyses
from vitviz.analyses.logit_account import largest_gap
from vitviz.errors import VitvizError

EXACT = 1e-11  # relative to the largest logit, in float64


def largest_logit(trace) -> float:
    return trace.logits.abs().max().item()


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
def test_contributions_sum_to_logit_for_every_construction(construction):
    model = small_model(construction)
    trace, readout = trace_and_readout(model, pixels_for(model))
    ledger = analyses.logit_terms(trace, readout)
    gap, within = largest_gap(ledger)
    assert max(gap, within) < EXACT * largest_logit(trace)
    account = analyses.attribution_of(ledger, 1)
    for line in (
        account.heads,
        account.mlps,
        account.projection_biases,
        account.norm_bias,
        account.head_bias,
        account.start,
    ):
        present = (
            torch.as_tensor(line).abs().max() > 1e-6
        )  # a contribution that is zero by mistake would not break the sum
        assert present or construction in ("no final norm", "RMSNorm, SwiGLU") and line is account.norm_bias
    torch.testing.assert_close(account.heads, account.sources.sum(dim=-1))
    torch.testing.assert_close(account.starts.sum().item(), account.start)


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
def test_contribution_equals_logit_change_with_frozen_statistics(construction):
    model = small_model(construction)
    pixels = pixels_for(model)
    trace, readout = trace_and_readout(model, pixels)
    held, tokens = FrozenStatistics(model, pixels), trace.grid.tokens
    torch.testing.assert_close(held.logits, trace.logits)
    for target in (0, 5):
        account = analyses.logit_attribution(trace, readout, target)
        for head in range(3):
            lost = (held.logits - held.logits_without(head))[target].item()
            assert account.heads[-1, head].item() == pytest.approx(lost, abs=EXACT * largest_logit(trace))
        for source in (0, tokens // 2, tokens - 1):
            lost = (held.logits - held.logits_without(1, source))[target].item()
            assert account.sources[-1, 1, source].item() == pytest.approx(
                lost, abs=EXACT * largest_logit(trace)
            )


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
def test_batch_attribution_equals_single_images_and_removals(construction):
    model = small_model(construction)
    pixels = torch.cat([pixels_for(model, seed) for seed in range(3)])
    batch, readout = batch_and_readout(model, pixels)
    together = analyses.attribution_of_predictions(analyses.logit_terms(batch, readout))
    for image, trace in enumerate(batch):
        target = int(trace.logits.argmax())
        alone = analyses.logit_attribution(trace, readout, target)
        pairs = [(vars(together), vars(alone))]
        pairs += [] if alone.pool is None else [(vars(together.pool), vars(alone.pool))]
        for batched, single in pairs:
            for name, value in single.items():
                if name not in ("pool", "norm") and value is not None:
                    found, value = (
                        torch.as_tensor(one, dtype=torch.float64) for one in (batched[name], value)
                    )
                    found = found[image] if found.ndim > value.ndim else found
                    near = {"rtol": 1e-12, "atol": 1e-12 * largest_logit(trace), "check_dtype": False}
                    torch.testing.assert_close(found, value, **near, msg=lambda why, of=name: f"{of}: {why}")
        assert together.gap[image].abs() < EXACT * largest_logit(trace)
        held = FrozenStatistics(model, pixels[image : image + 1])
        for head in range(3):
            lost = (held.logits - held.logits_without(head))[target].item()
            assert together.heads[image, -1, head].item() == pytest.approx(
                lost, abs=EXACT * largest_logit(trace)
            )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(1, 4), cols=st.integers(1, 5), heads=st.integers(1, 4), depth=st.integers(1, 4),
    registers=st.integers(0, 3),
    pool=st.sampled_from(["token", "avg", "map"]), class_token=st.booleans(),
    fc_norm=st.sampled_from([None, True, False]),
    norm=st.sampled_from([LayerNorm, RmsNorm]), inner=st.booleans(), scale=st.sampled_from([None, 0.1, 1.0]),
    include=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_contributions_sum_to_logit_for_any_shape(
    rows, cols, heads, depth, registers, pool, class_token, fc_norm, norm, inner, scale, include, seed
):
    model = small_model(
        "class", img_size=(4 * rows, 4 * cols), embed_dim=8 * heads, num_heads=heads, depth=depth,
        reg_tokens=registers, global_pool=pool,
        class_token=class_token or pool == "token", fc_norm=fc_norm, norm_layer=norm, scale_attn_norm=inner,
        init_values=scale, pool_include_prefix=include,
    )  # fmt: skip
    trace, readout = trace_and_readout(model, pixels_for(model, seed))
    gap, within = largest_gap(analyses.logit_terms(trace, readout))
    assert max(gap, within) < EXACT * max(1.0, largest_logit(trace))


@pytest.mark.parametrize(
    "construction", ["class", "norm, then average", "distilled", "attention pooling", "class and mean"]
)
def test_difference_relative_and_direction_attributions_sum_up(construction):
    model = small_model(construction)
    trace, readout = trace_and_readout(model, pixels_for(model))
    one, other = (analyses.logit_attribution(trace, readout, target) for target in (2, 4))
    between = analyses.logit_attribution(trace, readout, (2, 4))
    torch.testing.assert_close(between.sources, one.sources - other.sources)
    assert between.logit == pytest.approx((trace.logits[2] - trace.logits[4]).item()) and abs(
        between.gap
    ) < EXACT * largest_logit(trace)
    relative = analyses.logit_attribution(trace, readout, 2, relative=True)
    assert relative.logit == pytest.approx((trace.logits[2] - trace.logits.mean()).item()) and abs(
        relative.gap
    ) < EXACT * largest_logit(trace)
    mean = torch.stack([analyses.logit_attribution(trace, readout, target).mlps for target in range(6)]).mean(
        dim=0
    )
    torch.testing.assert_close(relative.mlps, one.mlps - mean)
    with torch.no_grad():
        features = model.forward_head(model.norm(trace.tokens[-1][None]), pre_logits=True)[0]
    direction = torch.randn(len(features), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    along = analyses.logit_attribution(trace, readout, direction)
    assert (
        along.logit == pytest.approx((features @ direction).item())
        and along.head_bias == 0
        and abs(along.gap) < 1e-10
    )


@pytest.mark.parametrize("construction", ["class", "norm, then average", "attention pooling"])
def test_permuted_patches_permute_their_contributions(construction):
    model = small_model(construction, no_embed_class=True)
    pixels, order = pixels_for(model), torch.randperm(12, generator=torch.Generator().manual_seed(1))
    before, _ = trace_and_readout(model, pixels)
    plain = analyses.logit_attribution(*trace_and_readout(model, pixels), 3).patches.flatten()
    patches = pixels.unfold(2, 4, 4).unfold(3, 4, 4).flatten(2, 3)[:, :, order].unflatten(2, (3, 4))
    with torch.no_grad():
        model.pos_embed.copy_(model.pos_embed[:, order])
    trace, readout = trace_and_readout(
        model, patches.transpose(3, 4).flatten(4).flatten(2, 3).reshape(1, 3, 12, 16)
    )
    torch.testing.assert_close(trace.logits, before.logits)
    torch.testing.assert_close(analyses.logit_attribution(trace, readout, 3).patches.flatten(), plain[order])


@sweep("construction", CONSTRUCTIONS, quick=QUICK)
@pytest.mark.parametrize("held", [True, False])
def test_change_of_logit_is_attributed(construction, held):
    model = small_model(construction)
    passes = [trace_and_readout(model, pixels_for(model, seed)) for seed in (1, 2)]
    before, after = (analyses.logit_attribution(*one, 1) for one in passes)
    change = after.minus(before, held)
    with torch.no_grad():  # two plain passes of the model
        first, second = (model(pixels_for(model, seed))[0, 1].item() for seed in (1, 2))
    assert change.logit == pytest.approx(second - first, abs=EXACT * largest_logit(passes[0][0]))
    assert abs(change.gap) < EXACT * largest_logit(passes[0][0])
    assert sum(row["logits"] for row in change.rows()) == pytest.approx(change.logit, abs=1e-9)
    torch.testing.assert_close(change.heads, change.sources.sum(dim=-1))
    assert change.norm == 0 or held
    if not held:
        torch.testing.assert_close(change.mlps, after.mlps - before.mlps)
        torch.testing.assert_close(change.patches, after.patches - before.patches)


def test_norm_contribution_equals_effect_of_changed_deviation():
    model = small_model("class")
    passes = [trace_and_readout(model, pixels_for(model, seed)) for seed in (1, 2)]
    change = analyses.logit_attribution(*passes[1], 1).minus(analyses.logit_attribution(*passes[0], 1))
    deviations, logits = [], []
    for trace, _ in passes:  # by hand: the class token centred, with its deviation apart
        token = [one - sum(trace.tokens[-1][0].tolist()) / 24 for one in trace.tokens[-1][0].tolist()]
        deviations.append((sum(one * one for one in token) / len(token) + model.norm.eps) ** 0.5)
        weights = (model.head.weight[1] * model.norm.weight).tolist()
        logits.append(sum(weight * one for weight, one in zip(weights, token, strict=True)))
    assert len(token) == 24
    expected = logits[1] / deviations[1] - logits[1] / deviations[0]
    assert change.norm == pytest.approx(expected, rel=1e-9) and abs(expected) > 1e-4
    rest = logits[1] / deviations[0] - logits[0] / deviations[0]
    assert change.total - change.norm == pytest.approx(rest, rel=1e-9)


def test_difference_of_other_shapes_is_rejected():
    one = analyses.logit_attribution(
        *trace_and_readout(small_model("class"), pixels_for(small_model("class"))), 1
    )
    deeper = small_model("class", depth=5)
    with pytest.raises(VitvizError, match="same shape"):
        analyses.logit_attribution(*trace_and_readout(deeper, pixels_for(deeper)), 1).minus(one)
