"""Ablated heads, MLPs, patches and layers, against an edited timm model and against identities."""

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import vitviz
from tests.engine.constructions import QUICK
from tests.engine.forward.ablation_oracle import (
    FAMILIES,
    head_and_mlp_outputs,
    inspector_of,
    logits_of_positions,
    pixels_of,
)
from tests.engine.forward.cases import HEADS, MLPS, TOLERANCES
from tests.engine.random_inspectors import noise
from tests.tiers import sweep
from vitviz import Ablation
from vitviz.engine.studies.perturbation import PerturbedLogits
from vitviz.errors import Stopped, UnsupportedModel, VitvizError
from vitviz.traces import cancellation
from vitviz.traces.trace import sequence_places

REMOVED = (0, 3, 4, 7, 11)


@pytest.fixture
def inspector():
    return inspector_of("class")


def same_trace(one, two) -> bool:
    pairs = [*zip(one.tokens, two.tokens, strict=True), (one.logits, two.logits)]
    pairs += [
        (getattr(a, n), getattr(b, n)) for a, b in zip(one.layers, two.layers, strict=True) for n in "qkv"
    ]
    return all(torch.equal(a, b) for a, b in pairs)


@sweep("family", FAMILIES, quick=QUICK)
def test_removed_patches_equal_masked_keys(family):
    inspector = inspector_of(family)
    trace = inspector.trace(noise(), ablation=Ablation(patches=REMOVED))
    grid = inspector.grid()
    assert trace.kept == tuple(patch for patch in range(12) if patch not in REMOVED) and trace.grid == grid
    assert {len(tokens) for tokens in trace.tokens} == {trace.length} == {grid.prefix + 7}
    expected = logits_of_positions(inspector.model, pixels_of(inspector), sequence_places(grid, trace.kept))
    assert_close(trace.logits, expected, **TOLERANCES)
    assert not torch.allclose(trace.logits, inspector.trace(noise()).logits, atol=1e-3)


@sweep("family", FAMILIES, quick=QUICK)
def test_logit_attribution_sums_to_logit_after_ablation(family):
    inspector = inspector_of(family)
    for without in (
        Ablation(heads=HEADS, mlps=MLPS),
        Ablation(heads=HEADS, heads_as="tokens"),
        Ablation(heads=HEADS, mlps=MLPS, patches=REMOVED, heads_as="zero"),
        Ablation(at=1, other="one"),
        Ablation(at=2, other="one", heads=HEADS, mlps=MLPS, heads_as="other"),
    ):
        trace = inspector.trace(noise(), ablation=without, other=noise(5))
        account = vitviz.logit_attribution(inspector, trace, 1)
        assert abs(account.gap) <= 1e-4 * trace.logits.abs().max()
        assert_close(account.sources.nansum(dim=-1).double(), account.heads, rtol=1e-4, atol=1e-4)
        assert account.patches.isnan().flatten().nonzero().flatten().tolist() == list(without.patches)
        if without.at == 2:
            assert not account.heads[:2].any() and not account.mlps[:2].any()


def test_ablating_last_layer_heads_equals_their_contributions(inspector):
    plain, model, target = inspector.trace(noise()), inspector.model, 4
    account = vitviz.logit_attribution(inspector, plain, target)
    held = head_and_mlp_outputs(model, pixels_of(inspector))[1][2]

    def logit(trace):
        x, before, norm = trace.tokens[-1][0].double(), plain.tokens[-1][0].double(), model.norm
        deviation = (before.var(correction=0) + norm.eps).sqrt()
        y = (x - x.mean()) / deviation * norm.weight.double() + norm.bias.double()
        return (model.head.weight[target].double() @ y + model.head.bias[target].double()).item()

    assert logit(plain) == pytest.approx(plain.logits[target].item(), abs=1e-5)
    for head in range(3):
        with inspector.hook("blocks.2.mlp", lambda tensor: held[None]):
            trace = inspector.trace(noise(), ablation=Ablation(heads=[(2, head)], heads_as="zero"))
        assert logit(plain) - logit(trace) == pytest.approx(account.heads[2, head].item(), abs=1e-5)


