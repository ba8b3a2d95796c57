"""Contact sheets of the page for visual inspection: `python -m tests.look OUT [VIEW …] [--url URL]`.

Every view is captured in six windows and three states: fresh; after a click into its figure and a changed
setting; with removed patches. OUT receives one sheet per view, and `found.txt` with automatic findings for
each screenshot: clipped text, text outside the window, placeholders such as NaN; on a phone, a figure that
starts low and a page of more than two screens; in presentation mode, text below 18 px.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Error, sync_playwright

from tests.browser.conftest import FLAGS, Server, chromium, open_tab, ready
from vitviz.views import VIEWS

WINDOWS = {  # name: width, height, dark, presentation mode
    "1280": (1280, 720, False, False),
    "1440": (1440, 900, False, False),
    "1920": (1920, 1080, False, False),
    "phone": (390, 844, False, False),
    "lecture": (1280, 720, False, True),
    "dark": (1440, 900, True, False),
}
STATES = {"fresh": "", "changed": "", "taken": "&without=" + "patches%3D90.91.104.105"}
TALL = 360  # height of a screenshot on its sheet, px

FOUND = """(slug) => {
  const found = [];
  const shown = (css) => [...document.querySelectorAll(css)].filter((one) => one.getClientRects().length);
  const [figure] = shown(`#vitviz-${slug} .vv-figure`), screens = document.body.scrollHeight / innerHeight;
  if (innerWidth < 768) {
    const { y = 0 } = figure?.getBoundingClientRect() || {};
    if (y + scrollY > 220) found.push(`low: the figure begins at ${Math.round(y + scrollY)} px`);
    if (screens > 2 && slug !== 'tour') found.push(`long: ${screens.toFixed(2)} screens`);
  }
  if (document.documentElement.classList.contains('vv-lecturing'))
    for (const node of shown('#vitviz-page *, #vitviz-right *'))
      if ([...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim()) && node.clientWidth > 1
        && parseFloat(getComputedStyle(node).fontSize) < 18 && !node.closest('sub, sup, .vv-live')
        && node.checkVisibility({ opacityProperty: true, visibilityProperty: true }))
        found.push(`small: ${getComputedStyle(node).fontSize} ${node.textContent.slice(0, 40)}`);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const text = node.data.trim(), on = node.parentElement;
    if (getComputedStyle(on).color === 'rgba(0, 0, 0, 0)') continue; // said to those who do not see
    if (!text || on.closest('script, style, noscript, .vv-sr') || !on.checkVisibility?.({
      opacityProperty: true, visibilityProperty: true })) continue;
    if (/\\bNaN\\b|\\bundefined\\b|\\[object|\\bnull\\b|^[a-z]+\\.[a-z_]+$/.test(text))
      found.push(`value: ${text}`);
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (!box.width || on.closest('svg')) continue;
    if (box.left < -1 || box.right > innerWidth + 1) {
      let far = on;
      while (far && !/auto|scroll/.test(getComputedStyle(far).overflowX)) far = far.parentElement;
      if (!far) found.push(`outside: ${text.slice(0, 60)}`);
    }
    for (let box = on, up = 0; box && up < 3; box = box.parentElement, up += 1) {
      const style = getComputedStyle(box);
      const wide = box.scrollWidth > box.clientWidth + 1 && /hidden|clip/.test(style.overflowX);
      const high = box.scrollHeight > box.clientHeight + 2 && /hidden|clip/.test(style.overflowY);
      if (box.clientWidth > 1 && box.clientHeight > 1 && (wide || high)) {
        found.push(`cut: ${text.slice(0, 60)}`);
        break;
      }
    }
  }
  return [...new Set(found)];
}"""


def change(page, slug: str) -> None:
    """Click a third into the largest figure, and move the first slider by one step."""
    box = page.evaluate(
        """(id) => [...document.querySelectorAll(`#vitviz-${id} .vv-figure :is(canvas, svg)`)]
          .map((one) => one.getBoundingClientRect())
          .sort((a, b) => b.width * b.height - a.width * a.height)
          .map(({ x, y, width, height }) => [x, y, width, height])[0]""",
        slug,
    )
    if box and box[1] < page.viewport_size["height"]:
        x, y, width, height = box
        page.mouse.click(x + width * 0.35, y + height * 0.4)
        page.wait_for_timeout(400)
    ranges = page.locator(f"#vitviz-{slug} .vv-field input[type=range]:visible")
    if ranges.count():
        ranges.first.focus()
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(600)


def visit(page, slugs: list[str], url: str, state: str, more: str):
    """Yield (slug, screenshot, findings) for each view.

    One page opens all views in turn, as a visitor does, so that the page loads only once.
    """
    page.goto(f"{url}?tab={slugs[0]}{STATES[state]}{more}")
    for slug in slugs:
        if slug != slugs[0]:
            open_tab(page, page.locator(f"#vitviz-tab-{slug}-button").first.text_content())
        try:
            ready(page, slug, 20_000)
        except Error:
            pass  # a view that does not apply is captured, too
        if slug == "trial" and page.locator("#vitviz-trial .vv-figure").first.is_visible():
            page.locator("#vitviz-trial [data-tried*='/']").wait_for(state="attached", timeout=300_000)
        page.wait_for_timeout(700)
        if state == "changed":
            change(page, slug)
        found = page.evaluate(FOUND, slug)
        with Image.open(io.BytesIO(page.screenshot())) as image:
            yield slug, image.convert("RGB"), found


def sheet(shots: dict[tuple[str, str], Image.Image], windows: list[str]) -> Image.Image:
    """Return a contact sheet of a view, with one row per state and one column per window."""
    wide = [round(TALL * WINDOWS[window][0] / WINDOWS[window][1]) for window in windows]
    made = Image.new("RGB", (sum(wide) + 8 * len(wide), (TALL + 22) * len(STATES)), "white")
    pen = ImageDraw.Draw(made)
    for row, state in enumerate(STATES):
        left = 0
        for window, width in zip(windows, wide, strict=True):
            pen.text((left + 4, row * (TALL + 22) + 4), f"{window}, {state}", fill="black")
            made.paste(shots[state, window].resize((width, TALL)), (left, row * (TALL + 22) + 20))
            left += width + 8
    return made


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("out", type=Path)
    asked.add_argument("views", nargs="*", default=[view.slug for view in VIEWS])
    asked.add_argument("--url", help="of an app that runs; else one is started")
    asked.add_argument("--windows", nargs="*", default=list(WINDOWS))
    asked.add_argument("--lang", default="en")
    asked.add_argument("--whole", action="store_true", help="the shots themselves, beside the sheets")
    given = asked.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    server = None if given.url else Server()
    url = given.url or server.url
    told = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        shots = {slug: {} for slug in given.views}
        for window in given.windows:
            width, height, dark, lecture = WINDOWS[window]
            more = f"&lang={given.lang}" + ("&present=1" if lecture else "")
            for state in STATES:
                page = browser.new_page(
                    viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
                )
                for slug, image, found in visit(page, given.views, url, state, more):
                    shots[slug][state, window] = image
                    told += [f"{slug} {window} {state}: {line}" for line in found]
                    if given.whole:
                        image.save(given.out / f"{slug}-{window}-{state}.png")
                page.close()
        browser.close()
    for slug, seen in shots.items():
        sheet(seen, given.windows).save(given.out / f"{slug}.png")
    if server:
        server.stop()
    (given.out / "found.txt").write_text("\n".join(told) + "\n", encoding="utf-8")
    print(f"{len(given.views)} sheets in {given.out}; {len(told)} lines in found.txt")


if __name__ == "__main__":
    main()
