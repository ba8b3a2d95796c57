"""Windows narrower than a desktop: a phone, a tablet, and a desktop window at 200 % zoom."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ready
from tests.browser.helpers import wait_for_history, write_image
from vitviz.server.i18n import translate
from vitviz.views import VIEWS


@pytest.mark.parametrize(("width", "height"), [(720, 450), (768, 1024), (390, 844)])
def test_training_slider_fits_narrow_windows(open_page, width, height):
    page = open_page("?tab=explorer&sample=coffee", width, height, wait=False)
    ready(page, "explorer")
    film = page.locator("#vitviz-film")
    slider, step = film.locator("input[type=range]").bounding_box(), film.locator("strong").bounding_box()
    assert slider["width"] >= 80
    assert slider["x"] >= step["x"] + step["width"]
    assert slider["y"] + slider["height"] <= height


def test_tablet_page_has_margins(open_page):
    page = open_page(width=768, height=1024)
    for part in ("#vitviz-header", "#vitviz-page"):
        box = page.locator(part).bounding_box()
        assert box["x"] >= 12 and box["x"] + box["width"] <= 768 - 12


def test_square_image_does_not_cover_change_button_on_phone(open_page, tmp_path):
    page = open_page(width=390, height=844)
    change = page.locator("#vitviz-facts .vv-unfold")
    picture = write_image(tmp_path / "square.png", (240, 240))
    page.set_input_files("#vitviz-upload input[type=file]", picture)
    wait_for_history(page, "moment.picture && !moment.sample")
    box = page.locator("#vitviz-stage canvas").bounding_box()
    assert box["height"] > 40
    assert box["y"] + box["height"] <= change.bounding_box()["y"]


def test_opening_a_view_folds_pickers_on_phone(open_page):
    page = open_page(width=390, height=844)
    change = page.locator("#vitviz-facts .vv-unfold")
    change.click()
    expect(page.locator("#vitviz-samples")).to_be_visible()
    page.get_by_role("button", name="Attention", exact=True).click()
    expect(page.locator("#vitviz-samples")).to_be_hidden()
    expect(change).to_have_attribute("aria-expanded", "false")


@pytest.mark.parametrize(
    ("language", "drawn"),
    [("en", VIEWS), ("zh-CN", VIEWS[::2]), ("ko", VIEWS[1::2])],
    ids=["en", "zh-CN", "ko"],
)
def test_phone_shows_hint_above_each_figure(open_page, language, drawn):
    """The hints of all views are read in each language, and half of the figures wait to be drawn in two."""
    page = open_page(f"?tab=patches&lang={language}", 390, 844)
    for view in VIEWS:
        page.evaluate("(slug) => document.getElementById(`vitviz-tab-${slug}-button`).click()", view.slug)
        hint = page.locator(f"#vitviz-tab-{view.slug} .vitviz-lead p").last
        expect(hint).to_have_text(translate(view.words.how, language))
        box = hint.bounding_box()
        assert box["height"] > 10
        figure = view in drawn and page.locator(f"#vitviz-{view.slug} .vv-figure").bounding_box()
        if figure and figure["height"]:
            assert box["y"] + box["height"] <= figure["y"] + 0.5, view.slug
