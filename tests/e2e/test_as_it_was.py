"""The answer under the photograph keeps what it was before a change, and one button leads back."""

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Server, open_tab, pick, ready, shipped


@pytest.fixture
def two_page(browser, tmp_path):
    """A page beside whose checkpoint lies another, without a film."""
    for name in ("vitviz-tiny", "other"):
        shipped(tmp_path / name)
    with Server("--device", "cpu", "--weights", str(tmp_path)) as server:
        page = browser.new_page()
        page.goto(server.url + "?tab=patches")
        ready(page, "patches")
        yield page
        page.close()


def shown(page) -> list[str]:
    return page.locator("#vitviz-facts .vv-answers li").all_inner_texts()


def test_after_another_step_of_the_training(open_page):
    page = open_page()
    facts, back = page.locator("#vitviz-facts"), page.get_by_role("button", name="As it was")
    fresh = shown(page)
    expect(back).to_be_hidden()
    page.locator("#vitviz-film input[type=range]").focus()
    for _ in range(2):
        at = page.locator("#vitviz-film .vv-film").get_attribute("data-at")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#vitviz-film .vv-film")).not_to_have_attribute("data-at", at)
    assert shown(page) != fresh and facts.locator(".vv-answer-ghost").count() >= 1
    back.click()
    expect(page.locator("#vitviz-film .vv-film")).to_have_attribute("data-at", "vitviz-tiny")
    expect(facts.locator(".vv-answer-ghost")).to_have_count(0)
    assert shown(page) == fresh
    expect(back).to_be_hidden()


def test_after_another_checkpoint_whatever_was_looked_at_meanwhile(two_page):
    page = two_page
    fresh = shown(page)
    pick(page, "other")
    expect(page.locator(".vv-compare > button")).to_be_focused()  # and not the page as a whole
    expect(page.locator("#vitviz-facts [data-checkpoint='other']")).to_be_attached()
    expect(page.locator("#vitviz-facts .vv-answer-ghost")).to_have_count(3)
    open_tab(page, "Attention")
    page.locator("#vitviz-tab-explorer input[type=range]").first.press("ArrowRight")
    page.get_by_role("button", name="As it was").click()
    expect(page.locator("#vitviz-facts [data-checkpoint='vitviz-tiny']")).to_be_attached()
    expect(page.locator("#vitviz-picker input")).to_have_value("vitviz-tiny · 3.67 M")
    expect(page.get_by_role("tab", name="Attention")).to_have_attribute("aria-selected", "true")
    assert shown(page) == fresh
    page.go_back()  # nothing is lost by it
    expect(page.locator("#vitviz-facts [data-checkpoint='other']")).to_be_attached()