@pytest.mark.parametrize("family", ["class", "EVA-02", "relative positions", "attention pooling"])
def test_empty_ablation_changes_nothing_and_full_patching_everything(family):
    inspector = inspector_of(family)
    plain, other = inspector.trace(noise()), inspector.trace(noise(5))
    assert same_trace(inspector.trace(noise(), ablation=Ablation()), plain)
    every = {"heads": [(layer, head) for layer in range(3) for head in range(3)], "mlps": range(3)}
    assert same_trace(
        inspector.trace(noise(), ablation=Ablation(**every, heads_as="other", other="itself"), other=noise()),
        plain,
    )
    for layer in range(3):
        assert same_trace(
            inspector.trace(noise(), ablation=Ablation(at=layer, other="itself"), other=noise()), plain
        )
        patched = inspector.trace(noise(), ablation=Ablation(at=layer, other="one"), other=noise(5))
        assert torch.equal(patched.logits, other.logits) and not torch.equal(other.logits, plain.logits)
        assert torch.equal(patched.tokens[layer], other.tokens[layer])
    combined = Ablation(at=1, patches=REMOVED, other="one")
    expected = inspector.trace(noise(5), ablation=Ablation(patches=REMOVED))
    assert torch.equal(inspector.trace(noise(), ablation=combined, other=noise(5)).logits, expected.logits)


def test_painted_patches_appear_in_view_and_model_input(inspector):
    plain = inspector.trace(noise())
    image, area = plain.view.picture, np.zeros((12, 16), bool)
    area[:4, :4] = area[4:8, 12:] = True  # patches 0 and 7 of 3 x 4
    mean, std = (torch.tensor(getattr(inspector.preprocessing, name)).double() for name in ("mean", "std"))
    values = torch.from_numpy(image.copy()).double() / 255
    new = {
        "black": torch.zeros_like(values),
        "mean": mean.expand_as(values),
        "blur": blur_by_loops(values, 4.0),
    }
    for how, target in new.items():
        trace = inspector.trace(noise(), ablation=Ablation(patches=[0, 7], patches_as=how))
        shown = trace.view.picture
        assert (
            trace.kept is None and (shown[~area] == image[~area]).all() and (shown[area] != image[area]).any()
        )
        assert abs(255 * target.numpy()[area] - shown[area]).max() < 0.51, "shown in 8 bits"
        exact = torch.where(torch.from_numpy(area)[..., None], target, values)
        pixels = ((exact - mean) / std).permute(2, 0, 1)[None].float()
        with torch.no_grad():
            expected = inspector.model(pixels)[0]
        # the model reads the float image, not the 8-bit one on view
        assert_close(trace.logits, expected, **TOLERANCES)
        kept = torch.tensor([[patch for patch in range(12) if patch not in (0, 7)]])
        # a faithfulness test computes the same
        assert_close(PerturbedLogits(inspector, plain).kept(kept, how)[0], expected, **TOLERANCES)


def blur_by_loops(values, sigma):
    """Blur with a Gaussian cut off at two standard deviations, edges repeated, one axis after the other."""
    for axis in (0, 1):
        length, radius = values.shape[axis], min(int(2 * sigma), min(values.shape[:2]) - 1)
        weights = [math.exp(-0.5 * (offset / sigma) ** 2) for offset in range(-radius, radius + 1)]
        rows = [
            sum(
                weight * values.select(axis, min(max(at + offset, 0), length - 1))
                for weight, offset in zip(weights, range(-radius, radius + 1), strict=True)
            ) / sum(weights)
            for at in range(length)
        ]  # fmt: skip
        values = torch.stack(rows, dim=axis)
    return values


def test_concurrent_edits_are_independent_and_restore_model(inspector):
    ablations = [
        None,
        Ablation(heads=HEADS),
        Ablation(patches=REMOVED),
        Ablation(mlps=[0], heads_as="zero"),
        Ablation(at=1, other="coffee"),
    ]
    before = {name: value.clone() for name, value in inspector.model.state_dict().items()}

    def trace_number(number: int):
        return inspector.trace(noise(number % 3), ablation=ablations[number % 5])

    alone = [trace_number(number) for number in range(15)]
    with ThreadPoolExecutor(6) as threads:
        assert all(map(same_trace, threads.map(trace_number, range(15)), alone))
    with pytest.raises(ZeroDivisionError), inspector.hook("blocks.1.attn", lambda tensor: 1 / 0):
        inspector.trace(noise(), ablation=ablations[2])
    cancelled = []
    with (
        pytest.raises(Stopped),
        cancellation.when(lambda: bool(cancelled)),
        inspector.hook("blocks.0.attn", lambda tensor: cancelled.append(1)),
    ):
        inspector.trace(noise(), ablation=ablations[2])
    assert all(map(same_trace, map(trace_number, range(15)), alone))
    assert all(torch.equal(value, before[name]) for name, value in inspector.model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in inspector.model.modules())


