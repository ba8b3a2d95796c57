"""The Attention view: pointer, touch and keyboard show the attention rows of the trace."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import open_more_settings, open_tab, ready
from tests.browser.helpers import patch_centre

VIEW = "[...window.vitviz.views].find((view) => view.name === 'explorer' && view.root.isConnected)"


@pytest.fixture(scope="module")
def trace():
    return vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("coffee"))


@pytest.fixture
def page(open_page):
    page = open_page("?sample=coffee")
    open_tab(page, "Attention")
    ready(page, "explorer")
    return page


def shown_weights(page) -> np.ndarray:
    """Return the weights behind the large map."""
    return np.asarray(page.evaluate(f"Array.from({VIEW}.ui.weights)"))


def wait_for_settings(page, **settings) -> None:
    """Wait until the figure is drawn with these settings."""
    for name, value in settings.items():
        page.wait_for_function(
            f"() => /[/&]{name}={value}(&|$)/.test(document.querySelector('#vitviz-explorer"
            " [data-ready]').dataset.ready)"
        )


def assert_close(values: np.ndarray, expected) -> None:
    """Check equality up to float16 precision of the largest weight."""
    expected = expected.numpy()
    assert np.abs(values - expected).max() <= 1e-3 * expected.max()


def test_hover_shows_attention_row_without_requests(page, trace):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    for patch in (3, trace.grid.cols + 1, trace.grid.patches - 1):
        page.mouse.move(*patch_centre(page, trace, patch))
        expect(page.locator("#vitviz-explorer .vv-h").first).to_contain_text(f"Patch {patch + 1} ")
        assert_close(shown_weights(page), trace.attention(0)[0, trace.grid.prefix + patch])
    assert requests == []


def test_attended_by_shows_the_attention_column(page, trace):
    open_more_settings(page, "explorer")
    page.get_by_text("is attended by").click()
    wait_for_settings(page, direction="column")
    page.mouse.move(*patch_centre(page, trace, 5))
    assert_close(shown_weights(page), trace.attention(0)[0, :, trace.grid.prefix + 5])
    assert not np.allclose(
        shown_weights(page), trace.attention(0)[0, trace.grid.prefix + 5].numpy(), atol=1e-3
    )


def test_class_token_chip_shows_weight_and_becomes_query(page, trace):
    chip = page.locator("#vitviz-explorer").get_by_role("button", name=re.compile("^Class"))
    page.mouse.move(*patch_centre(page, trace, 7))
    expect(chip).to_contain_text(f"{trace.attention(0)[0, trace.grid.prefix + 7, 0]:.3f}")
    chip.click()
    wait_for_settings(page, token=0)
    assert_close(shown_weights(page), trace.attention(0)[0, 0])


def test_keyboard_changes_patch_head_and_layer(page, trace):
    page.mouse.click(*patch_centre(page, trace, 9))
    wait_for_settings(page, token=trace.grid.prefix + 9)
    page.locator("#vitviz-explorer .vv-heat").first.focus()
    page.keyboard.press("]")
    wait_for_settings(page, head=2)
    page.keyboard.press("PageDown")
    wait_for_settings(page, layer=2)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    wait_for_settings(page, token=trace.grid.prefix + 10)
    assert_close(shown_weights(page), trace.attention(1)[1, trace.grid.prefix + 10])
    expect(page.locator("#vitviz-explorer .vv-live")).not_to_be_empty()


@pytest.mark.parametrize(
    "window, columns, next_layer, next_head",
    [((1440, 900), 4, "ArrowDown", "ArrowRight"), ((1440, 620), 8, "ArrowRight", "ArrowDown")],
    ids=["a row per layer", "a column per layer"],
)
def test_keyboard_on_head_wall_selects_layer_and_head(page, trace, window, columns, next_layer, next_head):
    page.set_viewport_size({"width": window[0], "height": window[1]})
    page.wait_for_function(f"() => {VIEW}.ui.wallPlace.cols === {columns}")
    wall = page.locator('#vitviz-explorer canvas[aria-label^="All layers"]')
    wall.focus()
    for _ in range(3):
        page.keyboard.press(next_layer)
    page.keyboard.press(next_head)
    page.keyboard.press("Enter")
    wait_for_settings(page, layer=4, head=2)
    token = int(page.evaluate(f"{VIEW}.settings.token"))
    assert_close(shown_weights(page), trace.attention(3)[1, token])


def test_at_most_four_pins_have_distinct_colours(page, trace):
    for patch in (1, 2, 3, 4, 5):
        page.mouse.click(*patch_centre(page, trace, patch))
        wait_for_settings(page, token=trace.grid.prefix + patch)
        page.get_by_text("Pin this token").click()
        page.mouse.click(*patch_centre(page, trace, patch))  # clears the selection
    pins = page.locator("#vitviz-explorer .vv-pins figure")
    expect(pins).to_have_count(4)
    colours = pins.evaluate_all("(all) => all.map((one) => getComputedStyle(one).borderColor)")
    assert len(set(colours)) == 4
    pins.first.get_by_role("button").click()
    expect(pins).to_have_count(3)


def test_rollout_of_selected_patch_matches_python(page, trace):
    page.mouse.click(*patch_centre(page, trace, 9))
    page.locator("#vitviz-explorer [data-name=show] select").select_option("rollout")
    wait_for_settings(page, show="rollout", token=trace.grid.prefix + 9)
    expected = vitviz.rollout(trace, query=9).numpy().flatten()
    np.testing.assert_allclose(shown_weights(page)[trace.grid.prefix :], expected, rtol=1e-4)


def test_tap_selects_a_patch(browser, server, trace):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(server.url + "?sample=coffee&tab=explorer")
    ready(page, "explorer")
    page.touchscreen.tap(*patch_centre(page, trace, 6))
    wait_for_settings(page, token=trace.grid.prefix + 6)
    assert_close(shown_weights(page), trace.attention(0)[0, trace.grid.prefix + 6])
    context.close()


def test_heads_sorted_by_distance_start_with_nearest(page, trace):
    distances = vitviz.attention_distance(trace)
    order = [layer.argsort().tolist() for layer in distances]
    assert any(one != sorted(one) for one in order), "the heads are already sorted"
    open_more_settings(page, "explorer")
    page.locator("#vitviz-explorer").get_by_text("distance", exact=True).click()
    wait_for_settings(page, order="distance")
    assert page.evaluate(f"{VIEW}.ui.order") == order
    wall = page.locator('#vitviz-explorer canvas[aria-label^="All layers"]')
    wall.scroll_into_view_if_needed()
    for layer in (0, len(order) - 1):
        for place in (0, trace.layers[0].heads - 1):
            x, y, width, height = page.evaluate(f"{VIEW}.ui.wallPlace.slot({place}, {layer})")
            wall.click(position={"x": x + width / 2, "y": y + height / 2})
            wait_for_settings(page, layer=layer + 1, head=order[layer][place] + 1)


def test_score_explanation_is_requested_only_when_opened(page, trace):
    """A click selects the key, a second one the reference. The link contains both."""
    requests, start = [], trace.grid.prefix
    page.on(
        "request", lambda request: requests.append(request.url) if "/explorer/score" in request.url else None
    )
    page.mouse.click(*patch_centre(page, trace, 20))
    wait_for_settings(page, token=start + 20)
    assert requests == []
    page.get_by_role("button", name="Explain score").click()
    wait_for_settings(page, beside="score")
    page.mouse.click(*patch_centre(page, trace, 60))
    wait_for_settings(page, key=60, token=start + 20)
    page.get_by_role("button", name="Compared with").click()
    page.mouse.click(*patch_centre(page, trace, 137))
    wait_for_settings(page, key=60, against=137)
    layer = trace.layers[0]
    q, k = layer.q[0, start + 20].double(), layer.k[0].double()
    above = float(q @ (k[start + 60] - k[start + 137])) * layer.scale
    text = page.locator("#vitviz-explorer .vv-below").inner_text().replace("−", "-")
    assert f"The contributions sum to {above:+.2f}" in text and requests
    page.wait_for_function("() => location.search.includes('key=60&against=137')")
    page.mouse.click(*patch_centre(page, trace, 137))
    wait_for_settings(page, against="mean")
