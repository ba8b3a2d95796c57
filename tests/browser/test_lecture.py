"""Lecture mode, phone layout, keyboard navigation and linked pointers of two checkpoints."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import choose_sample, ready, visit_views
from tests.browser.helpers import RECORD_SMALL_TEXT
from vitviz.views import VIEWS

SECOND = "vitviz-tiny@0"

SMALL_TEXTS = """() => {
  const small = [];
  const seen = (node) => node.getClientRects().length && getComputedStyle(node).visibility !== 'hidden';
  for (const node of document.querySelectorAll('#vitviz-right *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (own && seen(node) && node.closest('.vv, #vitviz-film, [role=tablist], #vitviz-groups')) {
      const size = parseFloat(getComputedStyle(node).fontSize);
      const label = node.closest(
        '.vv-bar, .vv-chart, .vv-tried-map, figcaption, .vv-thumb, .vv-ends, .vv-weight, .vv-live'
      );
      if (size >= (label || innerHeight < 1080 ? 18 : 23.9)) continue;
      small.push(`${node.className} ${size} ${node.textContent.slice(0, 30)}`);
    }
  }
  return small;
}"""


@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (1280, 720)])
def test_lecture_mode_shows_one_view_with_large_text(open_page, width, height):
    page = open_page("?present=1", width, height)
    for part in ("#vitviz-upload", "#vitviz-samples", "#vitviz-picker", ".vitviz-figures .vv-aside >> nth=0"):
        expect(page.locator(part)).to_be_hidden()
    page.evaluate(RECORD_SMALL_TEXT)
    for view in VIEWS[1:]:  # the tour comes last
        ready(page, view.slug)
        page.wait_for_timeout(250)
        assert page.evaluate(SMALL_TEXTS) == [], view.slug
        assert page.evaluate("() => window.small.splice(0)") == [], view.slug
        figure = [
            box
            for part in (".vv-figure", ".vv-below")
            if (box := page.locator(f"#vitviz-{view.slug} {part}").bounding_box())
        ]
        # including the wall of heads
        low, high = (min(box[one] for box in figure) for one in "xy")
        right = max(box["x"] + box["width"] for box in figure)
        bottom = max(box["y"] + box["height"] for box in figure)
        assert bottom <= height
        assert (right - low) * (bottom - high) >= 0.65 * width * height, view.slug
        for name in ("layer", "head"):
            fields = page.locator(f"#vitviz-{view.slug} .vv-controls > [data-name={name}]")
            expect(fields.and_(page.locator(":visible"))).to_have_count(int(view.slug == "explorer"))
        if view.slug == "evidence":
            assert page.locator("#vitviz-evidence .vv-plot").first.bounding_box()["width"] >= 420
        page.keyboard.press("ArrowRight")
    ready(page, "tour")
    page.keyboard.press("f")
    expect(page.locator("#vitviz-picker")).to_be_visible()
    assert "present" not in page.url


def test_lecture_keys_change_layer_head_and_snapshot(open_page):
    page = open_page("?tab=explorer&present=1", 1920, 1080, wait=False)
    ready(page, "explorer")
    settings = (
        "() => { const v = [...vitviz.views].find((one) => one.name === 'explorer'); return"
        " [v.settings.layer, v.settings.head]; }"
    )
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Shift+ArrowUp")
    assert page.evaluate(settings) == [3, 2]
    page.locator("#vitviz-explorer [data-name=head] input").fill("3")  # the fields work too
    assert page.evaluate(settings) == [3, 3]
    page.locator("#vitviz-explorer .vv-figure .vv-h").click()
    page.keyboard.press("?")
    expect(page.locator(".vv-keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".vv-keys")).to_be_hidden()
    at = page.locator("#vitviz-film .vv-film").get_attribute("data-at")
    page.keyboard.press("Shift+ArrowLeft")
    expect(page.locator("#vitviz-film .vv-film")).not_to_have_attribute("data-at", at)


def test_phone_layout_shows_figure_first_and_fixed_controls(open_page):
    page = open_page("", 390, 844)
    for view in visit_views(page, [view for view in VIEWS if view.slug != "tour"]):
        page.evaluate("window.scrollTo(0, 0)")
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollHeight") <= 2 * 844, (
            "the page is taller than two screens"
        )
        parts = ("#vitviz-stage", "#vitviz-tabs", "#vitviz-links")
        places = {part: page.locator(part).first.bounding_box()["y"] for part in parts}
        assert list(places) == sorted(places, key=places.get), places
        figure = page.locator(f"#vitviz-{view.slug} .vv-figure").bounding_box()
        hint = page.locator(f"#vitviz-tab-{view.slug} .vitviz-lead p").last.bounding_box()
        assert figure["y"] <= 226 + hint["height"], figure
        plot = page.locator(f"#vitviz-{view.slug} .vv-figure .vv-plot").first.bounding_box()
        assert plot["y"] + plot["height"] <= 1.1 * 844, plot
        facts, stage = page.locator("#vitviz-facts .vv-answers").bounding_box(), places["#vitviz-stage"]
        assert facts["x"] > 100 and abs(facts["y"] - stage) < 20, "the prediction is not beside the thumbnail"
        low = page.locator("#vitviz-film, .vv-field:is([data-name='layer'], [data-name='head'])")
        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        for bar in low.all():
            if bar.is_visible():
                expect(bar).to_be_in_viewport(ratio=1)
        for one in (*page.locator("#vitviz-groups button").all(), *page.get_by_role("tab").all()):
            box = one.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["height"] >= 24, box
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        sliders = page.locator("input[type=range] >> visible=true")
        assert {one.evaluate("(node) => getComputedStyle(node).touchAction") for one in sliders.all()} <= {
            "pan-y"
        }


def test_skip_link_and_arrow_keys_reach_tabs(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    skip = page.get_by_text("Skip to the views")
    expect(skip).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Patches")).to_be_focused()
    for view in VIEWS[2:5]:  # into the next group
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=view.title, exact=True)).to_have_attribute(
            "aria-selected", "true"
        )
        expect(page.get_by_role("tab", name=view.title, exact=True)).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name=VIEWS[-1].title, exact=True)).to_have_attribute(
        "aria-selected", "true"
    )


def test_samples_are_named_and_typing_replaces_checkpoint(open_page):
    page = open_page()
    page.locator(".vv-more-samples").click()
    for name in ("espresso", "cat", "astronaut", "rocket"):
        expect(page.locator("#vitviz-samples").get_by_role("button", name=name, exact=True)).to_be_visible()
    page.locator("#vitviz-picker input").click()
    page.keyboard.type("vit")
    expect(page.locator("#vitviz-picker input")).to_have_value("vit")


def test_pointer_on_one_map_is_linked_to_the_other(open_page):
    page = open_page(f"?tab=explorer&second={SECOND}", wait=False)
    ready(page, "explorer")
    page.locator("#vitviz-second-explorer [data-ready]").wait_for()
    first, second = (
        page.locator("#vitviz-explorer .vv-heat").first,
        page.locator("#vitviz-second-explorer .vv-heat").first,
    )
    box, titles = second.bounding_box(), page.locator("[id$=explorer] .vv-figure .vv-h")
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    expect(titles.nth(0)).to_contain_text("row 1, column 1")
    expect(titles.nth(1)).to_contain_text("row 1, column 1")
    box = first.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 10, box["y"] + 10)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for title in (titles.nth(0), titles.nth(1)):
        expect(title).to_contain_text("row 1, column 14")  # selected in both


def test_layer_settings_scale_to_model_depth(open_page):
    page = open_page()
    values = page.evaluate("""async () => {
      const base = document.documentElement.innerHTML.match(/gradio_api\\/vitviz\\/modules\\/\\w+\\//)[0];
      const settings = new URL(base + 'frontend/settings.js', document.baseURI).href;
      const { placesOf, tokensAt } = await import(settings);
      const to = (control, value, from, to) =>
        tokensAt(control, placesOf(control, value, {}, { layers: from }), {}, { layers: to });
      const range = { kind: 'layers', name: 'layers' }, one = { kind: 'slider', name: 'layer' };
      const ranges = [['3-8', 8, 12], ['3-8', 8, 8], ['1-4', 8, 12], ['5-12', 12, 8]];
      const ones = [[8, 8, 12], [1, 8, 12], [5, 8, 8]];
      return [...ranges.map((given) => to(range, ...given)), ...ones.map((given) => to(one, ...given))];
    }""")
    assert values == ["4-12", "3-8", "1-6", "3-8", 12, 1, 5]


def test_second_pass_is_not_labelled_first_pass(open_page):
    page = open_page()
    summary = page.locator("#vitviz-facts .vv-cost summary")
    expect(summary).to_contain_text(" ms on CPU")
    choose_sample(page, 2)
    expect(summary).not_to_contain_text("first pass")
