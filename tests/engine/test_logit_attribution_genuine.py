"""Logit attribution of genuine DeiT-Tiny weights on a dog and a cat, against a float64 calculation and known
values.
"""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file

import vitviz
from tests.shared import shared_file
from vitviz import analyses
from vitviz.analyses.logit_account import check_balance
from vitviz.errors import UnsupportedModel
from vitviz.traces.samples import sample_image

DOG, CAT, HEADS = 243, 282, 3
WEIGHTS = "weights/deit_tiny_patch16_224.safetensors"


@pytest.fixture(scope="module")
def inspector():
    return vitviz.load(shared_file(WEIGHTS), architecture="deit_tiny_patch16_224", device="cpu")


@pytest.fixture(scope="module")
def trace(inspector):
    return inspector.trace(shared_file("data/both.png"))


def apply_norm(x, weight, bias):
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        x.var(-1, unbiased=False, keepdim=True) + 1e-6
    ) * weight + bias


def attribution_by_hand(x, target):
    """Return every contribution to the logit, from terms added to the residual stream one by one."""
    w = {name: value.double() for name, value in load_file(shared_file(WEIGHTS)).items()}
    written, start, layers, mlps, biases = {}, x[0].clone(), 12, [], []
    for layer in range(layers):
        p = f"blocks.{layer}."
        qkv = (
            apply_norm(x, w[p + "norm1.weight"], w[p + "norm1.bias"]) @ w[p + "attn.qkv.weight"].T
            + w[p + "attn.qkv.bias"]
        )
        q, k, v = qkv.reshape(197, 3, HEADS, 64).permute(1, 2, 0, 3)
        attention, z = (
            torch.softmax(q @ k.transpose(1, 2) / 8, dim=-1),
            torch.zeros(197, 192, dtype=torch.float64),
        )
        for head in range(HEADS):
            projection = w[p + "attn.proj.weight"][:, 64 * head : 64 * head + 64]
            written[layer, head] = attention[head, 0, :, None] * (v[head] @ projection.T)  # source x width
            z += attention[head] @ v[head] @ projection.T
        x = x + z + w[p + "attn.proj.bias"]
        hidden = (
            apply_norm(x, w[p + "norm2.weight"], w[p + "norm2.bias"]) @ w[p + "mlp.fc1.weight"].T
            + w[p + "mlp.fc1.bias"]
        )
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
        mlp = hidden @ w[p + "mlp.fc2.weight"].T + w[p + "mlp.fc2.bias"]
        x = x + mlp
        mlps.append(mlp[0]), biases.append(w[p + "attn.proj.bias"])
    deviation = torch.sqrt(x[0].var(unbiased=False) + 1e-6)
    row = w["head.weight"][target]

    def share(
        part,
    ):  # the norm's formula for the part: its mean subtracted, divided by the deviation of the whole
        return ((part - part.mean(-1, keepdim=True)) / deviation * w["norm.weight"]) @ row

    return {
        "start": share(start),
        "sources": torch.stack(
            [torch.stack([share(written[layer, head]) for head in range(HEADS)]) for layer in range(layers)]
        ),
        "projection_biases": torch.stack([share(bias) for bias in biases]),
        "mlps": torch.stack([share(mlp) for mlp in mlps]),
        "norm_bias": row @ w["norm.bias"],
        "head_bias": w["head.bias"][target],
        "logit": apply_norm(x[0], w["norm.weight"], w["norm.bias"]) @ row + w["head.bias"][target],
    }


@pytest.mark.parametrize("target", [DOG, CAT])
def test_every_contribution_equals_independent_calculation(inspector, trace, target):
    expected = attribution_by_hand(trace.tokens[0].double(), target)
    account = vitviz.logit_attribution(inspector, trace, target)
    for line, value in expected.items():
        torch.testing.assert_close(
            torch.as_tensor(getattr(account, line)).double(), value, atol=1e-5, rtol=1e-4
        )
    lines = sum(value.sum() for line, value in expected.items() if line != "logit")
    assert lines.item() == pytest.approx(expected["logit"].item(), abs=1e-12)
    assert abs(account.gap) < 1e-5 * account.logit and account.total == pytest.approx(account.logit, rel=1e-5)


def test_contributions_have_known_values(inspector, trace):
    account = vitviz.logit_attribution(inspector, trace, DOG)
    contributions = {
        "logit": account.logit, "start": account.start, "heads": account.heads.sum(),
        "patches": account.patches.sum(),
        "class token": account.sources[:, :, 0].sum(), "projection biases": account.projection_biases.sum(),
        "mlps": account.mlps.sum(), "norm bias": account.norm_bias, "head bias": account.head_bias,
    }  # fmt: skip
    expected = [8.1673, 3.0925, 7.6431, 10.6667, -3.0237, -0.5564, -1.9725, -0.0742, 0.0348]
    assert [float(value) for value in contributions.values()] == pytest.approx(expected, abs=6e-5)
    assert account.heads.sum(dim=1)[8:].tolist() == pytest.approx([1.57, 3.48, 2.02, 1.07], abs=0.01)
    assert divmod(int(account.heads.argmax()), HEADS) == (
        9,
        1,
    ) and account.heads.max().item() == pytest.approx(2.03, abs=0.01)


