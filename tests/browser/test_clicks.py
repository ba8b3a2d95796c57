"""A click moves nothing: what is pointed at stays where it is."""

import pytest

from tests.browser.conftest import ready, visit_views
from vitviz.views import VIEWS

# Where all drawings of a view in view stand, the words of their scales aside.
PLACES = """(slug) => [...document.querySelectorAll(`#vitviz-${slug} :is(canvas, .vv-chart)`)]
  .filter((node) => node.getClientRects().length && !node.closest('.vv-bar, .vv-aside'))
  .map((node) => {
    const { x, y, width, height } = node.getBoundingClientRect();
    return [x, y, width, height].map(Math.round);
  })"""


named = {view.slug: view for view in VIEWS}
UNDER = {720: 660, 900: 840}  # px from the top where the film's timeline begins


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1440, 900)])
def test_no_click_moves_a_drawing(open_page, width, height):
    page = open_page("", width, height)
    clicked = ("explorer", "tokens", "rollout", "positions", "patches", "trial", "evidence")
    for view in (view.slug for view in visit_views(page, [named[slug] for slug in clicked])):
        if view == "trial":
            page.locator("#vitviz-trial [data-tried]:not([data-tried=''])").wait_for(
                state="attached", timeout=300_000
            )
        page.wait_for_timeout(500)
        before = page.evaluate(PLACES, view)
        # in view, whole
        seen = {(x, y, wide, tall) for x, y, wide, tall in before if y + tall <= UNDER[height]}
        assert seen, view
        alike: dict[
            tuple, list
        ] = {}  # tiles of one size are drawn in one way: the first and the last are clicked
        for place in sorted(seen):
            alike.setdefault(place[2:], []).append(place)
        for x, y, wide, tall in sorted({one for some in alike.values() for one in (some[0], some[-1])}):
            for along, down in ((0.3, 0.3), (0.62, 0.7), (0.62, 0.7)):  # another; once more lets it go
                page.mouse.click(x + along * wide, y + down * tall)
                page.wait_for_timeout(350)
                assert page.evaluate(PLACES, view) == before, f"{view}: at {along}, {down} of {x}, {y}"
    page.mouse.click(before[0][0] + 20, before[0][1] + 20)
    page.locator("#vitviz-evidence .vv-away").click()
    page.locator("#vitviz-edits .vv-edit").first.wait_for()
    page.wait_for_timeout(500)
    ready(page, "evidence")
    lines = page.locator("#vitviz-evidence .vv-lines")
    assert lines.is_visible() and "patches" in lines.inner_text()  # and the net has seen no NaN


@pytest.mark.parametrize("width", [390, 1024])
def test_what_is_told_beside_the_pointer_stays_within_the_window(open_page, width):
    page = open_page("?tab=patches", width, 844, wait=False)
    ready(page, "patches")
    figure = page.locator("#vitviz-patches .vv-figure canvas").first.bounding_box()
    for along in (0.15, 0.5, 0.58, 0.95):
        page.mouse.move(figure["x"] + along * figure["width"], figure["y"] + 0.5 * figure["height"])
        box = page.locator(".vv-tip.vv-on").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width


def test_a_click_picks_what_is_pointed_at_between_two_pixels(open_page):
    """A click's place is a whole pixel, the pointer's is not: a tile's edge may lie between them."""
    page = open_page("?sample=coffee&tab=positions", 1280, 720, wait=False)
    ready(page, "positions")
    page.wait_for_timeout(500)
    figure = page.locator("#vitviz-positions .vv-figure canvas").first.bounding_box()
    title = page.locator("#vitviz-positions .vv-h")
    told = set()
    for step in range(90):
        x, y = figure["x"] + 0.3 * figure["width"] + 0.4 * step, figure["y"] + 0.41 * figure["height"]
        page.mouse.move(x, y)
        pointed = title.inner_text()
        page.mouse.click(x, y)
        assert title.inner_text() == pointed
        page.mouse.click(x, y)  # lets go
        told.add(pointed)
    assert len(told) == 2
