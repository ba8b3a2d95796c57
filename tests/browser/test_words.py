"""The page's words: why and what to do above every figure, whole, and the definition one click away."""

from itertools import product

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ready
from vitviz.server.i18n import translate
from vitviz.views import VIEWS

WINDOWS = [(1280, 720, ""), (1440, 900, ""), (390, 844, ""), (1280, 720, "&present=1")]

# Of each line above the figure in view: its text, how many lines it takes, and what of it is cut.
LINES = """(slug) => {
  document.getElementById(`vitviz-tab-${slug}-button`)?.click();
  return new Promise((done) => setTimeout(() => {
    const lines = [...document.querySelectorAll(`#vitviz-tab-${slug} .vitviz-lead p`)];
    done(lines.map((line) => {
      const own = line.getBoundingClientRect();
      let hidden = Math.max(line.scrollWidth - line.clientWidth, line.scrollHeight - line.clientHeight - 1);
      for (let up = line.parentElement; up && up.id !== 'vitviz-right'; up = up.parentElement) {
        const box = up.getBoundingClientRect();
        if (getComputedStyle(up).display !== 'contents' && box.width)
          hidden = Math.max(hidden, own.bottom - box.bottom - 1, own.right - box.right - 1);
      }
      const rows = Math.round(own.height / parseFloat(getComputedStyle(line).lineHeight));
      return [line.textContent.trim(), rows, hidden, getComputedStyle(line).textOverflow];
    }));
  }, 120));
}"""


@pytest.mark.parametrize("language", ["en", "zh-CN", "ko"])
@pytest.mark.parametrize("more", ["", "&present=1"])
def test_why_and_what_to_do_stand_whole_above_every_figure(open_page, language, more):
    windows = [(width, height) for width, height, lecture in WINDOWS if lecture == more]
    page = open_page(f"?tab=patches&lang={language}{more}", *windows[0])
    for (width, height), view in product(windows, VIEWS):
        if more and view.slug == "tour":
            continue  # a slide of a lecture is the tour's alone
        page.set_viewport_size({"width": width, "height": height})
        found = page.evaluate(LINES, view.slug)
        assert [text for text, *_ in found] == [
            translate(said, language) for said in (view.words.what, view.words.how)
        ]
        for text, rows, hidden, overflow in () if more else found:  # Present leaves them to screen readers
            most = 3 if width < 1000 else 2 if view.slug == "evidence" else 1  # there beside the map
            assert rows <= most, f"{rows} lines: {text}"
            assert hidden <= 0 and overflow == "clip", f"{hidden} px are cut: {text}"


@pytest.mark.parametrize(("width", "height", "more"), WINDOWS)
def test_the_definition_opens_whole_and_goes_by_escape(open_page, width, height, more):
    page = open_page(f"?tab=evidence{more}", width, height, wait=False)
    ready(page, "evidence")
    fold = page.locator("#vitviz-tab-evidence .vitviz-fold")
    fold.locator("button").first.click()
    drawer = fold.locator("[data-testid=accordion-content]")
    expect(drawer.get_by_text("What it does not show.")).to_be_visible()
    expect(drawer.locator(".katex").first).to_be_visible()
    page.wait_for_timeout(400)  # it slides
    box = drawer.bounding_box()
    shown, needed = drawer.evaluate("(node) => [node.clientHeight, node.scrollHeight]")
    assert box["height"] >= 0.6 * height or shown >= needed
    assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] >= 0
    assert width < 1000 or box["y"] + box["height"] <= height + 0.5  # a phone's page scrolls
    if more:
        assert drawer.locator("p").first.evaluate("(p) => parseFloat(getComputedStyle(p).fontSize)") >= 18
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1440, 900), (768, 1024), (390, 844)])
def test_the_definition_opens_beside_or_below_its_figure_which_stays_usable(open_page, width, height):
    page = open_page("", width, height)
    for slug in ("explorer", "distance", "rollout", "tokens", "filters", "evidence", "patches"):
        page.evaluate("(slug) => document.getElementById(`vitviz-tab-${slug}-button`).click()", slug)
        ready(page, slug)
        fold = page.locator(f"#vitviz-tab-{slug} .vitviz-fold")
        fold.locator("button").first.click()
        drawer = fold.locator("[data-testid=accordion-content]")
        expect(drawer.get_by_text("What it does not show.")).to_be_visible()
        page.wait_for_timeout(400)  # it slides
        box = drawer.bounding_box()
        parts = (".vv-figure",) if slug == "evidence" else (".vv-figure", ".vv-below")
        for figure in (page.locator(f"#vitviz-{slug} {part}").bounding_box() for part in parts):
            if not figure or not figure["height"]:
                continue
            beside = figure["x"] + figure["width"] <= box["x"] + 0.5
            below = figure["y"] + figure["height"] <= box["y"] + 0.5
            assert beside if width > 1000 else below, (slug, figure, box)
        figure = page.locator(f"#vitviz-{slug} .vv-figure").bounding_box()
        assert figure["width"] >= 0.2 * width
        if width > 1000:  # the figure can be operated; a click on it closes nothing
            page.mouse.click(figure["x"] + figure["width"] / 2, figure["y"] + figure["height"] / 2)
            expect(drawer).to_be_visible()
        page.keyboard.press("Escape")
        expect(drawer).to_be_hidden()
