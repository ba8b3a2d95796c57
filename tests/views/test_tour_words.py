"""Tour texts for models that differ from the paper's, all known to translators."""

import json
import re

import pytest
import torch

from tests.engine.random_inspectors import perturbed
from tests.engine.small_models import SMALL, small_vit
from tests.views.helpers import TOUR, spoken, subject, unpacked
from vitviz.engine.formats.huggingface import ClassAndMeanReadout, ClassOnlyReadout
from vitviz.views.tour.steps import tour_texts


@pytest.fixture(scope="module")
def plain():
    return subject(small_vit())


def test_siglip_texts_mention_no_class_token_or_classifier():
    said = spoken(subject(perturbed("vit_base_patch16_siglip_224", depth=1, img_size=32)))
    assert (
        "Not applicable to this model, because it has no class token" in said["token"]
        and "attention pooling" in said["token"]
    )
    assert (
        "x_{class}" not in said["token"] + said["positions"]
        and "the class token" not in said["readout"]
        and "(4)" not in said["readout"]
    )
    assert (
        "no classifier" in said["readout"]
        and "Not applicable to this model, because this checkpoint has no classifier" in said["probabilities"]
    )


@pytest.mark.parametrize(
    "name, options, kind, adds",
    [
        ("vit_relpos_small_patch16_224", {}, "relative position bias", False),
        ("vit_small_patch16_dinov3", {"img_size": 32}, "rotary embedding", False),
        ("eva02_tiny_patch14_224", {}, "rotary embedding", True),
        ("vit_tiny_patch16_224", {"pos_embed": "none"}, "no information", False),
    ],
)
def test_other_position_encodings_are_not_called_a_table(name, options, kind, adds):
    of = subject(perturbed(name, depth=1, **options))
    said = spoken(of)["positions"]
    assert (
        kind in said
        and ("E_{pos}" in said) == adds
        and ("not applicable to this model, because it has no such table" in said) != adds
    )
    found = unpacked(of, "experiment", seed=1)
    assert set(found["answers"]) == {"original", "shuffled"} and found["without"] is None
    assert not TOUR.summary(of)["zeroable"]


def test_other_model_differences_are_stated():
    beit = spoken(subject(perturbed("beit_base_patch16_224", depth=1)))
    assert (
        "does not read it" in beit["token"]
        and "averaged" in beit["readout"]
        and "LayerScale" in beit["layers"]
        and "b_{ij}" in beit["attention"]
    )
    distilled = spoken(subject(small_vit("deit_tiny_distilled_patch16_224")))
    assert (
        "teacher" in distilled["token"]
        and "averaged" in distilled["readout"]
        and "(4)" not in distilled["readout"]
        and "x_{dist}" in distilled["token"]
    )
    registers = spoken(subject(small_vit("vit_small_patch14_reg4_dinov2", patch_size=8)))
    assert (
        "4 register tokens" in registers["token"]
        and "the patches alone" in registers["positions"]
        and "( x_{p}^{1}E" in registers["positions"]
    )
    clip = spoken(subject(perturbed("vit_base_patch32_clip_224", depth=1)))
    assert "LayerNorm follows before the first layer" in clip["positions"]
    post = spoken(subject(small_vit("vit_relpos_base_patch16_rpn_224", patch_size=8)))
    assert (
        "differ in detail" in post["layers"]
        and "(2)" not in post["layers"]
        and "only adds to it" not in post["layers"]
    )


def test_every_readout_has_its_own_text():
    largest = spoken(subject(small_vit(global_pool="max")))
    assert (
        "does not read it, though: it reads, in each dimension, the maximum" in largest["token"]
        and "each number of y is the largest" in largest["readout"]
    )
    everything = spoken(subject(small_vit(global_pool="avg", pool_include_prefix=True, reg_tokens=2)))
    assert "reads all tokens together" in everything["token"] and "ignores them" not in everything["token"]
    assert "all tokens are averaged" in everything["readout"]
    mapped = spoken(subject(small_vit(global_pool="map")))
    assert "attention pooling" in mapped["token"] and "mean over" not in mapped["token"]
    args = {
        name: SMALL[name]
        for name in ("img_size", "patch_size", "embed_dim", "depth", "num_heads", "num_classes")
    }
    both = ClassAndMeanReadout(**args)
    both.head = torch.nn.Linear(256, 7)
    of = subject(both.eval())
    said = spoken(of)["readout"]
    assert "side by side" in said and "y: 256" in said and "256 × 7" in said and "(4)" not in said
    answer = unpacked(of, "answer")
    assert answer["read"] is None and len(answer["y"]) == 256 and len(answer["top"][0]["weights"]) == 256
    alone = ClassOnlyReadout(**args)
    alone.head_dist = torch.nn.Identity()
    said = spoken(subject(alone.eval()))["readout"]
    assert (
        "only one row is read, that of the class token" in said
        and "128 × 7" in said
        and "wo heads" not in said
    )


def test_tour_texts_use_known_placeholders_and_no_html(plain):
    for step in TOUR.summary(plain)["steps"]:
        for text in (*step["said"], *step["shapes"], step["attempt"]):
            assert set(re.findall(r"\{(\w+)\}", text)) <= set(step["values"]) and "<" not in text
        for formula in step["formulas"]:
            assert "<" not in formula and formula.count("{") == formula.count("}")
    json.dumps(TOUR.summary(plain))


@pytest.mark.parametrize(
    "name, changes",
    [
        ("vit_tiny_patch16_224", {}),
        ("deit3_small_patch16_224", {}),
        ("vit_small_patch16_dinov3", {}),
        ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}),
    ],
)
def test_every_tour_text_is_translatable(name, changes):
    known = set(tour_texts())
    for step in TOUR.summary(subject(small_vit(name, **changes)))["steps"]:
        assert {step["title"], *step["said"], *step["shapes"], step["attempt"]} <= known
