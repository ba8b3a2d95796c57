"""The first screen, the groups of views (six questions) and the overview of the tour."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready
from vitviz.views import GROUPS

MOVING = """() => document.querySelector('.vv-overview').getAnimations({ subtree: true }).length"""


def expect_group(page, question: str):
    """Wait until a group of views is open."""
    expect(page.locator("#vitviz-groups button[aria-current]")).to_have_text([question])


def expect_selected_tab(page, title: str):
    expect(page.get_by_role("tab", name=title, exact=True)).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_group_button_opens_first_view_without_layout_shift(open_page, width, height):
    page = open_page("", width, height)
    expect_group(page, "Input")
    buttons = page.locator("#vitviz-groups button")
    assert buttons.all_inner_texts() == list(GROUPS) and len(GROUPS) <= 6
    places = [button.bounding_box() for button in buttons.all()]
    row = page.get_by_role("tablist").bounding_box()
    for question, views in GROUPS.items():
        page.get_by_role("button", name=question, exact=True).click()
        expect_group(page, question)
        expect(page.get_by_role("tab")).to_have_text([view.title for view in views])
        expect_selected_tab(page, views[0].title)
        page.get_by_role("tab").last.click()
        expect_selected_tab(page, views[-1].title)
        expect_group(page, question)
        assert [button.bounding_box() for button in buttons.all()] == places
        assert page.get_by_role("tablist").bounding_box() == row
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_link_and_back_button_open_the_group_of_a_view(open_page):
    page = open_page("?tab=rollout", wait=False)
    ready(page, "rollout")
    expect_group(page, "Attention")
    expect_selected_tab(page, "Rollout")
    page.wait_for_function("() => history.state?.vitviz?.tab === 'rollout'")
    page.locator("#vitviz-groups").get_by_role("button", name="Why?").click()
    ready(page, "evidence")
    page.wait_for_url("**tab=evidence**")
    page.go_back()
    expect_group(page, "Attention")
    expect_selected_tab(page, "Rollout")


def test_keyboard_reaches_groups_and_tabs(open_page):
    page = open_page()
    page.get_by_role("button", name="Layers", exact=True).focus()
    page.keyboard.press("Enter")
    ready(page, "tokens")
    for _ in range(3):  # past the other groups to the selected tab
        page.keyboard.press("Tab")
    expect(page.get_by_role("tab", name="Representations")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Rollout")).to_be_focused()
    expect_group(page, "Attention")


def query_title(page):
    return page.locator("#vitviz-explorer .vv-figure .vv-h")


def expect_query_moves(page):
    """Wait until the query moves without input."""
    before = query_title(page).inner_text()
    expect(query_title(page)).not_to_have_text(before)


def expect_query_rests(page):
    """Check that the query does not move for more than two steps."""
    before = query_title(page).inner_text()
    page.wait_for_timeout(1000)
    assert query_title(page).inner_text() == before


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_first_screen_shows_large_playing_figure(open_page, width, height):
    page = open_page("", width, height, first=True, wait=False)
    ready(page, "explorer")
    expect(query_title(page)).to_contain_text("Layer 4, head 3")
    heat = page.locator("#vitviz-explorer .vv-heat").bounding_box()
    assert heat["width"] * heat["height"] > 0.28 * width * height
    assert heat["y"] + heat["height"] < height
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect_query_moves(page)
    share = page.locator(".vv-opening-share")
    expect(share).to_have_text(
        re.compile(r"Contribution of this patch to the logit of espresso: [+−]?0\.\d{3}")
    )
    before = share.inner_text()
    expect(share).not_to_have_text(before)  # follows the query
    violations = Axe().run(page, ".vv-opening").response["violations"]
    assert [violation["id"] for violation in violations] == []
    page.get_by_role("button", name="Pause", exact=True).click()
    expect_query_rests(page)
    assert page.evaluate("location.search") == "", "the first screen changes the URL"


@pytest.mark.parametrize("by", ["pointer", "key"])
def test_user_input_pauses_the_first_screen(open_page, by):
    page = open_page("", first=True, wait=False)
    ready(page, "explorer")
    expect_query_moves(page)
    if by == "key":
        page.keyboard.press("Shift")
    else:
        page.locator("#vitviz-explorer .vv-heat").hover()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect_query_rests(page)
    page.get_by_role("button", name="Play", exact=True).click()
    expect_query_moves(page)


def test_reduced_motion_disables_autoplay(open_page):
    page = open_page("", first=True, wait=False, reduced_motion="reduce")
    ready(page, "explorer")
    expect(query_title(page)).to_contain_text("Layer 4, head 3")
    expect_query_rests(page)


def test_first_screen_links_to_tour_training_and_controls(open_page):
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
def test_link_skips_the_first_screen(open_page, path):
    page = open_page(path, first=True, wait=False)
    ready(page, "rollout" if "tab" in path else "patches")
    expect(page.locator(".vv-opening:visible")).to_have_count(0)


def test_overview_shows_model_sizes_and_links_to_views(open_page):
    page = open_page("?tab=tour&sample=rocket&size=160", 1280, 620, wait=False, reduced_motion="reduce")
    ready(page, "tour")
    prediction = page.locator("#vitviz-facts .vv-answers li").first.inner_text().split("\n")
    parts = page.locator(".vv-over")
    for part, text in zip(
        parts.all(), ["160 × 160", "20 × 20", "8 × 3 heads", prediction[-1].strip()], strict=True
    ):
        expect(part.locator(".vv-block-size")).to_have_text(text)
    expect(parts.nth(3)).to_contain_text(prediction[0])
    expect(page.locator(".vv-over-layers i")).to_have_count(8)
    assert page.evaluate(MOVING) == 0, "animations run despite reduced motion"
    figure = page.locator("#vitviz-tour .vv-tour-body > .vv-stack")
    before = figure.bounding_box()["y"]
    parts.nth(0).click()
    assert figure.bounding_box()["y"] < before - 50, "the first part does not lead to the step's figure"
    for number, view, name in (
        (1, "patches", "Patches"),
        (2, "explorer", "Attention"),
        (3, "evidence", "Attribution"),
    ):
        parts.nth(number).click()
        ready(page, view)
        expect_selected_tab(page, name)
        page.get_by_role("button", name="Start here").click()
    page.locator("#vitviz-tour .vv-next").click()
    expect(page.locator(".vv-overview")).to_be_hidden()


def test_overview_animation_plays_once(open_page):
    page = open_page("?tab=tour", wait=False)
    ready(page, "tour")
    assert page.evaluate(MOVING) > 4
    page.wait_for_function(f"() => !({MOVING})()")
    expect(page.locator(".vv-plays")).to_have_count(0)
