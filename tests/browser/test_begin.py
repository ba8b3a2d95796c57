"""Where to begin: six questions with their views, the first visit's three steps, and the overview."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import ready
from vitviz.views import GROUPS

MOVING = """() => document.querySelector('.vv-overview').getAnimations({ subtree: true }).length"""


def current(page, question: str):
    """Waits until a question is the one that is open."""
    expect(page.locator("#vitviz-groups button[aria-current]")).to_have_text([question])


def chosen(page, title: str):
    expect(page.get_by_role("tab", name=title, exact=True)).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_a_question_opens_its_first_view_beside_the_others_and_no_name_moves(open_page, width, height):
    page = open_page("", width, height)
    current(page, "What goes in")
    buttons = page.locator("#vitviz-groups button")
    assert buttons.all_inner_texts() == list(GROUPS) and len(GROUPS) <= 6
    places = [one.bounding_box() for one in buttons.all()]
    row = page.get_by_role("tablist").bounding_box()
    for question, views in GROUPS.items():
        page.get_by_role("button", name=question, exact=True).click()
        current(page, question)
        expect(page.get_by_role("tab")).to_have_text([view.title for view in views])
        chosen(page, views[0].title)
        page.get_by_role("tab").last.click()
        chosen(page, views[-1].title)
        current(page, question)
        assert [one.bounding_box() for one in buttons.all()] == places
        assert page.get_by_role("tablist").bounding_box() == row
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_link_to_a_view_opens_its_question_and_back_comes_back_to_it(open_page):
    page = open_page("?tab=rollout", wait=False)
    ready(page, "rollout")
    current(page, "Where it looks")
    chosen(page, "Rollout")
    page.wait_for_function("() => history.state?.vitviz?.tab === 'rollout'")
    page.locator("#vitviz-groups").get_by_role("button", name="Why?").click()
    ready(page, "evidence")
    page.wait_for_url("**tab=evidence**")
    page.go_back()
    current(page, "Where it looks")
    chosen(page, "Rollout")


def test_the_keyboard_reaches_questions_and_their_views(open_page):
    page = open_page()
    page.get_by_role("button", name="Inside", exact=True).focus()
    page.keyboard.press("Enter")
    ready(page, "tokens")
    for _ in range(3):  # past the questions that follow, to the tabs, of which the chosen one is a stop
        page.keyboard.press("Tab")
    expect(page.get_by_role("tab", name="Representations")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Rollout")).to_be_focused()
    current(page, "Where it looks")


def test_the_first_visit_has_three_steps_once(open_page):
    page = open_page(first=True, wait=False)
    welcome = page.get_by_role("dialog")
    ready(page, "tour")
    framed = ["#vitviz-stage canvas", "#vitviz-groups", ".vv-overview"]
    for step, part in enumerate(framed, start=1):
        expect(welcome).to_contain_text(f"{step} / 3")
        page.wait_for_timeout(100)
        hole, box = page.locator(".vv-hole").bounding_box(), page.locator(part).first.bounding_box()
        assert hole["x"] <= box["x"] and hole["x"] + hole["width"] >= box["x"] + box["width"]
        assert hole["y"] <= box["y"] and hole["y"] + hole["height"] >= box["y"] + box["height"]
        card = page.locator(".vv-welcome-card").bounding_box()
        apart = hole["y"] + hole["height"] < card["y"] or hole["x"] + hole["width"] < card["x"]
        assert apart, "the card does not hide what it is about"
        found = Axe().run(page, "dialog").response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        page.keyboard.press("Enter")
    expect(welcome).to_have_count(0)
    current(page, "Start here")
    page.goto(page.url.split("?")[0])
    ready(page, "patches")
    expect(welcome).to_have_count(0)


@pytest.mark.parametrize("leave", ["Escape", "건너뛰기", "beside"])
def test_it_is_left_by_a_key_its_button_and_a_click_beside(open_page, leave):
    page = open_page("?lang=ko", 390, 844, first=True, wait=False)
    expect(page.get_by_role("dialog")).to_contain_text("사진과 답")
    if leave == "Escape":
        page.keyboard.press("Escape")
    elif leave == "beside":
        page.mouse.click(200, 300)
    else:
        page.get_by_role("button", name=leave).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    ready(page, "tour")


@pytest.mark.parametrize("path", ["?tab=rollout", "?sample=coffee", "?present=1"])
def test_no_link_and_no_lecture_is_greeted(open_page, path):
    page = open_page(path, first=True, wait=False)
    ready(page, "rollout" if "tab" in path else "patches")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_overview_shows_this_picture_in_this_model_and_each_part_leads_to_its_view(open_page):
    page = open_page("?tab=tour&sample=rocket&size=160", wait=False, reduced_motion="reduce")
    ready(page, "tour")
    answer = page.locator("#vitviz-facts .vv-answers li").first.inner_text().split("\n")
    parts = page.locator(".vv-over")
    for part, told in zip(
        parts.all(), ["160 × 160", "20 × 20", "8 × 3 heads", answer[-1].strip()], strict=True
    ):
        expect(part.locator(".vv-block-size")).to_have_text(told)
    expect(parts.nth(3)).to_contain_text(answer[0])
    expect(page.locator(".vv-over-layers i")).to_have_count(8)
    assert page.evaluate(MOVING) == 0, "nothing moves for who asked for that"
    title = page.locator("#vitviz-tour .vv-tour-title")
    before = title.bounding_box()["y"]
    parts.nth(0).click()
    assert title.bounding_box()["y"] < before - 50, "the first step is about the picture"
    for number, view, name in (
        (1, "patches", "Patches"),
        (2, "explorer", "Attention"),
        (3, "evidence", "Attribution"),
    ):
        parts.nth(number).click()
        ready(page, view)
        chosen(page, name)
        page.get_by_role("button", name="Start here").click()
    page.locator("#vitviz-tour .vv-next").click()
    expect(page.locator(".vv-overview")).to_be_hidden()


def test_the_overview_comes_part_by_part_and_then_stands(open_page):
    page = open_page("?tab=tour", wait=False)
    ready(page, "tour")
    assert page.evaluate(MOVING) > 4
    page.wait_for_function(f"() => !({MOVING})()", timeout=10_000)
    expect(page.locator(".vv-plays")).to_have_count(0)
