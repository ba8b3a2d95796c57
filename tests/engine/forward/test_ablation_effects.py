"""Effects of all heads and MLPs, one ablation each: equal to single ablations, with progress and
cancellation.
"""

import pytest
import torch
from torch.testing import assert_close

import vitviz
from tests.engine.forward.ablation_oracle import inspector_of
from tests.engine.random_inspectors import noise
from tests.shared import shared_file
from tests.tiers import sweep
from vitviz import Ablation, analyses
from vitviz.errors import Stopped, VitvizError
from vitviz.traces import cancellation


@pytest.mark.parametrize("how", ["mean", "tokens", "zero", "other"])
@sweep(
    "family",
    ["class", "EVA-02", "BEiT", "relative positions", "parallel, averaged", "attention pooling"],
    quick=["class"],
)
def test_effects_equal_single_ablations(family, how):
    inspector, other = inspector_of(family), "one" if how == "other" else None
    plain = inspector.trace(noise()).logits
    all_effects = inspector.effects(noise(), (2, 4), heads_as=how, other=noise(5), batch=3)
    assert all_effects.logit == pytest.approx((plain[2] - plain[4]).item(), abs=1e-5)

    def alone(**removed):
        logits = inspector.trace(
            noise(), ablation=Ablation(**removed, heads_as=how, other=other), other=noise(5)
        ).logits
        return all_effects.logit - (logits[2] - logits[4]).item()

    heads = torch.tensor([[alone(heads=[(layer, head)]) for head in range(3)] for layer in range(3)])
    assert_close(all_effects.heads, heads, rtol=1e-4, atol=1e-5)
    assert_close(
        all_effects.mlps, torch.tensor([alone(mlps=[layer]) for layer in range(3)]), rtol=1e-4, atol=1e-5
    )
    assert ("images that come with vitviz" in all_effects.reference) == (how == "mean")


def test_effects_report_progress_and_can_be_stopped():
    inspector, reports = inspector_of("class"), []
    whole = inspector.effects(noise(), 1, progress=lambda done, of: reports.append((done, of)))
    assert reports == [(4, 12), (8, 12), (12, 12)] and whole.heads.isfinite().all()
    part = inspector.effects(noise(), 1, progress=lambda done, of: False)
    assert (
        part.heads[2].isfinite().all()
        and part.heads[:2].isnan().all()
        and torch.equal(part.heads[2], whole.heads[2])
    )
    cancelled = []
    with pytest.raises(Stopped), cancellation.when(lambda: bool(cancelled)):
        inspector.effects(noise(), 1, progress=lambda done, of: cancelled.append(1))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in inspector.model.modules())


@pytest.mark.parametrize("family", ["class", "parallel, averaged", "attention pooling"])
def test_layer_effects_equal_effects_per_class(family):
    inspector = inspector_of(family)
    view = inspector.trace(noise()).view
    layers = [inspector.layer_effects(view, layer) for layer in range(3)]
    for target in (1, (2, 4)):
        all_effects = inspector.effects(view, target)
        first, *second = target if isinstance(target, tuple) else (target,)
        columns = torch.stack(
            [
                layer_effects[:, first] - sum(layer_effects[:, other] for other in second)
                for layer_effects in layers
            ]
        )
        assert_close(
            columns, torch.cat([all_effects.heads, all_effects.mlps[:, None]], dim=1), rtol=1e-4, atol=1e-6
        )
    without = inspector.trace(noise(), ablation=Ablation(heads=[(1, 2)])).logits
    assert_close(layers[1][2], inspector.trace(noise()).logits - without, rtol=1e-4, atol=1e-5)
    with pytest.raises(IndexError, match="has layers 0 to 2"):
        inspector.layer_effects(view, 3)


def test_user_hooks_do_not_apply_to_effects():
    inspector = inspector_of("class")
    expected = inspector.effects(noise(), 1)
    with inspector.hook("blocks.1.mlp", torch.zeros_like):
        assert torch.equal(inspector.effects(noise(), 1).heads, expected.heads)


def test_invalid_effects_arguments_are_rejected():
    inspector = inspector_of("class")
    for arguments in (
        {"target": 6},
        {"target": (1, 2, 3)},
        {"target": 1, "batch": 0},
        {"target": 1, "heads_as": "noise"},
        {"target": 1, "heads_as": "other"},
    ):
        with pytest.raises(VitvizError):
            inspector.effects(noise(), **arguments)


@pytest.mark.slow
def test_direct_contributions_and_effects_of_deit_tiny_agree():
    inspector = vitviz.load(
        str(shared_file("weights/deit_tiny_patch16_224.safetensors")),
        architecture="deit_tiny_patch16_224",
        device="cpu",
    )
    image = str(shared_file("data/both.png"))
    effects, account = (
        inspector.effects(image, 243),
        vitviz.logit_attribution(inspector, inspector.trace(image), 243),
    )
    agreement = analyses.agreement(effects, account)
    print(agreement)
    assert effects.logit == pytest.approx(8.1673, abs=1e-3) and 0 < agreement.heads < 1
