"""Where to begin: six questions with their views, the first screen, and the overview."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready
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


def title(page):
    return page.locator("#vitviz-explorer .vv-figure .vv-h")


def moves(page):
    """Waits until the query has moved by itself."""
    before = title(page).inner_text()
    expect(title(page)).not_to_have_text(before)


def stands(page):
    """Waits for more than two steps, in which the query does not move."""
    before = title(page).inner_text()
    page.wait_for_timeout(1000)
    assert title(page).inner_text() == before


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_a_page_without_a_link_opens_with_a_large_figure_that_plays(open_page, width, height):
    page = open_page("", width, height, first=True, wait=False)
    ready(page, "explorer")
    expect(title(page)).to_contain_text("Layer 4, head 3")
    heat = page.locator("#vitviz-explorer .vv-heat").bounding_box()
    assert heat["width"] * heat["height"] > 0.28 * width * height
    assert heat["y"] + heat["height"] < height
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    moves(page)
    found = Axe().run(page, ".vv-opening").response["violations"]
    assert [one["id"] for one in found] == []
    page.get_by_role("button", name="Pause", exact=True).click()
    stands(page)
    assert page.evaluate("location.search") == "", "a first visit keeps the short address"


@pytest.mark.parametrize("by", ["pointer", "key"])
def test_playing_ends_when_the_visitor_takes_over(open_page, by):
    page = open_page("", first=True, wait=False)
    ready(page, "explorer")
    moves(page)
    if by == "key":
        page.keyboard.press("Shift")
    else:
        page.locator("#vitviz-explorer .vv-heat").hover()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    stands(page)
    page.get_by_role("button", name="Play", exact=True).click()
    moves(page)


def test_nothing_plays_for_those_who_prefer_reduced_motion(open_page):
    page = open_page("", first=True, wait=False, reduced_motion="reduce")
    ready(page, "explorer")
    expect(title(page)).to_contain_text("Layer 4, head 3")
    stands(page)


def test_the_first_screen_leads_to_the_tour_the_training_and_all_controls(open_page):
    page = open_page("", first=True, wait=False)
    ready(page, "explorer")
    aside, timeline = page.locator("#vitviz-explorer .vv-aside"), page.locator("#vitviz-film")
    expect(aside).to_be_hidden()
    expect(timeline).to_be_hidden()
    page.get_by_role("button", name="Watch this head learn").click()
    expect(timeline).to_be_visible()
    expect(page.locator("#vitviz-facts [data-checkpoint='vitviz-tiny@0']")).to_be_attached()
    page.get_by_role("button", name="Show all controls").click()
    expect(aside).to_be_visible()
    page.goto(page.url.split("?")[0])
    ready(page, "explorer")
    page.get_by_role("button", name="Take the tour").click()
    ready(page, "tour")
    open_tab(page, "Attention")
    expect(aside).to_be_visible()


@pytest.mark.parametrize("path", ["?tab=rollout", "?sample=coffee", "?present=1"])
def test_a_link_opens_what_it_says_and_does_not_play(open_page, path):
    page = open_page(path, first=True, wait=False)
    ready(page, "rollout" if "tab" in path else "patches")
    expect(page.locator(".vv-opening:visible")).to_have_count(0)


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
