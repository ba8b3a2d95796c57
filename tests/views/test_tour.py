"""The tour's numbers are the trace's, and its words fit the model: what is not there is said, with the
reason.
"""

import math

import numpy as np
import pytest
import torch

import vitviz
from tests.engine.random_inspectors import noise, perturbed
from tests.engine.small_models import small_vit
from tests.views.helpers import TOUR, item, spoken, subject, unpacked
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.errors import Unknown, UnsupportedModel, WrongSetting
from vitviz.traces.runs import Ablation
from vitviz.views import ViewContext
from vitviz.views.routes import parse_settings


@pytest.fixture(scope="module")
def plain():
    return subject(small_vit())


def test_equations_contain_numbers_of_model(plain):
    said = spoken(plain)
    assert "4 × 4 = 16 patches of 8 × 8" in said["patches"] and "= 32·32 / 8^{2} = 16" in said["patches"]
    assert "8 · 8 · 3 = 192 numbers" in said["flatten"] and "ℝ^{192×128}" in said["embedding"]
    assert "1 + 16 = 17 tokens of 128 numbers" in said["token"]
    assert "(1)  z_{0} = [ x_{class}; x_{p}^{1}E; …; x_{p}^{N}E ] + E_{pos} ∈ ℝ^{17×128}" in said["positions"]
    assert "17 × 64 in each of 2 heads" in said["attention"] and "d = 64" in said["attention"]
    assert "(2)" in said["layers"] and "(3)" in said["layers"] and "128 → 512 → 128" in said["layers"]
    assert "(4)  y = LN(z_{2}^{0})" in said["readout"] and "128 × 7" in said["readout"]
    assert "no names" in said["probabilities"] and not any("ot applicable" in text for text in said.values())


def test_hybrid_model_has_no_pixel_filters():
    of = subject(perturbed("vit_tiny_r_s16_p8_224"))
    said = spoken(of)
    assert (
        TOUR.summary(of)["filters"] is False
        and "convolutional stem" in said["patches"]
        and "is not applicable" in said["flatten"]
        and "ℝ" not in said["embedding"]
    )
    with pytest.raises(Unknown, match="not embedded by one matrix"):
        item(of, "filter", number=0)


def test_filter_product_equals_embedding_entry(plain):
    assert TOUR.summary(plain)["filters"] is True
    weights = item(plain, "filter", number=5).astype(float)
    pixels = (
        plain.trace.view.picture[8:16, 0:8].astype(float) / 255 - 0.5
    ) / 0.5  # patch 5: second row, first column
    assert (pixels.flatten() @ weights[:-1] + weights[-1]) == pytest.approx(
        plain.trace.patch_embedding[4, 5].item(), abs=1e-4
    )
    embedded = item(plain, "embedded")
    np.testing.assert_array_equal(embedded, [plain.trace.patch_embedding, plain.trace.position_embedded])
    torch.testing.assert_close(
        torch.tensor(item(plain, "front")), plain.inspector.model.cls_token[0].detach()
    )


def six(value: float) -> float:
    """A number with the six digits that the page shows."""
    return float(f"{value:.6g}")


def test_attention_weight_is_reproducible_from_six_digits(plain):
    """As a student would: from q, k, the scale and the sum, each as the page shows it."""
    for layer, head, token in ((1, 1, 0), (2, 2, 9)):
        shown = unpacked(plain, "worked", layer=layer, head=head, token=token)
        keys = item(plain, "keys", layer=layer, head=head)
        real = plain.trace.attention(layer - 1)[head - 1, token]
        for j in range(17):
            product = sum(six(q) * six(k) for q, k in zip(shown["q"], keys[j], strict=True))
            assert product == pytest.approx(shown["products"][j], abs=1e-3)
            weight = math.exp(six(product) * shown["scale"] - shown["shift"]) / six(shown["total"])
            assert weight == pytest.approx(real[j].item(), rel=1e-3)
        assert sum(shown["powers"]) == pytest.approx(shown["total"]) and sum(
            shown["weights"]
        ) == pytest.approx(1)


