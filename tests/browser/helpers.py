"""Helpers that several test files share."""

from __future__ import annotations

import base64
from urllib.parse import parse_qs

import numpy as np
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import open_tab, ready

COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}  # the rules that a theme can change


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


SIDE, FRAMES = 112, 48


CAMERA = "--use-fake-device-for-media-stream"


def filmed(path, rate: int = 10):
    """A camera's film as Y4M, so many frames a second: frame `n` is grey, with one white patch of 8 pixels at
    place `n` of 14 x 14.
    """
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{SIDE} H{SIDE} F{rate}:1 Ip A1:1 C420jpeg\n".encode())
        for number in range(FRAMES):
            grey = np.full((SIDE, SIDE), 60, np.uint8)
            row, col = 2 + number // 8, 2 + number % 8
            grey[8 * row : 8 * row + 8, 8 * col : 8 * col + 8] = 250
            file.write(b"FRAME\n" + grey.tobytes() + bytes([128]) * (SIDE * SIDE // 2))
    return path


def opened(launched, url: str, path: str = "?sample=coffee&tab=rollout", view: str = "rollout", **options):
    context = launched.new_context(viewport={"width": 1280, "height": 720}, **options)
    # every stream that the page is given, for the lamp
    context.add_init_script(
        """window.streams = []; const { mediaDevices } = navigator;
        if (mediaDevices) { const real = mediaDevices.getUserMedia.bind(mediaDevices);
          mediaDevices.getUserMedia = async (asked) => {
            const stream = await real(asked); window.streams.push(stream); return stream; }; }"""
    )
    page = context.new_page()
    page.goto(url + path)
    ready(page, view)
    kept(page, f"moment.tab === '{view}'")
    return page


def notice(page):
    return page.locator("#vitviz-notice .vv-notice")


def cell(page, trace, patch: int, heat: str = "#vitviz-explorer .vv-heat") -> tuple[float, float]:
    """The middle of a patch on the screen."""
    page.locator(heat).first.scroll_into_view_if_needed()
    box, grid = page.locator(heat).first.bounding_box(), trace.grid
    row, col = divmod(patch, grid.cols)
    return (
        box["x"] + (col + 0.5) * box["width"] / grid.cols,
        box["y"] + (row + 0.5) * box["height"] / grid.rows,
    )


DRAWN_SMALL = """() => {
  const set = Object.getOwnPropertyDescriptor(CanvasRenderingContext2D.prototype, 'font').set;
  const fill = CanvasRenderingContext2D.prototype.fillText;
  window.small = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    const size = parseFloat(/([\\d.]+)px/.exec(this.font)[1]);
    if (size < 18) window.small.push(`${text} ${size}`);
    return fill.call(this, text, ...rest);
  };
}"""


def dropped(page, path, onto: str = "body") -> None:
    """Drops a file onto the page, as a hand does."""
    data = base64.b64encode(path.read_bytes()).decode()
    held = page.evaluate_handle(
        """([data, name]) => {
            const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
            const held = new DataTransfer();
            held.items.add(new File([bytes], name));
            return held;
        }""",
        [data, path.name],
    )
    for event in ("dragenter", "dragover", "drop"):
        page.dispatch_event(onto, event, {"dataTransfer": held})


def taken_home(page, path):
    with page.expect_download() as download:
        page.locator(".vv-everything").click()
    download.value.save_as(path)
    return path


def size(sample: str) -> str:
    """A sample's width and height as the page says them."""
    return "{} × {}".format(*vitviz.sample_image(sample).size)


def drawn(page, panel: str) -> dict[str, list[str]]:
    """The settings with which a view has been drawn."""
    ready(page, panel)
    return parse_qs(
        page.locator(f"#vitviz-{panel} [data-ready]").get_attribute("data-ready").split("/", 1)[1],
        keep_blank_values=True,
    )


def until_asked(page, **wanted: str | None) -> None:
    page.wait_for_function(
        "(wanted) => { const now = new URLSearchParams(location.search); return"
        " Object.entries(wanted).every(([k, v]) => now.get(k) === v); }",
        arg=wanted,
    )


OWN = "300 × 200"


def upload(page, path) -> None:
    page.set_input_files("#vitviz-upload input[type=file]", write_picture(path))
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN)
    kept(page, "moment.picture && !moment.sample")


def kept(page, condition: str) -> None:
    """Waits until the entry in view of the browser's history says so."""
    page.wait_for_function(
        f"() => {{ const moment = history.state?.vitviz; return moment && ({condition}); }}"
    )


def painted(page, panel: str) -> bool:
    """Whether a view's largest canvas in sight holds more than one colour, or its chart a dot for each of
    several points, or a line.
    """
    return page.evaluate(
        """(id) => {
        const area = (one) => one.width * one.height;
        const all = [...document.querySelectorAll(`#vitviz-${id} canvas`)]
          .filter((one) => one.getClientRects().length).sort((a, b) => area(b) - area(a));
        const drawn = (what) => document.querySelectorAll(`#vitviz-${id} svg ${what}`).length;
        if (!all.length) return drawn(':is(circle, .point)') >= 9 || drawn(':is(polyline, .js-line)') >= 2;
        const { data } = all[0].getContext('2d').getImageData(0, 0, all[0].width, all[0].height);
        const colours = new Set();
        const step = 4 * Math.min(97, Math.ceil(data.length / 4 / 99));  // a map of 14 × 14 too
        for (let i = 0; i < data.length && colours.size < 9; i += step)
          colours.add(data.slice(i, i + 4).join());
        return colours.size >= 9;
    }""",
        panel,
    )


def write_picture(path, size=(300, 200)):
    import numpy as np
    from PIL import Image

    rows, cols = np.mgrid[0 : size[1], 0 : size[0]]
    Image.fromarray(np.stack([rows % 256, cols % 256, (rows * cols) % 256], -1).astype("uint8")).save(path)
    return path


WAITS = "This view needs the whole forward pass"


def resize(page, size: str) -> None:
    if not page.locator("#vitviz-size input").is_visible():
        page.get_by_text("Comparison and input size").click()
    field = page.locator("#vitviz-size input")
    field.fill(size)
    field.press("Enter")


def stands(page, view: str, before: str) -> str:
    """Waits until a view has been drawn for another key, and returns that."""
    page.wait_for_function(
        "([view, key]) => { const mark = document.querySelector(`#vitviz-${view} [data-ready]`);"
        " return mark && !mark.dataset.ready.startsWith(key); }",
        arg=[view, before],
    )
    return ready(page, view)


def arrived(page, name: str):
    page.wait_for_function(
        "(name) => document.querySelector('#vitviz-tour .vv-tour').dataset.step === name", arg=name
    )


def at(page, name: str):
    expect(page.locator("#vitviz-film .vv-film")).to_have_attribute("data-at", name, timeout=15_000)


def stepping(page) -> None:
    """From now on the steps that the film comes to are kept, however short each stands there."""
    page.evaluate(
        "() => { const film = document.querySelector('#vitviz-film .vv-film'); window.steps = [];"
        " new MutationObserver(() => window.steps.push(film.dataset.at))"
        ".observe(film, { attributeFilter: ['data-at'] }); }"
    )


def came_to(page, *names: str) -> None:
    """Waits until these steps have followed each other."""
    page.wait_for_function(
        "(names) => ` ${window.steps.join(' ')} `.includes(` ${names.join(' ')} `)",
        arg=list(names),
        timeout=20_000,
    )


SIZES = [(1280, 720), (1440, 900), (1920, 1080)]