def test_user_hooks_do_not_affect_cached_results(inspector):
    with inspector.hook("blocks.0.output", torch.zeros_like):
        inspector.trace(noise(), ablation=Ablation(heads=HEADS, patches=REMOVED))
    expected = inspector_of("class").trace(noise(), ablation=Ablation(heads=HEADS))
    assert same_trace(inspector.trace(noise(), ablation=Ablation(heads=HEADS)), expected)


def test_means_are_per_position_at_native_size_and_averaged_elsewhere(inspector):
    own, small = inspector.reference(), inspector.reference((8, 16))
    assert (
        own.by_place
        and not small.by_place
        and own.pictures == 4
        and "images that come with vitviz" in own.sentence
    )
    assert own.heads[0].shape == (3, 13, 8) and small.heads[0].shape == (3, 2, 8)
    heads = torch.stack(
        [
            head_and_mlp_outputs(inspector.model, pixels_of(inspector, vitviz.sample_image(sample.name)))[0][
                2
            ]
            for sample in vitviz.traces.samples.samples()
        ]
    )
    assert_close(own.heads[2], heads.mean(dim=0), **TOLERANCES)
    dropped = own.parts(8, dropped=True).heads[2]
    assert_close(dropped[0, :, 3], heads.mean(dim=0)[:, 1:].mean(dim=1), **TOLERANCES)
    assert_close(dropped[0, :, 0], heads.mean(dim=0)[:, 0], **TOLERANCES)
    for side in range(8, 41, 8):
        inspector.reference((side, side))
    assert len(inspector.forward.references._known) <= 3


def test_ablated_trace_survives_pickling_and_counts_its_memory(inspector):
    for without in (Ablation(patches=REMOVED, heads=HEADS), Ablation(heads=HEADS, heads_as="zero")):
        trace = inspector.trace(noise(), ablation=without)
        restored = pickle.loads(pickle.dumps(trace))
        assert same_trace(restored, trace) and restored.kept == trace.kept and restored.without == without
        assert torch.equal(restored.layers[2].given, trace.layers[2].given) and restored.layers[
            2
        ].replaced == (0, 2)
    plain = inspector.trace(noise())
    replaced = inspector.trace(noise(), ablation=Ablation(heads=HEADS))
    assert replaced.nbytes == plain.nbytes + 3 * 13 * 8 * 4  # three heads, 13 tokens, 8 numbers of 4 bytes


class TokenMixingMlp(torch.nn.Module):
    """An MLP that also reads the neighbouring token."""

    def __init__(self, mlp):
        super().__init__()
        self.mlp = mlp

    def forward(self, x):
        return self.mlp(x + x.roll(1, dims=1))


def test_removing_patches_is_rejected_if_mlp_mixes_tokens(inspector):
    inspector.model.blocks[1].mlp = TokenMixingMlp(inspector.model.blocks[1].mlp)
    with pytest.raises(UnsupportedModel, match="removing patches is not applicable"):
        inspector.trace(noise(), ablation=Ablation(patches=[5]))
    assert inspector.trace(noise(), ablation=Ablation(patches=[5], patches_as="mean")).kept is None


@pytest.mark.parametrize(
    "without, message",
    [
        (Ablation(heads=[(3, 0)]), "layers 0 to 2"),
        (Ablation(heads=[(0, 3)]), "heads 0 to 2"),
        (Ablation(mlps=[3]), "MLP of layer 3"),
        (Ablation(at=3, other="coffee"), "layers 0 to 2"),
        (Ablation(patches=[12]), "patches 0 to 11"),
        (Ablation(patches=range(12)), "at least one"),
        (Ablation(at=1, other="/etc/passwd"), "Pass it"),
    ],
)
def test_invalid_ablation_is_rejected(inspector, without, message):
    with pytest.raises(VitvizError, match=message):
        inspector.trace(noise(), ablation=without)
