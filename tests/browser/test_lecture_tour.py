"""The tour in lecture mode: one slide per step, with large text."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ready
from tests.browser.helpers import RECORD_SMALL_TEXT, wait_for_step
from tests.views.helpers import NAMES as STEPS

# Texts and labels that are too small, and parts of a slide that are cut off, scroll or leave the window.
FAULTS = """([text, label]) => {
  const told = [];
  const seen = (node) => node.getClientRects().length && getComputedStyle(node).visibility !== 'hidden';
  const labels = '.vv-map, .vv-chart, .vv-striplabel, .vv-thumb, .vv-top, .vv-count, figcaption';
  const tour = document.querySelector('#vitviz-tour .vv-tour');
  for (const node of document.querySelectorAll('#vitviz-right *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !seen(node) || !node.closest('.vv, #vitviz-film, [role=tablist]')) continue;
    if (node.closest('.vv-live, sub, sup')) continue;
    const size = parseFloat(getComputedStyle(node).fontSize);
    const words = node.textContent.slice(0, 40);
    const least = node.closest(labels) ? label : text;
    if (size < least - 0.1) told.push(`${node.className} ${size} px: ${words}`);
    if (!tour.contains(node)) continue;
    const box = node.getBoundingClientRect();
    if (box.right > innerWidth + 1 || box.bottom > innerHeight + 1) told.push(`outside: ${words}`);
  }
  for (const node of [tour.parentNode, tour, ...tour.children]) {
    if (!seen(node)) continue;
    const over = [node.scrollHeight - node.clientHeight, node.scrollWidth - node.clientWidth];
    if (Math.max(...over) > 1) told.push(`${node.className} needs ${over} px more`);
  }
  const bottom = tour.parentNode.getBoundingClientRect().bottom + 1;
  for (const node of tour.children)
    if (seen(node) && node.getBoundingClientRect().bottom > bottom) told.push(`below: ${node.className}`);
  return told;
}"""


def slides(page):
    """Yield each step after it is reached by the arrow key and drawn, with its experiment."""
    for number, step in enumerate(STEPS):
        if number:
            page.keyboard.press("ArrowRight")
        wait_for_step(page, step)
        if step == "positions":
            page.wait_for_function(
                "() => document.querySelector('#vitviz-tour [data-experiment]').dataset.experiment"
            )
        page.wait_for_timeout(150)
        yield step


def open_lecture(open_page, width: int, height: int, **more):
    query = "".join(f"&{name}={value}" for name, value in more.items())
    page = open_page(f"?tab=tour&present=1{query}", width, height, wait=False)
    ready(page, "tour")
    return page


@pytest.mark.parametrize("language", ["en", "zh-CN", "ko"])
def test_each_step_fits_one_slide_with_large_text(open_page, language):
    page, faults = open_lecture(open_page, 1920, 1080, lang=language), []
    page.evaluate(RECORD_SMALL_TEXT)
    for step in slides(page):
        faults += [f"{step}: {fault}" for fault in page.evaluate(FAULTS, [24, 18])]
        faults += [
            f"{step}: drawn too small: {text}" for text in page.evaluate("() => window.small.splice(0)")
        ]
        figure = page.locator("#vitviz-tour .vv-tour-body").bounding_box()
        assert figure["width"] * figure["height"] > 0.35 * 1920 * 1080
    assert faults == [], "\n".join(faults)


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1440, 900)])
def test_slides_fit_smaller_screens(open_page, width, height):
    page, faults = open_lecture(open_page, width, height), []
    for step in slides(page):
        faults += [
            f"{step}: {fault}" for fault in page.evaluate(FAULTS, [24 * height / 1080, 18 * height / 1080])
        ]
    assert faults == [], "\n".join(faults)


def test_slide_hides_buttons_and_side_content(open_page):
    page = open_lecture(open_page, 1920, 1080, step=7)
    tour = page.locator("#vitviz-tour")
    for part in (".vv-back", ".vv-next", ".vv-on", ".vv-fold", ".vv-foot", ".vv-tour-body [data-slide=no]"):
        expect(tour.locator(part).first).to_be_hidden()
    expect(page.locator("#vitviz-tab-tour .vitviz-lead").first).to_be_hidden()
    expect(tour.locator(".vv-count")).to_have_text("Step 7 of 13")
    expect(tour.locator(".vv-map [aria-current=step]")).to_be_visible()
    before = tour.locator(".vv-tour-body .vv-plot").first.bounding_box()["width"]
    page.keyboard.press("f")
    expect(tour.locator(".vv-next")).to_be_visible()
    expect(tour.locator(".vv-tour-body [data-slide=no]").first).to_be_visible()
    page.keyboard.press("f")
    expect(tour.locator(".vv-next")).to_be_hidden()
    page.wait_for_timeout(200)
    assert tour.locator(".vv-tour-body .vv-plot").first.bounding_box()["width"] == before


def test_arrow_keys_leave_and_reenter_the_tour(open_page):
    page = open_lecture(open_page, 1920, 1080, step=13)
    wait_for_step(page, STEPS[-1])
    page.keyboard.press("ArrowLeft")
    wait_for_step(page, STEPS[-2])
    page.keyboard.press("ArrowRight")
    wait_for_step(page, STEPS[-1])
    page.keyboard.press("ArrowRight")
    ready(page, "patches")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#vitviz-tour .vv-tour")).to_be_visible()
