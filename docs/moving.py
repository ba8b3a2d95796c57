"""The README's moving picture, from the running page: `python docs/moving.py docs/page.webp [--url URL]`.

A visitor's first half minute: where a patch looks, why this answer, how attention flows, and how positions
came to be while the model was trained. Needs Chromium and Playwright, as the browser's tests do.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the tests' server and browser, which are imported behind it

from playwright.sync_api import sync_playwright  # noqa: E402, behind the path that tests are found by

from tests.browser.conftest import FLAGS, Server, chromium, ready  # noqa: E402, found by that path

WIDTH, HEIGHT, SHOWN = 1280, 720, (960, 540)
BEAT = 90  # ms a frame while something moves
HOLD = 1_400  # ms that a finished figure stands


class Reel:
    """Frames of a page, each with how long it stands."""

    def __init__(self, page):
        self.page, self.frames, self.times = page, [], []

    def take(self, stands: int = BEAT) -> None:
        with Image.open(io.BytesIO(self.page.screenshot())) as shot:
            self.frames.append(shot.convert("RGB").resize(SHOWN, Image.Resampling.LANCZOS))
        self.times.append(stands)

    def open(self, slug: str) -> tuple[float, float, float, float]:
        """A view, by the address that a link has; where its largest figure lies."""
        self.page.goto(f"{self.page.url.split('?')[0]}?sample=coffee&tab={slug}")
        ready(self.page, slug)
        self.page.wait_for_timeout(700)
        self.take(HOLD)
        boxes = [one.bounding_box() for one in self.page.locator(f"#vitviz-{slug} .vv-figure canvas").all()]
        largest = max((box for box in boxes if box), key=lambda box: box["width"] * box["height"])
        return largest["x"], largest["y"], largest["width"], largest["height"]

    def wander(self, box: tuple[float, float, float, float], path: list[tuple[float, float]]) -> None:
        """The pointer along points of the figure, in shares of its sides."""
        for (x0, y0), (x1, y1) in zip(path, path[1:], strict=False):
            for step in range(8):
                x, y = x0 + (x1 - x0) * step / 8, y0 + (y1 - y0) * step / 8
                self.page.mouse.move(box[0] + x * box[2], box[1] + y * box[3])
                self.page.wait_for_timeout(40)
                self.take()
        self.times[-1] = HOLD


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("out", type=Path)
    asked.add_argument("--url", help="of an app that runs; else one is started")
    given = asked.parse_args()
    server = None if given.url else Server()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(given.url or server.url)
        reel = Reel(page)
        reel.wander(reel.open("explorer"), [(0.2, 0.2), (0.5, 0.3), (0.6, 0.6), (0.35, 0.7)])
        reel.wander(reel.open("evidence"), [(0.3, 0.3), (0.6, 0.4), (0.5, 0.65)])
        reel.open("rollout")
        reel.open("positions")
        film = page.locator("#vitviz-film input[type=range]")
        last = int(film.get_attribute("max"))
        for step in range(last + 1):
            film.fill(str(step))
            page.wait_for_timeout(600)
            reel.take(350)
        reel.times[-1] = 2 * HOLD
        browser.close()
    if server:
        server.stop()
    first, *rest = reel.frames
    first.save(
        given.out, save_all=True, append_images=rest, duration=reel.times, loop=0, quality=60, method=4
    )
    size = given.out.stat().st_size
    print(f"{given.out}: {len(reel.frames)} frames, {sum(reel.times) / 1000:.0f} s, {size / 1e6:.2f} MB")
    assert size <= 3e6, "the README's moving picture is to have at most 3 MB"


if __name__ == "__main__":
    main()
