"""The Filters view: the response of a filter in each patch of the image."""

import re

import numpy as np
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import ready
from tests.browser.helpers import patch_centre

VIEW = "[...window.vitviz.views].find((view) => view.name === 'filters' && view.root.isConnected)"


def test_filter_response_opens_and_closes_by_click_and_key(open_page):
    page = open_page("?sample=coffee&tab=filters", wait=False)
    ready(page, "filters")
    grid = page.locator("#vitviz-filters .vv-figure canvas").first
    response = page.locator("#vitviz-filters .vv-detail > .vv-centred")
    chart = page.locator("#vitviz-filters .vv-detail .vv-chart")
    expect(response).to_be_hidden()
    expect(chart).to_be_visible()
    grid.click(position={"x": 20, "y": 20})
    expect(response).to_be_visible()
    expect(chart).to_be_hidden()
    expect(response).to_contain_text("Response: sum of weight × normalised pixel, without the bias")
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    trace = inspector.trace(vitviz.sample_image("coffee"))
    first = vitviz.embedding_filters(inspector).pictures[:1]
    expected = vitviz.filter_responses(inspector, trace, first).numpy().ravel()
    np.testing.assert_allclose(page.evaluate(f"Array.from({VIEW}.data.response.values)"), expected, atol=1e-5)
    page.mouse.move(*patch_centre(page, trace, 100, "#vitviz-filters .vv-heat"))
    tip = page.locator(".vv-tip.vv-on")
    expect(tip).to_contain_text("Patch 101")
    shown = float(tip.locator("div").first.inner_text().replace("−", "-"))
    np.testing.assert_allclose(shown, expected[100], rtol=5e-3, atol=1e-3)
    expect(page).to_have_url(re.compile("component=1"))
    grid.click(position={"x": 20, "y": 20})
    expect(response).to_be_hidden()
    grid.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(response).to_be_visible()
    expect(page.locator("#vitviz-filters .vv-detail .vv-h").first).to_have_text("Component 2 of 28")
    page.keyboard.press("Escape")
    expect(response).to_be_hidden()
    expect(chart).to_be_visible()
