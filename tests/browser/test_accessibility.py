"""axe-core audits of every view, accessible names, focus rings and keyboard operation."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready, visit_views
from tests.browser.helpers import violations
from vitviz.views import VIEWS


def test_axe_finds_no_serious_violation_in_any_view(open_page):
    page = open_page(reduced_motion="reduce")  # no animation while axe measures
    for view in VIEWS:
        open_tab(page, view.title)
        ready(page, view.slug)
        if view.scope.averages:
            fold = page.locator(".vv-set-fold")
            fold.click() if fold.get_attribute("aria-expanded") == "false" else None
            expect(page.locator(".vv-set .vv-go")).to_be_visible()
    assert not (violations_found := violations(page, VIEWS)), "\n".join(violations_found)


def test_view_title_is_level_2_heading_of_24_px(open_page):
    page = open_page()
    for view in VIEWS:
        open_tab(page, view.title)
        heading = page.get_by_role("tabpanel").get_by_role("heading", name=view.title, exact=True, level=2)
        expect(heading).to_be_visible()
        expect(heading).to_have_css("font-size", "24px")


def test_figures_have_descriptive_accessible_names_before_focus(open_page):
    page = open_page()
    figures = {
        "attention": ("tab=explorer&layer=5&head=2", r"^Layer 5, head 2 · attention from: "),
        "attribution": ("tab=evidence", r"^All heads, by source patch\. Logit attribution\. Why espresso\."),
        "head": ("tab=evidence&chosen=5.2", r"^Layer 5, head 2\. Logit attribution\. Why espresso\."),
        "similarity": ("tab=compared", r"^CKA between depths\. depth of vitviz-tiny, depth of vitviz-tiny@0"),
        "representations": ("tab=tokens", r"^Principal components · depth 8, raw"),
    }
    for query, name in figures.values():
        page.goto(page.url.split("?")[0] + f"?sample=coffee&{query}")
        ready(page, query.split("&")[0].removeprefix("tab="))
        expect(page.get_by_role("application", name=re.compile(name))).to_be_visible()


def test_figure_accessible_names_are_complete(open_page):
    page = open_page()
    for _ in visit_views(page, VIEWS):
        names = page.locator("[role=application]:visible").evaluate_all(
            "(all) => all.map((node) => node.getAttribute('aria-label') ?? '')"
        )
        assert not [name for name in names if not re.search(r"\S\. Arrow keys move", name) or ", ." in name]


CLIPPED = """(view) => {
  const focusable = `:is(button, input, select, textarea, [tabindex="0"])`;
  return [...document.querySelectorAll(`#vitviz-${view} ${focusable}`)].flatMap((node) => {
    const { width } = node.getBoundingClientRect();
    node.focus({ focusVisible: true });
    const style = getComputedStyle(node);
    if (!width || document.activeElement !== node || style.opacity === '0') return [];
    const { left: x, top: y, width: w, height: h } = node.getBoundingClientRect();
    const edge = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth) - 1; // rounding
    for (let around = node.parentElement; around; around = around.parentElement) {
      const kind = getComputedStyle(around);
      const box = around.getBoundingClientRect();
      const [left, top] = [x - edge - box.left, y - edge - box.top];
      const cut = [kind.overflowX !== 'visible' && (left < -0.5 || left + w + 2 * edge > box.width + 0.5),
        kind.overflowY !== 'visible' && (top < -0.5 || top + h + 2 * edge > box.height + 0.5)];
      if (cut.some(Boolean)) return [`${view}: ${node.outerHTML.slice(0, 90)} in ${around.className}`];
    }
    return [];
  });
}"""


def test_no_focus_ring_is_clipped(open_page):
    page = open_page(width=1280, height=720)
    clipped = [fault for view in visit_views(page, VIEWS) for fault in page.evaluate(CLIPPED, view.slug)]
    assert not clipped, "\n".join(clipped)


def test_tab_key_moves_focus_from_checkpoint_picker_to_compare_button(open_page):
    page = open_page()
    page.locator("#vitviz-picker input").focus()
    expect(page.locator("#vitviz-picker .option-list")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".vv-compare > button").first).to_be_focused()


def test_export_menu_is_operated_by_keyboard(open_page):
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
    expect(items.first).to_be_focused()  # the menu opens after the key
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator(".vv-bubble")).to_be_visible()
