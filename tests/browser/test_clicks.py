"""Clicks cause no layout shift, tooltips stay in the window, and clicks hit the pointed tile."""

import pytest

from tests.browser.conftest import ready, visit_views
from vitviz.views import VIEWS

# Positions of all visible drawings of a view, without colour bars.
POSITIONS = """(slug) => [...document.querySelectorAll(`#vitviz-${slug} :is(canvas, .vv-chart)`)]
  .filter((node) => node.getClientRects().length && !node.closest('.vv-bar, .vv-aside'))
  .map((node) => {
    const { x, y, width, height } = node.getBoundingClientRect();
    return [x, y, width, height].map(Math.round);
  })"""


view_by_slug = {view.slug: view for view in VIEWS}
TIMELINE_TOP = {720: 660, 900: 840}  # px; top of the training slider by window height


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1440, 900)])
def test_clicks_do_not_move_drawings(open_page, width, height):
    page = open_page("", width, height)
    clicked = ("explorer", "tokens", "rollout", "positions", "patches", "trial", "evidence")
    for view in (view.slug for view in visit_views(page, [view_by_slug[slug] for slug in clicked])):
        if view == "trial":
            page.locator("#vitviz-trial [data-tried]:not([data-tried=''])").wait_for(
                state="attached", timeout=300_000
            )
        page.wait_for_timeout(500)
        before = page.evaluate(POSITIONS, view)
        # entirely visible drawings
        visible = {(x, y, wide, tall) for x, y, wide, tall in before if y + tall <= TIMELINE_TOP[height]}
        assert visible, view
        by_size: dict[tuple, list] = {}  # of the tiles of one size, the first and the last are clicked
        for place in sorted(visible):
            by_size.setdefault(place[2:], []).append(place)
        for x, y, wide, tall in sorted({one for some in by_size.values() for one in (some[0], some[-1])}):
            for along, down in (
                (0.3, 0.3),
                (0.62, 0.7),
                (0.62, 0.7),
            ):  # the repeated click clears the selection
                page.mouse.click(x + along * wide, y + down * tall)
                page.wait_for_timeout(350)
                assert page.evaluate(POSITIONS, view) == before, f"{view}: at {along}, {down} of {x}, {y}"
    page.mouse.click(before[0][0] + 20, before[0][1] + 20)
    page.locator("#vitviz-evidence .vv-away").click()
    page.locator("#vitviz-edits .vv-edit").first.wait_for()
    page.wait_for_timeout(500)
    ready(page, "evidence")
    lines = page.locator("#vitviz-evidence .vv-lines")
    assert lines.is_visible() and "patches" in lines.inner_text()  # open_page also checks for NaN


@pytest.mark.parametrize("width", [390, 1024])
def test_tooltip_stays_within_the_window(open_page, width):
    page = open_page("?tab=patches", width, 844, wait=False)
    ready(page, "patches")
    figure = page.locator("#vitviz-patches .vv-figure canvas").first.bounding_box()
    for along in (0.15, 0.5, 0.58, 0.95):
        page.mouse.move(figure["x"] + along * figure["width"], figure["y"] + 0.5 * figure["height"])
        box = page.locator(".vv-tip.vv-on").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width


def test_click_selects_the_hovered_tile_at_fractional_positions(open_page):
    """Clicks have integer coordinates, pointer moves do not. A tile edge may lie between them."""
    page = open_page("?sample=coffee&tab=positions", 1280, 720, wait=False)
    ready(page, "positions")
    page.wait_for_timeout(500)
    figure = page.locator("#vitviz-positions .vv-figure canvas").first.bounding_box()
    title = page.locator("#vitviz-positions .vv-h")
    titles = set()
    for step in range(90):
        x, y = figure["x"] + 0.3 * figure["width"] + 0.4 * step, figure["y"] + 0.41 * figure["height"]
        page.mouse.move(x, y)
        pointed = title.inner_text()
        page.mouse.click(x, y)
        assert title.inner_text() == pointed
        page.mouse.click(x, y)  # clears the selection
        titles.add(pointed)
    assert len(titles) == 2
