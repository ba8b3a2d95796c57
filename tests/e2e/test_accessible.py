"""What axe-core, which most accessibility checkers stand on, finds in every view: contrast, names, roles."""

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import open_tab, ready
from vitviz.views import VIEWS


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_view_has_a_serious_violation(open_page, dark):
    page = open_page(dark=dark, reduced_motion="reduce")  # what comes by and by is measured once it is there
    for view in VIEWS:
        open_tab(page, view.title)
        ready(page, view.slug)
        if view.averages:
            fold = page.locator(".vv-set-fold")
            fold.click() if fold.get_attribute("aria-expanded") == "false" else None
            expect(page.locator(".vv-set .vv-go")).to_be_visible()
    assert not (found := violations(page, VIEWS)), "\n".join(found)


def violations(page, views) -> list[str]:
    """What axe finds serious or critical in each view's tab."""
    from axe_playwright_python.sync_playwright import Axe  # with the browser: both may be absent

    found = []
    for view in views:
        open_tab(page, view.title)
        ready(page, view.slug)
        page.get_by_text("Definition, source and limits").locator("visible=true").click()
        page.wait_for_timeout(300)  # a colour that fades in would be measured on its way
        for violation in Axe().run(page).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                found += [
                    f"{view.title}: {violation['id']}: {node['html'][:120]} {node['failureSummary']}"
                    for node in violation["nodes"]
                ]
        page.keyboard.press("Escape")  # the drawer lies over the tabs
    return found
