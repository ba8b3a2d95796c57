"""The comparison panel under the checkpoint picker, and two checkpoints side by side."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, copy_checkpoint, ready, visit_views
from tests.browser.helpers import wait_for_query
from vitviz.views import VIEWS

SENTENCES = {
    "en-US": (
        "Comparison and input size",
        "Before and after training",
        "Compared with: vitviz-tiny",
        "Stop comparing",
    ),
    "zh-CN": ("比较与输入尺寸", "训练之前与之后", "对比：vitviz-tiny", "停止比较"),
    "ko-KR": ("비교와 입력 크기", "학습 전과 후", "비교 대상: vitviz-tiny", "비교 끝내기"),
}


@pytest.mark.parametrize(("locale", "width"), [("en-US", 1440), ("zh-CN", 390), ("ko-KR", 1280)])
def test_first_comparison_offer_is_before_and_after_training(open_page, locale, width):
    compare, before, beside, end = SENTENCES[locale]
    page = open_page(locale=locale, width=width, height=720)
    if width < 768:
        page.locator("#vitviz-facts .vv-unfold").click()  # beside the thumbnail
    button = page.locator(".vv-compare > button")
    expect(button).to_have_text(compare)
    under = page.locator("#vitviz-picker").bounding_box()
    box = button.bounding_box()
    assert 0 <= box["y"] - under["y"] - under["height"] < 60, "the button is not below the picker"
    button.click()
    first = page.locator(".vv-compare-offers button").first
    expect(first).to_have_text(before)
    first.click()
    expect(page.locator("#vitviz-facts [data-checkpoint='vitviz-tiny@0']")).to_be_attached()
    expect(page.locator("#vitviz-second-facts [data-checkpoint='vitviz-tiny']")).to_be_attached()
    ready(page, "second-patches")
    expect(button).to_have_text(beside)
    expect(page.locator(".vv-compare-offers")).to_be_hidden()
    wait_for_query(page, checkpoint="vitviz-tiny@0", second="vitviz-tiny")
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    button.click()
    page.get_by_role("button", name=end).click()
    expect(page.locator("#vitviz-second-patches")).to_be_hidden()
    expect(button).to_have_text(compare)
    wait_for_query(page, second=None)


def test_comparison_panel_holds_three_fields_and_closes_on_escape(open_page):
    page = open_page()
    button, fields = page.locator(".vv-compare > button"), page.locator("#vitviz-more")
    expect(fields).to_be_hidden()
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(fields.locator("input")).to_have_count(3)  # second checkpoint, suggested pairs, input size
    page.keyboard.press("Escape")
    expect(fields).to_be_hidden()
    expect(page.locator(".vv-compare-offers")).to_be_hidden()
    expect(button).to_be_focused()
    button.click()
    second = page.locator("#vitviz-second input")
    second.fill("vitviz-tiny@0")
    second.press("Enter")
    expect(button).to_have_text("Compared with: vitviz-tiny@0")
    expect(second).to_be_visible()  # the panel stays open


def test_no_training_comparison_is_offered_without_snapshots(browser, tmp_path):
    copy_checkpoint(tmp_path / "vitviz-tiny")
    with Server("--device", "cpu", "--weights", str(tmp_path)) as server:
        page = browser.new_page()
        page.goto(server.url + "?tab=patches")
        ready(page, "patches")
        page.locator(".vv-compare > button").click()
        expect(page.locator("#vitviz-second input")).to_be_visible()
        expect(page.locator(".vv-compare-offers button")).to_have_count(0)
        page.close()


TOO_WIDE = """(slug) => ['', 'second-'].flatMap((which) =>
  [...document.querySelectorAll(`#vitviz-${which}${slug} :is(.vv-figure, .vv-below, .vv-controls)`)]
    .filter((node) => node.scrollWidth > node.clientWidth + 4)
    .map((node) => `${node.className} ${node.scrollWidth} in ${node.clientWidth}`))"""
BOXES = """(slug) => ['', 'second-'].map((which) => {
  const { x, y, right, bottom } = document.querySelector(`#vitviz-${which}${slug} .vv-frame`)
    .getBoundingClientRect();
  return { x, y, right, bottom };
})"""


@pytest.mark.parametrize("width", [390, 800])
def test_narrow_window_fits_two_figures_above_shared_settings(open_page, width):
    page = open_page("?second=vitviz-tiny@0", width, 844, wait=False)
    ready(page, "second-patches")
    page.evaluate("vitviz.memory.compared = { against: 'own' }")  # the default draws both in one figure
    for view in visit_views(page, VIEWS, beside=True):
        page.wait_for_function(f"(slug) => !({TOO_WIDE})(slug).length", arg=view.slug)
        first, second = page.evaluate(BOXES, view.slug)
        assert second["x"] > first["right"] or second["y"] > first["bottom"], "the figures overlap"
        settings = page.locator(f"#vitviz-{view.slug} .vv-controls")
        if settings.is_visible():
            box = settings.bounding_box()
            assert box["y"] >= max(first["bottom"], second["bottom"]), view.slug
            assert box["x"] <= first["x"] + 1 and box["x"] + box["width"] >= second["right"] - 1, view.slug
