"""Heads, MLPs, patches and whole layers taken away: against timm's own model run in another way, and against
identities.
"""

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import vitviz
from tests.engine.accounts import QUICK
from tests.engine.forward.ablation_oracle import FAMILIES, handed, hidden, inspector_of, pixels_of
from tests.engine.forward.helpers import HEADS, MLPS, near
from tests.engine.looking import noise
from tests.tiers import sweep
from vitviz import Ablation
from vitviz.engine.forward.edits import places_of
from vitviz.engine.studies.perturbation import PerturbedLogits
from vitviz.errors import Stopped, UnsupportedModel, VitvizError
from vitviz.traces import cancellation

GONE = (0, 3, 4, 7, 11)


@pytest.fixture
def inspector():
    return inspector_of("class")


def same(one, two) -> bool:
    pairs = [*zip(one.tokens, two.tokens, strict=True), (one.logits, two.logits)]
    pairs += [
        (getattr(a, n), getattr(b, n)) for a, b in zip(one.layers, two.layers, strict=True) for n in "qkv"
    ]
    return all(torch.equal(a, b) for a, b in pairs)


@sweep("family", FAMILIES, quick=QUICK)
def test_patches_that_are_left_out_are_keys_that_nobody_sees(family):
    inspector = inspector_of(family)
    trace = inspector.trace(noise(), ablation=Ablation(patches=GONE))
    grid = inspector.grid()
    assert trace.kept == tuple(patch for patch in range(12) if patch not in GONE) and trace.grid == grid
    assert {len(tokens) for tokens in trace.tokens} == {trace.length} == {grid.prefix + 7}
    expected = hidden(inspector.model, pixels_of(inspector), places_of(grid, trace.kept))
    assert_close(trace.logits, expected, **near)
    assert not torch.allclose(trace.logits, inspector.trace(noise()).logits, atol=1e-3)


