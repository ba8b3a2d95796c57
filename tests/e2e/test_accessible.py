"""What axe-core, the rules behind most accessibility checkers, finds in every view: contrast, names, roles."""

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import open_tab, ready

VIEWS = {"Patches": "patches", "Filters": "filters", "Positions": "positions", "Attention": "explorer", "Rollout": "rollout", "Tour": "tour"}


@pytest.mark.parametrize(("dark", "rules"), [(False, {}), (True, {"runOnly": ["color-contrast"]})], ids=["light", "dark"])
def test_no_view_has_a_serious_violation(open_page, dark, rules):
    from axe_playwright_python.sync_playwright import Axe  # with the browser: both may be absent

    page, axe, found = open_page(dark=dark), Axe(), []
    for title in [*VIEWS, "Distance"]:
        open_tab(page, title)
        if title == "Distance":
            expect(page.locator("#vitviz-distance .main-svg").first).to_be_visible(timeout=20_000)
            page.get_by_text("Average over a set of pictures").click()
            expect(page.locator("#vitviz-survey-start")).to_be_visible()
        else:
            ready(page, VIEWS[title])
        page.get_by_text("Definition, source and limits").locator("visible=true").click()
        page.wait_for_timeout(300)  # a colour that fades in would be measured on its way
        for violation in axe.run(page, options=rules).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                found += [f"{title}: {violation['id']}: {node['html'][:120]} {node['failureSummary']}" for node in violation["nodes"]]
    assert not found, "\n".join(found)
