"""Helpers that several test files share."""

from __future__ import annotations

import base64
from urllib.parse import parse_qs

import numpy as np
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import open_tab, ready

FAULTS = {"resultTypes": ["violations"]}
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}  # the rules that a theme can change


def violations(page, views) -> list[str]:
    """Return serious and critical axe violations of each view; in the dark theme only those of colours."""
    from axe_playwright_python.sync_playwright import Axe  # optional, like the browser

    violations_found = []
    for view in views:
        open_tab(page, view.title)
        ready(page, view.slug)
        page.get_by_text("Definition, source and limits").locator("visible=true").click()
        # without the elements that pass, whose description takes axe most of its time
        for theme, rules in (("light", FAULTS), ("dark", FAULTS | COLOURS)):
            page.emulate_media(color_scheme=theme)
            page.locator(f"body{'.dark' if theme == 'dark' else ':not(.dark)'}").wait_for()
            page.wait_for_timeout(300)  # otherwise a fading colour is measured
            for violation in Axe().run(page, options=rules).response["violations"]:
                if violation["impact"] in ("serious", "critical"):
                    at = f"{view.title}, {theme}: {violation['id']}"
                    violations_found += [
                        f"{at}: {node['html'][:120]} {node['failureSummary']}" for node in violation["nodes"]
                    ]
        page.keyboard.press("Escape")  # close the drawer, which covers the tabs
    return violations_found


SIDE, FRAMES = 112, 48


CAMERA = "--use-fake-device-for-media-stream"


def write_camera_video(path, rate: int = 10):
    """Write a camera video as Y4M.

    Frame `n` is grey with one white patch of 8 pixels at position `n` of 14 x 14.
    """
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{SIDE} H{SIDE} F{rate}:1 Ip A1:1 C420jpeg\n".encode())
        for number in range(FRAMES):
            grey = np.full((SIDE, SIDE), 60, np.uint8)
            row, col = 2 + number // 8, 2 + number % 8
            grey[8 * row : 8 * row + 8, 8 * col : 8 * col + 8] = 250
            file.write(b"FRAME\n" + grey.tobytes() + bytes([128]) * (SIDE * SIDE // 2))
    return path


def open_with_camera(
    launched, url: str, path: str = "?sample=coffee&tab=rollout", view: str = "rollout", **options
):
    context = launched.new_context(viewport={"width": 1280, "height": 720}, **options)
    # records every camera stream of the page
    context.add_init_script(
        """window.streams = []; const { mediaDevices } = navigator;
        if (mediaDevices) { const real = mediaDevices.getUserMedia.bind(mediaDevices);
          mediaDevices.getUserMedia = async (asked) => {
            const stream = await real(asked); window.streams.push(stream); return stream; }; }"""
    )
    page = context.new_page()
    page.goto(url + path)
    ready(page, view)
    wait_for_history(page, f"moment.tab === '{view}'")
    return page


def notice(page):
    return page.locator("#vitviz-notice .vv-notice")


def patch_centre(page, trace, patch: int, heat: str = "#vitviz-explorer .vv-heat") -> tuple[float, float]:
    """Return the screen position of the centre of a patch."""
    page.locator(heat).first.scroll_into_view_if_needed()
    box, grid = page.locator(heat).first.bounding_box(), trace.grid
    row, col = divmod(patch, grid.cols)
    return (
        box["x"] + (col + 0.5) * box["width"] / grid.cols,
        box["y"] + (row + 0.5) * box["height"] / grid.rows,
    )


RECORD_SMALL_TEXT = """() => {
  const set = Object.getOwnPropertyDescriptor(CanvasRenderingContext2D.prototype, 'font').set;
  const fill = CanvasRenderingContext2D.prototype.fillText;
  window.small = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    const size = parseFloat(/([\\d.]+)px/.exec(this.font)[1]);
    if (size < 18) window.small.push(`${text} ${size}`);
    return fill.call(this, text, ...rest);
  };
}"""


def drop_file(page, path, onto: str = "body") -> None:
    """Drop a file onto the page."""
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


def download_all(page, path):
    with page.expect_download() as download:
        page.locator(".vv-everything").click()
    download.value.save_as(path)
    return path


def size_text(sample: str) -> str:
    """Return the size of a sample image as the page shows it."""
    return "{} × {}".format(*vitviz.sample_image(sample).size)


def drawn_settings(page, panel: str) -> dict[str, list[str]]:
    """Return the settings with which a view is drawn."""
    ready(page, panel)
    return parse_qs(
        page.locator(f"#vitviz-{panel} [data-ready]").get_attribute("data-ready").split("/", 1)[1],
        keep_blank_values=True,
    )


def wait_for_query(page, **wanted: str | None) -> None:
    page.wait_for_function(
        "(wanted) => { const now = new URLSearchParams(location.search); return"
        " Object.entries(wanted).every(([k, v]) => now.get(k) === v); }",
        arg=wanted,
    )


OWN_SIZE = "300 × 200"


def upload_image(page, path) -> None:
    page.set_input_files("#vitviz-upload input[type=file]", write_image(path))
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    wait_for_history(page, "moment.picture && !moment.sample")


def wait_for_history(page, condition: str) -> None:
    """Wait until the current history entry fulfils a condition."""
    page.wait_for_function(
        f"() => {{ const moment = history.state?.vitviz; return moment && ({condition}); }}"
    )


def is_painted(page, panel: str) -> bool:
    """Return whether a view shows a figure.

    That is a canvas with several colours, or a chart with several dots or lines.
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


def write_image(path, size=(300, 200)):
    import numpy as np
    from PIL import Image

    rows, cols = np.mgrid[0 : size[1], 0 : size[0]]
    Image.fromarray(np.stack([rows % 256, cols % 256, (rows * cols) % 256], -1).astype("uint8")).save(path)
    return path


NEEDS_PASS = "This view needs the whole forward pass"


def resize(page, size: str) -> None:
    if not page.locator("#vitviz-size input").is_visible():
        page.get_by_text("Comparison and input size").click()
    field = page.locator("#vitviz-size input")
    field.fill(size)
    field.press("Enter")


def wait_redrawn(page, view: str, before: str) -> str:
    """Wait until a view is drawn for another key, and return this key."""
    page.wait_for_function(
        "([view, key]) => { const mark = document.querySelector(`#vitviz-${view} [data-ready]`);"
        " return mark && !mark.dataset.ready.startsWith(key); }",
        arg=[view, before],
    )
    return ready(page, view)


def wait_for_step(page, name: str):
    page.wait_for_function(
        "(name) => document.querySelector('#vitviz-tour .vv-tour').dataset.step === name", arg=name
    )


def wait_for_snapshot(page, name: str):
    expect(page.locator("#vitviz-film .vv-film")).to_have_attribute("data-at", name)


def record_steps(page) -> None:
    """Record the training steps that the slider shows from now on, however briefly."""
    page.evaluate(
        "() => { const film = document.querySelector('#vitviz-film .vv-film'); window.steps = [];"
        " new MutationObserver(() => window.steps.push(film.dataset.at))"
        ".observe(film, { attributeFilter: ['data-at'] }); }"
    )


def wait_for_steps(page, *names: str) -> None:
    """Wait until these training steps have been shown one after another."""
    page.wait_for_function(
        "(names) => ` ${window.steps.join(' ')} `.includes(` ${names.join(' ')} `)",
        arg=list(names),
    )


SIZES = [(1280, 720), (1440, 900), (1920, 1080)]