@sweep("family", FAMILIES, quick=QUICK)
def test_an_account_balances_whatever_was_taken_away(family):
    inspector = inspector_of(family)
    for without in (
        Ablation(heads=HEADS, mlps=MLPS),
        Ablation(heads=HEADS, heads_as="tokens"),
        Ablation(heads=HEADS, mlps=MLPS, patches=GONE, heads_as="zero"),
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


def test_the_last_blocks_heads_with_mlp_and_deviation_held_are_the_ledgers_lines(inspector):
    plain, model, target = inspector.trace(noise()), inspector.model, 4
    account = vitviz.logit_attribution(inspector, plain, target)
    held = handed(model, pixels_of(inspector))[1][2]

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
def test_nothing_changes_where_nothing_is_replaced_and_all_where_all_is(family):
    inspector = inspector_of(family)
    plain, other = inspector.trace(noise()), inspector.trace(noise(5))
    assert same(inspector.trace(noise(), ablation=Ablation()), plain)
    every = {"heads": [(layer, head) for layer in range(3) for head in range(3)], "mlps": range(3)}
    assert same(
        inspector.trace(noise(), ablation=Ablation(**every, heads_as="other", other="itself"), other=noise()),
        plain,
    )
    for layer in range(3):
        assert same(
            inspector.trace(noise(), ablation=Ablation(at=layer, other="itself"), other=noise()), plain
        )
        patched = inspector.trace(noise(), ablation=Ablation(at=layer, other="one"), other=noise(5))
        assert torch.equal(patched.logits, other.logits) and not torch.equal(other.logits, plain.logits)
        assert torch.equal(patched.tokens[layer], other.tokens[layer])
    both = Ablation(at=1, patches=GONE, other="one")
    expected = inspector.trace(noise(5), ablation=Ablation(patches=GONE))
    assert torch.equal(inspector.trace(noise(), ablation=both, other=noise(5)).logits, expected.logits)


def test_patches_are_painted_over_in_what_is_shown_and_in_what_the_model_gets(inspector):
    plain = inspector.trace(noise())
    picture, area = plain.view.picture, np.zeros((12, 16), bool)
    area[:4, :4] = area[4:8, 12:] = True  # patches 0 and 7 of 3 x 4
    mean, std = (torch.tensor(getattr(inspector.preprocessing, one)).double() for one in ("mean", "std"))
    values = torch.from_numpy(picture.copy()).double() / 255
    new = {"black": torch.zeros_like(values), "mean": mean.expand_as(values), "blur": by_loops(values, 4.0)}
    for how, wanted in new.items():
        trace = inspector.trace(noise(), ablation=Ablation(patches=[0, 7], patches_as=how))
        seen = trace.view.picture
        assert (
            trace.kept is None
            and (seen[~area] == picture[~area]).all()
            and (seen[area] != picture[area]).any()
        )
        assert abs(255 * wanted.numpy()[area] - seen[area]).max() < 0.51, "shown in 8 bits"
        exact = torch.where(torch.from_numpy(area)[..., None], wanted, values)
        pixels = ((exact - mean) / std).permute(2, 0, 1)[None].float()
        with torch.no_grad():
            answer = inspector.model(pixels)[0]
        assert_close(trace.logits, answer, **near)  # of the float picture, not of what is shown
        kept = torch.tensor([[one for one in range(12) if one not in (0, 7)]])
        # a trial asks the same
        assert_close(PerturbedLogits(inspector, plain).kept(kept, how)[0], answer, **near)


def by_loops(values, sigma):
    """A Gaussian of that deviation, cut off at two of them, edges repeated; one axis after the other."""
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


def test_edits_are_seen_by_nobody_else_and_leave_the_model_as_it_was(inspector):
    asked = [
        None,
        Ablation(heads=HEADS),
        Ablation(patches=GONE),
        Ablation(mlps=[0], heads_as="zero"),
        Ablation(at=1, other="coffee"),
    ]
    before = {name: value.clone() for name, value in inspector.model.state_dict().items()}

    def looked(number: int):
        return inspector.trace(noise(number % 3), ablation=asked[number % 5])

    alone = [looked(number) for number in range(15)]
    with ThreadPoolExecutor(6) as threads:
        assert all(map(same, threads.map(looked, range(15)), alone))
    with pytest.raises(ZeroDivisionError), inspector.hook("blocks.1.attn", lambda tensor: 1 / 0):
        inspector.trace(noise(), ablation=asked[2])
    gone = []
    with (
        pytest.raises(Stopped),
        cancellation.when(lambda: bool(gone)),
        inspector.hook("blocks.0.attn", lambda tensor: gone.append(1)),
    ):
        inspector.trace(noise(), ablation=asked[2])
    assert all(map(same, map(looked, range(15)), alone))
    assert all(torch.equal(value, before[name]) for name, value in inspector.model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in inspector.model.modules())


def test_hooks_of_users_reach_nothing_that_is_kept(inspector):
    with inspector.hook("blocks.0.output", torch.zeros_like):
        inspector.trace(noise(), ablation=Ablation(heads=HEADS, patches=GONE))
    expected = inspector_of("class").trace(noise(), ablation=Ablation(heads=HEADS))
    assert same(inspector.trace(noise(), ablation=Ablation(heads=HEADS)), expected)


def test_means_are_by_place_at_the_own_size_and_even_elsewhere(inspector):
    own, small = inspector.reference(), inspector.reference((8, 16))
    assert own.by_place and not small.by_place and own.pictures == 4 and "photographs" in own.sentence
    assert own.heads[0].shape == (3, 13, 8) and small.heads[0].shape == (3, 2, 8)
    heads = torch.stack(
        [
            handed(inspector.model, pixels_of(inspector, vitviz.sample_image(one.name)))[0][2]
            for one in vitviz.traces.samples.samples()
        ]
    )
    assert_close(own.heads[2], heads.mean(dim=0), **near)
    dropped = own.parts(8, dropped=True).heads[2]
    assert_close(dropped[0, :, 3], heads.mean(dim=0)[:, 1:].mean(dim=1), **near)
    assert_close(dropped[0, :, 0], heads.mean(dim=0)[:, 0], **near)
    for side in range(8, 41, 8):
        inspector.reference((side, side))
    assert len(inspector.forward.references._known) <= 3


def test_a_trace_can_be_kept_and_sent(inspector):
    for without in (Ablation(patches=GONE, heads=HEADS), Ablation(heads=HEADS, heads_as="zero")):
        trace = inspector.trace(noise(), ablation=without)
        sent = pickle.loads(pickle.dumps(trace))
        assert same(sent, trace) and sent.kept == trace.kept and sent.without == without
        assert torch.equal(sent.layers[2].given, trace.layers[2].given) and sent.layers[2].replaced == (0, 2)
    plain = inspector.trace(noise())
    replaced = inspector.trace(noise(), ablation=Ablation(heads=HEADS))
    assert replaced.nbytes == plain.nbytes + 3 * 13 * 8 * 4  # three heads, 13 tokens, 8 numbers of 4 bytes


class Rolled(torch.nn.Module):
    """An MLP that looks at its neighbour."""

    def __init__(self, mlp):
        super().__init__()
        self.mlp = mlp

    def forward(self, x):
        return self.mlp(x + x.roll(1, dims=1))


def test_a_model_that_mixes_tokens_by_more_than_attention_loses_no_patches(inspector):
    inspector.model.blocks[1].mlp = Rolled(inspector.model.blocks[1].mlp)
    with pytest.raises(UnsupportedModel, match="leaving patches out is not applicable"):
        inspector.trace(noise(), ablation=Ablation(patches=[5]))
    assert inspector.trace(noise(), ablation=Ablation(patches=[5], patches_as="mean")).kept is None


@pytest.mark.parametrize(
    "without, words",
    [
        (Ablation(heads=[(3, 0)]), "layers 0 to 2"),
        (Ablation(heads=[(0, 3)]), "heads 0 to 2"),
        (Ablation(mlps=[3]), "MLP of layer 3"),
        (Ablation(at=3, other="coffee"), "layers 0 to 2"),
        (Ablation(patches=[12]), "patches 0 to 11"),
        (Ablation(patches=range(12)), "at least one"),
        (Ablation(at=1, other="/etc/passwd"), "hand it in"),
    ],
)
def test_what_is_not_there_is_refused(inspector, without, words):
    with pytest.raises(VitvizError, match=words):
        inspector.trace(noise(), ablation=without)
