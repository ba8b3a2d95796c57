"""The answer under the photograph keeps what it was before a change, and one button leads back."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, copy_checkpoint, open_tab, pick_checkpoint, ready


@pytest.fixture
def two_page(browser, tmp_path):
    """A page beside whose checkpoint lies another, without a film."""
    for name in ("vitviz-tiny", "other"):
        copy_checkpoint(tmp_path / name)
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
    facts, back = page.locator("#vitviz-facts"), page.locator("#vitviz-facts .vv-undo")
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


def alone(page, name: str, part: str = "facts") -> None:
    """Waits for a checkpoint's prediction, which stands beside no other one."""
    facts = page.locator(f"#vitviz-{part}")
    expect(facts.locator(f"[data-checkpoint='{name}']")).to_be_attached()
    expect(facts.locator(".vv-answers li").first).to_be_visible()
    expect(facts).not_to_contain_text("→")
    expect(facts.locator(".vv-answer-ghost")).to_have_count(0)
    expect(page.locator("#vitviz-facts .vv-undo")).to_be_hidden()


def choose(page, field: str, name: str) -> None:
    """Types a checkpoint into one of the fields, whether or not it is folded away."""
    page.locator(f"#vitviz-{field} input").evaluate("(one) => one.focus()")
    page.locator(f"#vitviz-{field} input").fill(name, force=True)
    page.keyboard.press("Enter")


def test_two_models_are_never_before_and_after(two_page):
    page = two_page
    alone(page, "vitviz-tiny")
    url = page.url
    pick_checkpoint(page, "other")
    expect(page.locator(".vv-compare > button")).to_be_focused()  # and not the page as a whole
    alone(page, "other")
    open_tab(page, "Attention")
    page.locator("#vitviz-tab-explorer input[type=range]").first.press("ArrowRight")
    alone(page, "other")
    page.locator(".vv-compare > button").click()
    for second in ("vitviz-tiny", "other"):  # the comparison's own field
        choose(page, "second", second)
        alone(page, second, "second-facts")
        alone(page, "other")
    page.go_back()  # another second checkpoint
    alone(page, "vitviz-tiny", "second-facts")
    pick_checkpoint(page, "vitviz-tiny")
    alone(page, "vitviz-tiny")
    page.go_back()
    alone(page, "other")
    page.goto(url.replace("tab=", "checkpoint=other&tab="))  # a link
    alone(page, "other")


def test_a_pair_of_one_training_stands_side_by_side_and_only_the_slider_goes_on_from_it(open_page):
    page = open_page()
    alone(page, "vitviz-tiny")
    page.locator(".vv-compare > button").click()
    page.locator(".vv-compare-offers button").first.click()
    alone(page, "vitviz-tiny@0")
    alone(page, "vitviz-tiny", "second-facts")
    page.locator("#vitviz-film input[type=range]").press("ArrowRight")
    expect(page.locator("#vitviz-facts .vv-before").first).to_be_attached()
    alone_beside = page.locator("#vitviz-second-facts")
    expect(alone_beside).not_to_contain_text("→")
    pick_checkpoint(page, "vitviz-tiny")
    alone(page, "vitviz-tiny")


def test_while_a_training_plays_the_class_that_is_explained_stays(open_page):
    page = open_page("?tab=evidence", wait=False)
    ready(page, "evidence")
    why = page.locator("#vitviz-evidence .vv-class").first
    explained = why.input_value()
    assert shown(page)[0].startswith(explained)
    slider = page.locator("#vitviz-film input[type=range]")
    slider.fill("0")
    expect(page.locator("#vitviz-film .vv-film")).to_have_attribute("data-at", "vitviz-tiny@0")
    expect(why).to_have_value(explained)
    assert not shown(page)[0].startswith(explained), "untrained, another class is likelier"
    slider.press("ArrowRight")
    expect(page.locator("#vitviz-film .vv-film")).not_to_have_attribute("data-at", "vitviz-tiny@0")
    expect(why).to_have_value(explained)
    pick_checkpoint(page, "vitviz-tiny@0")  # seen by itself, its own likeliest class is explained
    alone(page, "vitviz-tiny@0")
    expect(why).not_to_have_value(explained)
