"""One architecture of each family, through every view; all of them on demand: python -m tests.families."""

import pytest

from tests.families import FAMILIES, TEXT, family, looked_into

POSITIONS_DRAWN = {
    "vit_tiny_patch16_224": True,
    "deit_tiny_distilled_patch16_224": True,
    "vit_small_patch14_reg4_dinov2": True,
    "vit_small_patch16_dinov3": False,
    "vit_relpos_small_patch16_224": False,
    "beit_base_patch16_224": False,
    "eva02_tiny_patch14_224": True,
    "vit_small_patch16_rope_224": False,
    "vit_base_patch16_siglip_224": True,
    "vit_tiny_r_s16_p8_224": True,
    "naflexvit_base_patch16_parfac_gap": True,
    "deit3_small_patch16_224": True,
    "vit_xsmall_patch16_clip_224": True,
    "flexivit_small": True,
    "aimv2_large_patch14_224": True,
    "vit_pe_spatial_tiny_patch16_512": True,
    "vit_base_patch14_reg1_tipsv2": True,
    "vit_base_patch16_radio_v3": True,
    "vit_base_patch16_sapiens2": False,
    "vit_small_patch16_lingbot": False,
    "vit_intern300m_patch14_448": True,
    "vit_wee_patch16_reg1_gap_256": True,
}
NO_CLASSIFIER = {
    "vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3", "eva02_tiny_patch14_224",
    "vit_base_patch16_siglip_224", "aimv2_large_patch14_224",
    "vit_pe_spatial_tiny_patch16_512", "vit_base_patch14_reg1_tipsv2", "vit_base_patch16_radio_v3",
    "vit_base_patch16_sapiens2",
    "vit_small_patch16_lingbot", "vit_intern300m_patch14_448",
}  # fmt: skip
WITH_TEXT = {"vit_base_patch16_siglip_224", "vit_xsmall_patch16_clip_224"}
SMALLER = {"vit_base_patch16_sapiens2": (256, 192)}  # its own, 1024 x 768, takes a minute


def test_every_family_is_covered():
    assert {family(architecture) for architecture in POSITIONS_DRAWN} == {name for name, _ in FAMILIES}


@pytest.mark.sweep
@pytest.mark.parametrize("architecture", POSITIONS_DRAWN)
def test_every_view_is_drawn_or_states_reason(architecture):
    found = looked_into(architecture, SMALLER.get(architecture))
    reasons = {view: reason for view, reason in found.items() if reason != "drawn"}
    expected = {"Positions": "no learned table"} if not POSITIONS_DRAWN[architecture] else {}
    expected |= {} if architecture in WITH_TEXT else {TEXT: "no text tower"}
    if architecture in NO_CLASSIFIER:
        expected |= dict.fromkeys(("Attribution", "Faithfulness", "Perturbations"), "has no classifier")
    assert set(reasons) == set(expected)
    for view, reason in reasons.items():
        assert reason.startswith(architecture) and expected[view] in reason
