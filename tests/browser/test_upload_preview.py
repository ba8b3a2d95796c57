"""One screen: at the sizes of a projector and of common screens nothing of a view has to be scrolled to."""

from __future__ import annotations

import time

import pytest

from tests.browser.conftest import open_tab, ready
from tests.browser.helpers import SIZES
from vitviz.views import GROUPS, VIEWS

DRAWN = [view.slug for view in VIEWS if view.slug != "tour"]  # the tour is a text with figures
LEAST = 0.16  # of the window, all panels of the drawing together
ALIKE = "vitviz-tiny@0"  # the same model before its training

# The boxes of what has to be in view, and the area of the drawing's panels inside the window and their cells.
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


def settled(page, slug: str, count: int = 1) -> list[str]:
    """What is wrong once the room has been taken: a busy machine takes it in several steps, so a fault is one
    that stays.
    """
    ready(page, slug)
    if count == 2:
        page.locator(f"#vitviz-second-{slug} [data-ready]").wait_for(state="visible")
    if slug == "trial":  # each is drawn from its first method on, which a busy machine takes a while to try
        for place in ("", "second-")[:count]:
            page.locator(f"#vitviz-{place}trial .vv-ranking tbody tr").first.wait_for(timeout=300_000)
    found, end = None, time.monotonic() + 30
    while True:
        page.wait_for_timeout(250)
        before, found = found, page.evaluate(MEASURE, slug)
        told = faults(found, count)
        if (found == before and not told) or time.monotonic() > end:
            return [f"{slug}: {fault}" for fault in told]


def faults(found: dict, count: int) -> list[str]:
    told = [f"not in view whole: {part}" for part in found["hidden"]]
    if (found["count"], found["film"], found["groups"]) != (count, 1, len(GROUPS)) or not found["tabs"]:
        told.append(f"{found['count']} figures, {found['film']} films, tabs: {found['tabs']}")
    if found["share"] < LEAST:
        told.append(f"the drawing has {found['share']:.1%} of the window, less than {LEAST:.0%}")
    if max(found["scrolls"]) > 0:
        told.append(f"the page scrolls by {found['scrolls']}")
    return told


@pytest.mark.parametrize("count", [1, 2])
def test_every_view_is_one_screen(open_page, count):
    """Each at every size; the one that it is first drawn at goes round from view to view."""
    path = "?tab=patches" + (f"&second={ALIKE}" if count == 2 else "")
    page, told = open_page(path), []
    page.evaluate("vitviz.memory.compared = { against: 'own' }")  # else it draws both in one figure
    for number, view in enumerate(view for view in VIEWS if view.slug in DRAWN):
        for turn, (width, height) in enumerate(SIZES[number % 3 :] + SIZES[: number % 3]):
            page.set_viewport_size({"width": width, "height": height})
            open_tab(page, view.title) if not turn else None
            told += [f"{width} x {height}, {fault}" for fault in settled(page, view.slug, count)]
    assert told == [], "\n".join(told)


@pytest.mark.parametrize(("language", "dark"), [("zh-CN", False), ("ko", True)])
def test_so_it_is_in_every_language_and_theme(open_page, language, dark):
    page, told = open_page(f"?tab=patches&lang={language}", 1280, 720, dark=dark), []
    for number, view in enumerate(VIEWS):
        if view.slug not in DRAWN:
            continue
        open_tab(page, page.locator("#vitviz-tabs [role=tab]").nth(number).text_content())
        told += settled(page, view.slug)
    assert told == [], "\n".join(told)


def test_two_trials_that_are_over_are_one_screen(open_page):
    page = open_page(f"?tab=trial&size=64&second={ALIKE}", 1280, 720, wait=False)
    for cell in ("#vitviz-trial", "#vitviz-second-trial"):
        page.locator(f"{cell} [data-tried*='/']").wait_for(state="attached", timeout=300_000)
    assert settled(page, "trial", 2) == []
