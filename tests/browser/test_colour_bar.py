"""The position of the mark on a colour bar."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import ready


@pytest.fixture(scope="module")
def coffee():
    return vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("coffee"))


def test_colour_bar_mark_matches_hovered_value(open_page, coffee):
    page = open_page("?sample=coffee&tab=tokens&show=norms&depth=6", wait=False)
    ready(page, "tokens")
    norms = coffee.tokens[6].norm(dim=-1)[1:].numpy()
    low, high = min(norms.min(), np.median(norms)), norms.max()
    box = page.locator("#vitviz-tokens canvas.vv-heat").first.bounding_box()
    for across, down in ((0.3, 0.4), (0.55, 0.6)):
        page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        tip = page.locator(".vv-tip.vv-on")
        expect(tip).to_contain_text("Patch")
        value = norms[int(re.search(r"Patch (\d+)", tip.inner_text())[1]) - 1]
        caret = page.locator("#vitviz-tokens .vv-bar-caret:not([hidden])").first
        assert caret.evaluate("(one) => parseFloat(one.style.left)") == pytest.approx(
            100 * (value - low) / (high - low), abs=0.5
        )
