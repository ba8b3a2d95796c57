"""Every view fits one screen without scrolling at common sizes."""

from __future__ import annotations

import time

import pytest

from tests.browser.conftest import open_tab, ready
from tests.browser.helpers import SIZES
from vitviz.views import GROUPS, VIEWS

SLUGS = [view.slug for view in VIEWS if view.slug != "tour"]  # the tour is mainly text
MIN_AREA = 0.16  # fraction of the window for all panels of a figure
UNTRAINED = "vitviz-tiny@0"  # the same model before its training

# Parts that must be visible, and the visible area of the panels of a figure.
MEASURE = """(slug) => {
  const root = document.documentElement;
  const shown = (node) => getComputedStyle(node).visibility !== 'hidden';
  const seen = (node) => node && node.getClientRects().length && shown(node);
  const all = (css) => [...document.querySelectorAll(css)].filter(seen);
  const box = (node) => {
    const r = node.getBoundingClientRect();
    return [r.left, r.top, r.right, r.bottom];
  };
  const cut = (a, b) => a.map((edge, i) => (i < 2 ? Math.max(edge, b[i]) : Math.min(edge, b[i])));
  const inside = (node) => {
    let found = cut(box(node), [0, 0, innerWidth, innerHeight]);
    for (let up = node.parentElement; up; up = up.parentElement) {
      const { display, overflow } = getComputedStyle(up);
      if (display !== 'contents' && overflow !== 'visible') found = cut(found, box(up));
    }
    return Math.max(0, found[2] - found[0]) * Math.max(0, found[3] - found[1]);
  };
  const views = [`#vitviz-${slug}`, `#vitviz-second-${slug}`].filter((id) => all(id + ' .vv-figure').length);
  const first = (css) => views.map((id) => all(`${id} ${css}`)[0]).filter(Boolean);
  const main = first('.vv-figure .vv-plot');
  const panels = views.flatMap((id) => all(`${id} :is(.vv-figure, .vv-below) .vv-plot`));
  const parts = [
    ...main,
    ...first('.vv-figure .vv-h'),
    ...all('#vitviz-tabs [role=tablist] [role=tab], #vitviz-groups button'),
    ...all('#vitviz-film .vv-film-play, #vitviz-film input[type=range], .vv-film-more'),
    ...all('.vitviz-figures .vv-foot'),
    ...all('.vitviz-figures .vv-aside .vv-field').slice(0, 2),
    ...all('#vitviz-stage canvas'),
  ];
  const area = (node) => { const [l, t, r, b] = box(node); return (r - l) * (b - t); };
  return {
    count: main.length,
    tabs: all('#vitviz-tabs [role=tablist] [role=tab]').map((one) => one.textContent),
    groups: all('#vitviz-groups button').length,
    film: all('#vitviz-film .vv-film-play').length,
    hidden: parts
      .filter((node) => inside(node) < area(node) - 2 * (node.clientWidth + node.clientHeight || 100))
      .map((node) => `${node.className} ${node.textContent.slice(0, 40)} ${box(node).map(Math.round)}`),
    share: panels.reduce((sum, node) => sum + inside(node), 0) / (innerWidth * innerHeight),
    scrolls: [root.scrollHeight - innerHeight, root.scrollWidth - innerWidth],
  };
}"""


def lasting_faults(page, slug: str, count: int = 1) -> list[str]:
    """Return the faults that remain when the layout is stable. A busy machine lays out in several steps."""
    ready(page, slug)
    if count == 2:
        page.locator(f"#vitviz-second-{slug} [data-ready]").wait_for(state="visible")
    if slug == "trial":  # drawn when the first method is evaluated
        for place in ("", "second-")[:count]:
            page.locator(f"#vitviz-{place}trial .vv-ranking tbody tr").first.wait_for(timeout=300_000)
    measures, end = None, time.monotonic() + 30
    while True:
        page.wait_for_timeout(250)
        before, measures = measures, page.evaluate(MEASURE, slug)
        current = faults(measures, count)
        if (measures == before and not current) or time.monotonic() > end:
            return [f"{slug}: {fault}" for fault in current]


def faults(measures: dict, count: int) -> list[str]:
    lines = [f"not in view whole: {part}" for part in measures["hidden"]]
    if (measures["count"], measures["film"], measures["groups"]) != (count, 1, len(GROUPS)) or not measures[
        "tabs"
    ]:
        lines.append(f"{measures['count']} figures, {measures['film']} films, tabs: {measures['tabs']}")
    if measures["share"] < MIN_AREA:
        lines.append(f"the drawing has {measures['share']:.1%} of the window, less than {MIN_AREA:.0%}")
    if max(measures["scrolls"]) > 0:
        lines.append(f"the page scrolls by {measures['scrolls']}")
    return lines


@pytest.mark.parametrize("count", [1, 2])
def test_every_view_fits_one_screen(open_page, count):
    """The size at which a view is first drawn alternates between views."""
    path = "?tab=patches" + (f"&second={UNTRAINED}" if count == 2 else "")
    page, problems = open_page(path), []
    page.evaluate("vitviz.memory.compared = { against: 'own' }")  # the default draws both in one figure
    for number, view in enumerate(view for view in VIEWS if view.slug in SLUGS):
        for turn, (width, height) in enumerate(SIZES[number % 3 :] + SIZES[: number % 3]):
            page.set_viewport_size({"width": width, "height": height})
            open_tab(page, view.title) if not turn else None
            problems += [f"{width} x {height}, {fault}" for fault in lasting_faults(page, view.slug, count)]
    assert problems == [], "\n".join(problems)


@pytest.mark.parametrize(("language", "dark"), [("zh-CN", False), ("ko", True)])
def test_every_view_fits_one_screen_in_other_languages_and_themes(open_page, language, dark):
    page, problems = open_page(f"?tab=patches&lang={language}", 1280, 720, dark=dark), []
    for number, view in enumerate(VIEWS):
        if view.slug not in SLUGS:
            continue
        open_tab(page, page.locator("#vitviz-tabs [role=tab]").nth(number).text_content())
        problems += lasting_faults(page, view.slug)
    assert problems == [], "\n".join(problems)


def test_two_finished_evaluations_fit_one_screen(open_page):
    page = open_page(f"?tab=trial&size=64&second={UNTRAINED}", 1280, 720, wait=False)
    for cell in ("#vitviz-trial", "#vitviz-second-trial"):
        page.locator(f"{cell} [data-tried*='/']").wait_for(state="attached", timeout=300_000)
    assert lasting_faults(page, "trial", 2) == []
