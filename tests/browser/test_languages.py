"""The page in English, Chinese and Korean: chosen by the browser and switchable."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready, visit_views
from vitviz.views import VIEWS

# by language: tab, lead, label of a control, heading, button, Gradio's footer
PAGE = {
    "en-US": (
        "Rollout",
        "multiplies attention across layers",
        "Heads fused by",
        "Prediction",
        "Copy link",
        "Settings",
    ),
    "zh-CN": ("注意力展开", "把各层的注意力相乘", "头的合并方式", "预测", "复制链接", "设置"),
    "ko-KR": ("롤아웃", "어텐션을 곱하여", "헤드 합치기", "예측", "링크 복사", "설정"),
}
TAGS = {"en-US": "en", "zh-CN": "zh-CN", "ko-KR": "ko"}


@pytest.mark.parametrize("locale", PAGE)
def test_browser_locale_sets_the_language(open_page, locale):
    tab, lead, label, prediction, copy, settings = PAGE[locale]
    page = open_page(locale=locale)
    assert page.evaluate("document.documentElement.lang") == TAGS[locale]
    expect(page.locator("#vitviz-facts h2")).to_have_text(prediction)
    expect(page.locator("#vitviz-links .vv-copy")).to_have_text(copy)
    expect(page.locator("footer")).to_contain_text(settings)
    open_tab(page, tab)
    ready(page, "rollout")
    expect(page.locator("#vitviz-tab-rollout .prose.vitviz-lead")).to_contain_text(lead)
    expect(page.locator("#vitviz-rollout [data-name=fusion] .vv-label")).to_have_text(label)
    assert "__i18n__" not in page.locator("body").inner_text()


def test_korean_definition_renders_formulas(open_page):
    page = open_page("?tab=positions", wait=False, locale="ko-KR")
    ready(page, "positions")
    page.locator("#vitviz-tab-positions button.label-wrap").click()
    details = page.locator("#vitviz-tab-positions .katex")
    expect(details.first).to_be_visible()
    assert details.count() == 2
    expect(page.locator("#vitviz-tab-positions")).to_contain_text("4.5절, 그림 7(가운데)")


def test_charts_and_server_lists_are_translated(open_page):
    page = open_page("?tab=distance", wait=False, locale="zh-CN")
    chart = page.locator("#vitviz-distance")
    ready(page, "distance")
    expect(chart.locator(".ytitle")).to_have_text("平均注意力距离 (px)")
    expect(chart.locator(".vv-h")).to_have_text("vitviz-tiny，一张图片")
    expect(chart.locator(".vv-legends")).to_contain_text("均匀注意力")
    page.locator(".vv-compare > button").click()
    expect(page.locator("#vitviz-size input")).to_have_value("训练时的尺寸")
    page.locator("#vitviz-second input").click()
    expect(page.locator("#vitviz-second [role=option]").first).to_contain_text("无")


def test_language_switch_keeps_view_and_settings(open_page):
    page = open_page("?tab=rollout&fusion=max", wait=False)
    ready(page, "rollout")
    page.locator("#vitviz-language a", has_text="한국어").click()
    page.wait_for_url("**lang=ko**")
    ready(page, "rollout")
    expect(page.get_by_role("tab", name="롤아웃", exact=True)).to_have_attribute("aria-selected", "true")
    expect(page.locator("#vitviz-language a[aria-current]")).to_have_text("한국어")
    expect(page.locator("#vitviz-rollout input[value=max]")).to_be_checked()
    page.locator("#vitviz-language a", has_text="English").click()
    page.wait_for_url("**lang=en**")
    expect(page.get_by_role("tab", name="Rollout", exact=True)).to_be_visible()


def test_gradio_language_setting_changes_the_page(open_page):
    page = open_page()
    page.evaluate("document.documentElement.lang = 'zh-CN'")  # as Gradio's language menu does
    page.wait_for_url("**lang=zh-CN**")
    expect(page.locator("#vitviz-facts h2")).to_have_text("预测")


def test_unknown_language_falls_back_to_english(open_page, server):
    page = open_page(locale="fr-FR")
    for tag in ("fr", "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "constructor", "__proto__"):
        page.goto(f"{server.url}?lang={tag}")
        expect(page.locator("#vitviz-facts h2")).to_have_text("Prediction")
        assert page.evaluate("navigator.language") == "en", tag


@pytest.mark.parametrize("locale", ["zh-CN", "ko-KR"])
def test_translated_page_fits_a_phone(open_page, locale):
    page = open_page(locale=locale, width=390, height=844)
    for view in visit_views(page, VIEWS):
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, view.slug
