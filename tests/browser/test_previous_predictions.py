"""Previous predictions beside the current ones, and the Undo button."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, copy_checkpoint, open_tab, pick_checkpoint, ready


@pytest.fixture
def two_checkpoints_page(browser, tmp_path):
    """Open an app with two checkpoints without training snapshots."""
    for name in ("vitviz-tiny", "other"):
        copy_checkpoint(tmp_path / name)
    with Server("--device", "cpu", "--weights", str(tmp_path)) as server:
        page = browser.new_page()
        page.goto(server.url + "?tab=patches")
        ready(page, "patches")
        yield page
        page.close()


def predictions(page) -> list[str]:
    return page.locator("#vitviz-facts .vv-answers li").all_inner_texts()


def test_undo_restores_final_checkpoint_after_training_steps(open_page):
    page = open_page()
    facts, undo = page.locator("#vitviz-facts"), page.locator("#vitviz-facts .vv-undo")
    initial = predictions(page)
    expect(undo).to_be_hidden()
    page.locator("#vitviz-film input[type=range]").focus()
    for _ in range(2):
        at = page.locator("#vitviz-film .vv-film").get_attribute("data-at")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#vitviz-film .vv-film")).not_to_have_attribute("data-at", at)
    assert predictions(page) != initial and facts.locator(".vv-answer-ghost").count() >= 1
    undo.click()
    expect(page.locator("#vitviz-film .vv-film")).to_have_attribute("data-at", "vitviz-tiny")
    expect(facts.locator(".vv-answer-ghost")).to_have_count(0)
    assert predictions(page) == initial
    expect(undo).to_be_hidden()


def wait_for_prediction_only(page, name: str, part: str = "facts") -> None:
    """Wait for the prediction of a checkpoint, without a previous prediction beside it."""
    facts = page.locator(f"#vitviz-{part}")
    expect(facts.locator(f"[data-checkpoint='{name}']")).to_be_attached()
    expect(facts.locator(".vv-answers li").first).to_be_visible()
    expect(facts).not_to_contain_text("→")
    expect(facts.locator(".vv-answer-ghost")).to_have_count(0)
    expect(page.locator("#vitviz-facts .vv-undo")).to_be_hidden()


def type_checkpoint(page, field: str, name: str) -> None:
    """Type a checkpoint into a field, even if the field is folded."""
    page.locator(f"#vitviz-{field} input").evaluate("(one) => one.focus()")
    page.locator(f"#vitviz-{field} input").fill(name, force=True)
    page.keyboard.press("Enter")


def test_previous_prediction_is_not_shown_across_models(two_checkpoints_page):
    page = two_checkpoints_page
    wait_for_prediction_only(page, "vitviz-tiny")
    url = page.url
    pick_checkpoint(page, "other")
    expect(page.locator(".vv-compare > button")).to_be_focused()  # not the body
    wait_for_prediction_only(page, "other")
    open_tab(page, "Attention")
    page.locator("#vitviz-tab-explorer input[type=range]").first.press("ArrowRight")
    wait_for_prediction_only(page, "other")
    page.locator(".vv-compare > button").click()
    for second in ("vitviz-tiny", "other"):  # the field of the comparison
        type_checkpoint(page, "second", second)
        wait_for_prediction_only(page, second, "second-facts")
        wait_for_prediction_only(page, "other")
    page.go_back()  # changes the second checkpoint
    wait_for_prediction_only(page, "vitviz-tiny", "second-facts")
    pick_checkpoint(page, "vitviz-tiny")
    wait_for_prediction_only(page, "vitviz-tiny")
    page.go_back()
    wait_for_prediction_only(page, "other")
    page.goto(url.replace("tab=", "checkpoint=other&tab="))  # a link
    wait_for_prediction_only(page, "other")


def test_previous_prediction_is_shown_only_for_the_slider(open_page):
    page = open_page()
    wait_for_prediction_only(page, "vitviz-tiny")
    page.locator(".vv-compare > button").click()
    page.locator(".vv-compare-offers button").first.click()
    wait_for_prediction_only(page, "vitviz-tiny@0")
    wait_for_prediction_only(page, "vitviz-tiny", "second-facts")
    page.locator("#vitviz-film input[type=range]").press("ArrowRight")
    expect(page.locator("#vitviz-facts .vv-before").first).to_be_attached()
    second_facts = page.locator("#vitviz-second-facts")
    expect(second_facts).not_to_contain_text("→")
    pick_checkpoint(page, "vitviz-tiny")
    wait_for_prediction_only(page, "vitviz-tiny")


def test_explained_class_is_kept_along_the_training_slider(open_page):
    page = open_page("?tab=evidence", wait=False)
    ready(page, "evidence")
    class_field = page.locator("#vitviz-evidence .vv-class").first
    explained = class_field.input_value()
    assert predictions(page)[0].startswith(explained)
    slider = page.locator("#vitviz-film input[type=range]")
    slider.fill("0")
    expect(page.locator("#vitviz-film .vv-film")).to_have_attribute("data-at", "vitviz-tiny@0")
    expect(class_field).to_have_value(explained)
    assert not predictions(page)[0].startswith(explained), "the untrained model predicts the same class"
    slider.press("ArrowRight")
    expect(page.locator("#vitviz-film .vv-film")).not_to_have_attribute("data-at", "vitviz-tiny@0")
    expect(class_field).to_have_value(explained)
    pick_checkpoint(page, "vitviz-tiny@0")  # a picked checkpoint explains its own prediction
    wait_for_prediction_only(page, "vitviz-tiny@0")
    expect(class_field).not_to_have_value(explained)