def test_worked_prediction_matches_trace_probabilities(plain):
    found, logits = unpacked(plain, "answer"), plain.trace.logits.double()
    assert found["read"] == pytest.approx(plain.trace.tokens[-1][0].tolist(), rel=1e-6)
    for row, (name, probability) in zip(found["top"], plain.trace.top(5), strict=True):
        logit = sum(y * w for y, w in zip(found["y"], row["weights"], strict=True)) + row["bias"]
        assert row["name"] == name and row["probability"] == pytest.approx(probability, rel=1e-6)
        assert logit == pytest.approx(row["logit"], abs=1e-4)
        assert math.exp(row["logit"] - found["shift"]) / found["total"] == pytest.approx(
            probability, rel=1e-6
        )
    assert found["top"][0]["logit"] == pytest.approx(logits.max().item())


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_worked_sentence_scores_match_scoring(plain, score):
    vectors = torch.randn(7, len(plain.trace.logits), generator=torch.Generator().manual_seed(1))
    classes = vitviz.Classes([f"sentence {n}" for n in range(7)], vectors, score=score, scale=20.0)
    asked = plain.inspector.with_classes(classes)
    of = ViewContext(asked, asked.answered(plain.trace))
    cosines = torch.cosine_similarity(plain.trace.logits.double(), vectors.double())
    shares = (20 * cosines).sigmoid() if score == "sigmoid" else (20 * cosines).softmax(dim=0)
    found = unpacked(of, "answer")
    assert found["each"] == (score == "sigmoid") and "weights" not in found["top"][0]
    for row, share in zip(found["top"], shares.sort(descending=True).values.tolist(), strict=False):
        assert row["probability"] == pytest.approx(share, rel=1e-5)
        by_hand = 1 / (1 + row["power"]) if found["each"] else row["power"] / found["total"]
        assert by_hand == pytest.approx(share, rel=1e-5)
    before = dict(unpacked(of, "without")["before"])
    assert before == pytest.approx({row["name"]: row["probability"] for row in found["top"][: len(before)]})
    said = spoken(of)
    assert "7 sentences" in said["readout"] and "Head:" not in said["readout"]
    assert ("its own sigmoid" in said["probabilities"]) == (score == "sigmoid")


def test_two_classifier_heads_show_no_single_weights():
    found = unpacked(subject(small_vit("deit_tiny_distilled_patch16_224")), "answer")
    assert found["read"] is None and "weights" not in found["top"][0] and found["top"][0]["logit"]


def test_experiment_step_states_measured_numbers(plain):
    found = unpacked(plain, "experiment", seed=2)
    trace = plain.inspector.experiment(plain.trace.view, shuffle=2, positions=False)
    assert found["answers"]["both"]["top"] == [[name, pytest.approx(p)] for name, p in trace.top(3)]
    assert found["answers"]["original"]["top"] == [[name, pytest.approx(p)] for name, p in plain.trace.top(3)]
    assert found["without"]["largest"] < 1e-4 < 1e-2 < found["with"]["largest"] and found["answers"][
        "original"
    ]["likeness"] == pytest.approx(1)
    assert (
        sorted(found["order"]) == list(range(16))
        and found["order"] != unpacked(plain, "experiment", seed=3)["order"]
    )
    for seed in (0, 1000):
        with pytest.raises(
            WrongSetting, match=f"seed='?{seed}'? is not valid; expected a whole number from [01] to 999"
        ):
            item(plain, "experiment", seed=seed)


def test_tour_without_classifier_compares_embeddings():
    of = subject(perturbed("vit_base_patch16_siglip_224", depth=1, img_size=32))
    found = unpacked(of, "experiment", seed=1)
    assert found["answers"]["both"]["top"] == [] and found["answers"]["zeroed"]["likeness"] == pytest.approx(
        found["answers"]["both"]["likeness"], abs=1e-5
    )
    answer = unpacked(of, "answer")
    assert answer["classes"] == 0 and "top" not in answer and len(answer["y"]) == 768


def test_heads_and_norms_match_trace(plain):
    np.testing.assert_allclose(
        item(plain, "heads", layer=2, token=3), plain.trace.attention(1)[:, 3], atol=1e-6
    )
    lengths = {one.key: one.y for one in TOUR.chart(plain, {}).series}
    assert lengths["class"] == pytest.approx([tokens[0].norm().item() for tokens in plain.trace.tokens])
    assert lengths["patches (mean)"] == pytest.approx(
        [tokens[1:].norm(dim=-1).mean().item() for tokens in plain.trace.tokens], rel=1e-5
    )
    numbers = TOUR.numbers(
        plain,
        parse_settings(
            TOUR,
            {"layer": "2", "head": "2", "token": "3", "keys": "4", "number": "7", "step": "7"},
            plain.about,
        ),
    )
    np.testing.assert_allclose(numbers["attention_row"], plain.trace.attention(1)[1, 3], atol=1e-6)
    np.testing.assert_array_equal(numbers["logits"], plain.trace.logits)


def test_listed_terms_sum_to_logit(plain):
    found, trace = unpacked(plain, "sum"), plain.trace
    first = int(trace.logits.argmax())
    account = vitviz.logit_attribution(plain.inspector, trace, first)
    assert found["logit"] == pytest.approx(trace.logits[first].item())
    by_hand = sum(six(line["share"]) for line in found["lines"]) + six(found["rest"])
    assert by_hand == pytest.approx(found["logit"], abs=1e-4)
    shares = {(layer, head): account.heads[layer - 1, head - 1].item() for layer in (1, 2) for head in (1, 2)}
    expected = sorted(shares, key=lambda place: -shares[place])[:3]
    assert [(line["layer"], line["head"]) for line in found["lines"]] == expected
    assert [line["share"] for line in found["lines"]] == pytest.approx([shares[place] for place in expected])
    said = spoken(plain)
    assert "2 layers × 2 heads: 4 contributions" in said["sum"] and "1 of 4 heads" in said["without"]


