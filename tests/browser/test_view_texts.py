"""The description and the instruction above every figure, and the definition drawer."""

from itertools import product

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ready
from vitviz.server.i18n import translate
from vitviz.views import VIEWS

WINDOWS = [(1280, 720, ""), (1440, 900, ""), (390, 844, ""), (1280, 720, "&present=1")]

# For each paragraph above the figure: text, number of lines, hidden pixels and overflow.
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
def test_description_and_instruction_are_not_truncated(open_page, language, more):
    windows = [(width, height) for width, height, lecture in WINDOWS if lecture == more]
    page = open_page(f"?tab=patches&lang={language}{more}", *windows[0])
    for (width, height), view in product(windows, VIEWS):
        if more and view.slug == "tour":
            continue  # in lecture mode the tour is a slide without these texts
        page.set_viewport_size({"width": width, "height": height})
        lines = page.evaluate(LINES, view.slug)
        assert [text for text, *_ in lines] == [
            translate(sentence, language) for sentence in (view.words.what, view.words.how)
        ]
        for text, rows, hidden, overflow in (
            () if more else lines
        ):  # lecture mode shows them to screen readers only
            most = (
                3 if width < 1000 else 2 if view.slug == "evidence" else 1
            )  # in Attribution they are beside the map
            assert rows <= most, f"{rows} lines: {text}"
            assert hidden <= 0 and overflow == "clip", f"{hidden} px are cut: {text}"


@pytest.mark.parametrize(("width", "height", "more"), WINDOWS)
def test_definition_drawer_fits_and_closes_on_escape(open_page, width, height, more):
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
def test_definition_drawer_leaves_the_figure_usable(open_page, width, height):
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
