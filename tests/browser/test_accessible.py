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
