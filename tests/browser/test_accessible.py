"""What axe-core, which most accessibility checkers stand on, finds in every view: contrast, names, roles."""

from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready
from vitviz.views import VIEWS

COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}  # the rules that a theme can change


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


def violations(page, views) -> list[str]:
    """What axe finds serious or critical in each view's tab, by colours in the dark too."""
    from axe_playwright_python.sync_playwright import Axe  # with the browser: both may be absent

    found = []
    for view in views:
        open_tab(page, view.title)
        ready(page, view.slug)
        page.get_by_text("Definition, source and limits").locator("visible=true").click()
        for theme, rules in (("light", {}), ("dark", COLOURS)):
            page.emulate_media(color_scheme=theme)
            page.locator(f"body{'.dark' if theme == 'dark' else ':not(.dark)'}").wait_for()
            page.wait_for_timeout(300)  # a colour that fades in would be measured on its way
            for violation in Axe().run(page, options=rules).response["violations"]:
                if violation["impact"] in ("serious", "critical"):
                    at = f"{view.title}, {theme}: {violation['id']}"
                    found += [
                        f"{at}: {node['html'][:120]} {node['failureSummary']}" for node in violation["nodes"]
                    ]
        page.keyboard.press("Escape")  # the drawer lies over the tabs
    return found
