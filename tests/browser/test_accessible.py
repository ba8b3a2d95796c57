"""What axe-core, which most accessibility checkers stand on, finds in every view: contrast, names, roles."""

from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready
from tests.browser.helpers import violations
from vitviz.views import VIEWS


def test_no_view_has_a_serious_violation(open_page):
    page = open_page(reduced_motion="reduce")  # what comes by and by is measured once it is there
    for view in VIEWS:
        open_tab(page, view.title)
        ready(page, view.slug)
        if view.averages:
            fold = page.locator(".vv-set-fold")
            fold.click() if fold.get_attribute("aria-expanded") == "false" else None
            expect(page.locator(".vv-set .vv-go")).to_be_visible()
    assert not (found := violations(page, VIEWS)), "\n".join(found)


def test_every_view_has_its_title_as_a_heading_of_24_px(open_page):
    page = open_page()
    for view in VIEWS:
        open_tab(page, view.title)
        heading = page.get_by_role("tabpanel").get_by_role("heading", name=view.title, exact=True, level=2)
        expect(heading).to_be_visible()
        expect(heading).to_have_css("font-size", "24px")


def test_an_export_menu_is_operated_by_keyboard(open_page):
    page = open_page("?tab=distance", wait=False)
    ready(page, "distance")
    export = page.get_by_role("button", name="Export")
    expect(page.locator("#vitviz-distance .vv-foot > button:visible")).to_have_text(["Reset", "Export"])
    for opened, first in (("Enter", 0), ("ArrowUp", -1)):
        expect(export).to_have_attribute("aria-expanded", "false")
        export.press(opened)
        items = page.get_by_role("menu", name="Export").get_by_role("menuitem")
        expect(items).to_have_text(
            [
                "Figure and caption (SVG, PDF, PNG)",
                "Figure (PNG)",
                "Video (MP4, GIF)",
                "Figure (HTML)",
                "Numbers (.csv)",
                "Numbers (.npz)",
                "Copy link",
                "Download all",
            ]
        )
        for key, focused in ((None, first), ("Home", 0), ("ArrowUp", -1), ("ArrowDown", 0), ("ArrowDown", 1)):
            page.keyboard.press(key) if key else None
            expect(items.nth(focused)).to_be_focused()
        page.keyboard.press("Escape")
        expect(items).to_have_count(0)
        expect(export).to_be_focused()
    export.press("Enter")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator(".vv-bubble")).to_be_visible()