def test_predictions_without_largest_head_match_ablated_pass(plain):
    found = unpacked(plain, "without")
    head = found["lines"][0]
    lost = Ablation(heads=[(head["layer"] - 1, head["head"] - 1)])
    trace = plain.inspector.trace(noise(), ablation=lost)
    first = int(plain.trace.logits.argmax())
    assert found["left"] == pytest.approx(trace.logits[first].item(), abs=1e-4)
    assert found["lost"] == pytest.approx(found["logit"] - found["left"], abs=1e-5)
    for said, real in ((found["before"], plain.trace.top(3)), (found["after"], trace.top(3))):
        assert [name for name, _ in said] == [name for name, _ in real]
        assert [share for _, share in said] == pytest.approx([share for _, share in real], abs=1e-5)
    edited = ViewContext(plain.inspector, trace)
    assert "before" not in unpacked(edited, "without") and unpacked(edited, "sum")["lines"]


def test_where_there_is_no_account_the_last_steps_say_so(monkeypatch):
    bare = subject(small_vit(num_classes=0))
    said = spoken(bare)
    assert "no classifier" in said["sum"] and "no classifier" in said["without"]
    assert unpacked(bare, "sum") == unpacked(bare, "without") == unpacked(bare, "path") == {}
    other = subject(small_vit())
    monkeypatch.setattr("vitviz.engine.studies.attribution.check_balance", lambda ledger: _refuse())
    said = spoken(other)
    assert "Attribution says why" in said["sum"] and unpacked(other, "without") == {}


def _refuse():
    raise UnsupportedModel("it does not add up")


def test_path_follows_writers_to_strongest_patch(plain):
    found, trace, model = unpacked(plain, "path"), plain.trace, plain.inspector.model
    first, head = int(trace.logits.argmax()), unpacked(plain, "sum")["lines"][0]
    layer, number = head["layer"] - 1, head["head"] - 1
    attention, block, kept = trace.layers[layer], model.blocks[layer], {}
    dim = attention.q.shape[-1]
    rows = slice((2 * attention.heads + number) * dim, (2 * attention.heads + number + 1) * dim)
    weights = (attention.q[number, 0] @ attention.k[number].T * attention.scale).softmax(dim=0)[:, None]
    listened = {"read": block.norm1, "last": model.norm}
    listened |= {f"mlp.{one + 1}": model.blocks[one].mlp for one in range(layer)}
    listened |= {f"heads.{one + 1}": model.blocks[one].attn.proj for one in range(layer)}
    handles = [
        one.register_forward_hook(lambda m, a, o, at=at: kept.update({at: (a[0][0], o[0])}))
        for at, one in listened.items()
    ]
    with torch.no_grad():
        model(plain.inspector.forward.pixels([input_from_view(trace.view, plain.inspector.preprocessing)]))
    for handle in handles:
        handle.remove()

    def normed(norm, read, part):  # its deviation held
        centred = part - part.mean(-1, keepdim=True)
        return centred / (read.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt() * norm.weight

    def shares(part):  # by token
        values = normed(block.norm1, kept["read"][0], part) @ block.attn.qkv.weight[rows].T
        wrote = weights * values @ block.attn.proj.weight[:, number * dim : number * dim + dim].T
        return normed(model.norm, kept["last"][0][:1], wrote) @ model.head.weight[first]

    with torch.no_grad():
        place = model.pos_embed[0]
        parts = {"embedding": shares(trace.tokens[0] - place), "positions": shares(place)}
        for one in range(layer):
            parts[f"mlp.{one + 1}"] = shares(kept[f"mlp.{one + 1}"][1])
            for other in range(attention.heads):
                some = slice(other * dim, other * dim + dim)
                project = model.blocks[one].attn.proj.weight[:, some].T
                parts[f"head.{one + 1}.{other + 1}"] = shares(kept[f"heads.{one + 1}"][0][:, some] @ project)
    writer = max(parts, key=lambda one: abs(parts[one].sum()))
    patches = parts[writer][1:]
    patch = int((patches * parts[writer].sum().sign()).argmax())
    assert found["settings"] == {"trail": f"{head['layer']}.{head['head']}", "writer": writer}
    expected = [head["share"], parts[writer].sum().item(), patches[patch].item()]
    assert [line["share"] for line in found["lines"]] == pytest.approx(expected, abs=1e-5)
    assert found["patch"] == patch and found["logit"] == pytest.approx(trace.logits[first].item(), abs=1e-4)