@pytest.mark.parametrize(
    "target, rows, cols", [(DOG, range(1, 5), range(5, 9)), ("tiger cat", range(8, 14), range(4, 13))]
)
def test_patch_map_peaks_on_target_animal(inspector, trace, target, rows, cols):
    patches = vitviz.logit_attribution(inspector, trace, target).patches
    row, col = divmod(int(patches.argmax()), 14)
    assert row in rows and col in cols
    inside = patches[rows.start : rows.stop, cols.start : cols.stop]
    assert inside.mean() > 2 * patches.mean()


def test_difference_attribution_is_dog_minus_cat(inspector, trace):
    dog, cat, between = (
        vitviz.logit_attribution(inspector, trace, target) for target in (DOG, CAT, (DOG, CAT))
    )
    torch.testing.assert_close(between.patches, dog.patches - cat.patches, atol=1e-5, rtol=0)
    assert between.logit == pytest.approx(dog.logit - cat.logit, abs=1e-5)
    relative = vitviz.logit_attribution(inspector, trace, DOG, relative=True)
    assert (
        relative.logit == pytest.approx(dog.logit - trace.logits.mean().item(), abs=1e-5)
        and abs(relative.gap) < 1e-4
    )


def test_changed_projection_fails_balance_check(inspector, trace):
    readout = inspector.tail()
    check_balance(analyses.logit_terms(trace, readout))
    spoiled = list(readout.layers)
    spoiled[7] = dataclasses.replace(spoiled[7], weight=spoiled[7].weight * 1.01)
    with pytest.raises(
        UnsupportedModel,
        match=r"contributions miss the model's logits by \d\.\de-\d\d of the largest .* tolerance is 1e-04",
    ):
        check_balance(analyses.logit_terms(trace, dataclasses.replace(readout, layers=tuple(spoiled))))


def test_swapped_contributions_fail_balance_check(inspector, trace):
    """An attention term and an MLP term with opposite errors keep the sum. The separate record of attention
    shows the error.
    """
    written = trace.written
    moved = dataclasses.replace(written, attention=written.attention + 1, mlps=written.mlps)
    moved.attention[3, 0, 0] += 5
    with pytest.raises(UnsupportedModel, match="Logit attribution is not available"):
        check_balance(analyses.logit_terms(dataclasses.replace(trace, written=moved), inspector.tail()))


def test_bfloat16_gap_is_reported_and_float32_copy_must_balance(trace):
    bf16_inspector = vitviz.load(
        shared_file(WEIGHTS), architecture="deit_tiny_patch16_224", device="cpu", dtype="bfloat16"
    )
    bf16_trace = bf16_inspector.trace(shared_file("data/both.png"))
    account = vitviz.logit_attribution(bf16_inspector, bf16_trace, DOG)
    assert bf16_trace.deviation.gap < 1e-6 and bf16_trace.deviation.logits == pytest.approx(
        (bf16_trace.logits - trace.logits).abs().max().item(), rel=1e-3
    )
    assert 1e-4 < abs(account.gap) < 4 * bf16_trace.deviation.logits
    worse = dataclasses.replace(bf16_trace, deviation=dataclasses.replace(bf16_trace.deviation, gap=1e-3))
    with pytest.raises(UnsupportedModel, match="even in float32, .* by 1.0e-03"):
        check_balance(analyses.logit_terms(worse, bf16_inspector.tail()))


def test_last_lens_layer_equals_logits(inspector, trace):
    now, share = vitviz.logit_lens(inspector, trace), vitviz.logit_lens(inspector, trace, form="share")
    assert now.shape == share.shape == (13, 1000)
    assert torch.equal(now[-1], trace.logits)
    torch.testing.assert_close(share[-1], trace.logits, atol=1e-4, rtol=0)
    account = vitviz.logit_attribution(inspector, trace, DOG)
    steps = account.heads.sum(dim=1) + account.projection_biases + account.mlps
    torch.testing.assert_close(share[1:, DOG] - share[:-1, DOG], steps.float(), atol=1e-4, rtol=0)
    assert share[0, DOG].item() == pytest.approx(
        account.start + account.norm_bias + account.head_bias, abs=1e-4
    )


def test_invalid_lens_and_attribution_arguments_are_rejected(inspector, trace):
    for arguments, message in [
        ({"form": "later"}, "form='later'"), ({"patches": True}, "pass target="),
        ({"target": 3}, "has all classes"),
    ]:  # fmt: skip
        with pytest.raises(vitviz.VitvizError, match=message):
            vitviz.logit_lens(inspector, trace, **arguments)
    assert vitviz.logit_attribution(inspector, trace, "golden retriever").logit == trace.logits[207].item()
    other_trace = inspector.trace(sample_image("coffee"))
    assert (
        vitviz.logit_attribution(inspector, other_trace, 0).logit == other_trace.logits[0].item()
    )  # no state is kept from the other image
