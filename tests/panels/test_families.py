"""One architecture of each family, through every view; all of them on demand: python -m tests.families."""

import pytest

from tests.families import looked_into

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
}


@pytest.mark.parametrize("architecture", POSITIONS_DRAWN)
def test_every_view_is_drawn_or_says_why_not(architecture):
    found = looked_into(architecture)
    reasons = {view: reason for view, reason in found.items() if reason != "drawn"}
    assert set(reasons) == (set() if POSITIONS_DRAWN[architecture] else {"Positions"})
    for reason in reasons.values():
        assert reason.startswith(architecture) and "no learned table" in reason
