"""Glossary terms explain themselves at their first occurrence in the text of a view."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ready


@pytest.mark.browser
@pytest.mark.parametrize(
    ("locale", "width", "word", "says"),
    [
        ("en-US", 1440, "head", "parallel attentions of a layer"),
        ("en-US", 390, "head", "parallel attentions of a layer"),
        ("zh-CN", 1280, "图像块", "嵌入为一个标记"),
        ("ko", 1280, "헤드", "병렬 어텐션"),
    ],
)
def test_glossary_term_tooltip_opens_by_pointer_and_focus(open_page, locale, width, word, says):
    page = open_page("?tab=evidence", width, 844, wait=False, locale=locale)
    ready(page, "evidence")
    term = page.locator("#vitviz-tab-evidence .vitviz-lead .vv-term", has_text=word).first
    place = """() => {
      const box = document.querySelector('#vitviz-evidence .vv-figure').getBoundingClientRect();
      return [box.left, box.top + window.scrollY, box.width, box.height]; }"""
    before = page.evaluate(place)
    tooltip = page.locator(".vv-tip.vv-on")
    term.hover()
    expect(tooltip).to_contain_text(says)
    box = tooltip.bounding_box()
    assert 0 <= box["x"] and box["x"] + box["width"] <= width
    page.mouse.move(1, 1)
    expect(tooltip).to_have_count(0)
    term.focus()
    expect(tooltip).to_contain_text(says)
    assert says in term.get_attribute("aria-description")
    assert page.evaluate(place) == before
