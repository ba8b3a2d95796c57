"""Browser fixtures: a running app, and a Chromium page that records script errors and foreign requests."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from PIL import Image, ImageStat

from tests.browser import raw_values
from vitviz.traces import samples
from vitviz.views import ELSE, GROUPS

ROOT = Path(__file__).parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Of several such lists a browser heeds the last: the driver's own, and the address bar's popup, two pages
    # with scripts in every window, which cost a quarter of opening one.
    "--disable-features=AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,"
    "AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,"
    "PreconnectToSearch,WebUIOmniboxPopup,WebUIOmniboxAimPopup",
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def enable_ctrl_c() -> None:
    """Handle SIGINT as in a terminal. Background processes of a shell, and their children, ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


TIMEOUT_MS = 60_000  # of every wait; playwright's own 5 s fail on a busy machine
START_TIMEOUT = 90  # s; a start takes 10 s on an idle machine and 40 s on a busy one


class Server:
    """A running app, from this checkout or from a copy."""

    def __init__(self, *arguments: str, home: Path = ROOT, **given: str):
        self.url = f"http://127.0.0.1:{(port := free_port())}/"
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "0",
            "HF_ENDPOINT": "http://127.0.0.1:9",
            **given,
        }  # the endpoint is unreachable
        if "GRADIO_TEMP_DIR" not in given:
            environment.pop("GRADIO_TEMP_DIR", None)  # set for the test process only
        self._output = tempfile.NamedTemporaryFile()  # a full pipe would block the app
        self.process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port), *arguments],
            cwd=home,
            env=environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            preexec_fn=enable_ctrl_c,
        )
        end = time.monotonic() + START_TIMEOUT
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"app.py ended:\n{self.output()}") from None
                time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"app.py did not answer within {START_TIMEOUT} s:\n{self.output()}")

    def output(self) -> str:
        """Return everything that the app has written."""
        return Path(self._output.name).read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error) -> None:
        self.stop()


def chromium() -> str | None:
    """Return the path of Chromium. The headless shell is preferred because it is a sixth faster."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session")
def server():
    running = Server()
    yield running
    running.process.send_signal(signal.SIGINT)  # Ctrl-C
    running.process.wait(20)
    output = running.output()
    assert "Traceback" not in output and "leak" not in output, output


@pytest.fixture(scope="session")
def browser():
    executable = chromium()
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        executable = None
    if executable is None:
        reason = "no Chromium and Playwright on this machine: the page is not tested in a browser"
        pytest.fail(reason) if os.environ.get("VITVIZ_REQUIRE_ALL") else pytest.skip(reason)
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield launched
        launched.close()


class Window:
    """A page in its own context. Tests may use it one after another.

    The browser then keeps its cache and compiled scripts, which halves the cost of opening a page.
    """

    MAX_HISTORY = 20  # entries; Chromium keeps 50, and the next test needs some
    open: list[Window] = []  # of the current test

    def __init__(self, browser, **options):
        self.context = browser.new_context(accept_downloads=True, **options)
        self.context.set_default_timeout(TIMEOUT_MS)
        self.context.add_init_script(raw_values.SCRIPT)
        self.page = self.context.new_page()
        self.console: list[str] = []
        self.page.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.console.append(f"uncaught: {error}"))
        self._listeners: list[tuple] = []
        self.page.on = self._on

    def _on(self, event: str, listener) -> None:
        self._listeners.append((event, listener))
        type(self.page).on(self.page, event, listener)

    def left(self) -> bool:
        """Reset the page at the end of a test. Return False if no other test may use it."""
        page = self.page
        if page.is_closed() or page.evaluate("history.length") > self.MAX_HISTORY:
            return False
        for event, listener in self._listeners:
            page.remove_listener(event, listener)
        self._listeners.clear()
        self.console.clear()
        page.unroute_all(behavior="ignoreErrors")
        page.mouse.move(0, 0)
        page.goto("about:blank")
        self.context.clear_cookies()
        return True


FAILURES = ROOT / "test-failures"  # screenshots of failed tests


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Save a screenshot of each open page of a failed test, and report its path, URL and console."""
    report = yield
    if report.when != "call" or not report.failed:
        return report
    for number, window in enumerate(Window.open):
        path = FAILURES / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', item.nodeid)}-{number}.png"
        lines = [f"url: {window.page.url}", *window.console]
        try:
            FAILURES.mkdir(exist_ok=True)
            window.page.screenshot(path=path, timeout=5_000)
            lines.insert(0, f"screenshot: {path}")
        except Exception as error:  # the page may be closed; report the failure of the test
            lines.insert(0, f"no screenshot: {error}")
        report.sections.append((f"page {number}", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def windows():
    """Windows that the next test may use; at most one."""
    unused: list[Window] = []
    yield unused
    for window in unused:
        window.context.close()


@pytest.fixture
def open_page(browser, server, windows):
    """Return a function that opens a page of the app.

    The test fails if a script failed, if a request went to another host, or if a shown or downloaded text
    contained a raw value such as NaN.
    """
    opened, errors, other_hosts, downloads = [], [], [], []

    def open_(
        path: str = "",
        width: int = 1440,
        height: int = 900,
        dark: bool = False,
        wait: bool = True,
        first: bool = False,  # True: open the first screen, False: the Patches view
        **options,
    ):
        reusable = not options
        window = windows.pop() if reusable and windows else Window(browser, **options)
        if not first and set(parse_qs(path.partition("?")[2])) <= {"lang"}:
            path += ("&" if "?" in path else "?") + "tab=patches"
        opened.append((window, reusable))
        Window.open.append(window)
        page = window.page
        page.set_viewport_size({"width": width, "height": height})
        if "color_scheme" not in options:
            page.emulate_media(color_scheme="dark" if dark else "light")
        page.on("download", lambda download: downloads.append(download))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: (
                errors.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((server.url, "data:", "blob:"))
                else other_hosts.append(request.url)
            ),
        )
        page.goto(server.url + path)
        if wait:
            ready(page, "patches")
        return page

    yield open_
    Window.open.clear()
    errors += [fault for download in downloads for fault in raw_values.raw_values_in(download)]
    for window, reusable in opened:
        if reusable and not windows and window.left():
            windows.append(window)
        else:
            window.context.close()
    assert errors == [], f"script errors: {errors}"
    assert other_hosts == [], f"requests to other hosts: {other_hosts}"


def ready(page, view: str, timeout: float = TIMEOUT_MS) -> str:
    """Wait until a view is drawn, and return the key of its image."""
    mark = page.locator(f"#vitviz-{view} [data-ready]").first
    mark.wait_for(state="visible", timeout=timeout)
    return mark.get_attribute("data-ready").split("/")[0]


def export(page, view: str, item: str):
    """Click an item (a CSS selector) of the *Export* menu of a view."""
    page.locator(f"#vitviz-{view} .vv-export").click()
    page.locator(f"#vitviz-{view} .vv-menu {item}").click()


def open_more_settings(page, view: str):
    """Open *More settings* of a view."""
    page.locator(f"#vitviz-{view} .vv-advanced summary").click()


def open_tab(page, name: str):
    """Open the tab of a view, and its group of tabs if necessary.

    Both clicks happen in one handler, so that the browser's history receives one entry.
    """
    tab = page.get_by_role("tab", name=name, exact=True)
    if tab.count():
        return tab.click()
    hidden = page.locator("#vitviz-tabs [role=tab]").filter(has_text=re.compile(f"^{re.escape(name)}$"))
    slug = hidden.get_attribute("id").removeprefix("vitviz-tab-").removesuffix("-button")
    groups = list(GROUPS)
    group = next((group for group, views in GROUPS.items() if slug in [view.slug for view in views]), ELSE)
    page.evaluate(
        """(slug) => document.querySelector('#vitviz-groups').addEventListener('click', () =>
          document.querySelector(`#vitviz-tab-${slug}-button`).click(), { once: true })""",
        slug,
    )
    page.locator("#vitviz-groups button").nth(groups.index(group)).click()


def visit_views(page, views, beside: bool = False):
    """Open each view and yield it when it is drawn. `beside`: wait for the second checkpoint's view too."""
    for view in views:
        page.evaluate("(slug) => document.getElementById(`vitviz-tab-${slug}-button`).click()", view.slug)
        for slug in (view.slug, f"second-{view.slug}")[: 1 + beside]:
            ready(page, slug)
        yield view


def event_payload(listener: dict, values: dict) -> dict:
    """Return the request body for a listener of Gradio's config. `values` maps input ids to values."""
    return {"fn_index": listener["id"], "data": [values.get(input_id) for input_id in listener["inputs"]]}


def centre_brightness(locator) -> float:
    """Return the brightness (0 to 255) at the centre of an element, where a dot or a tick is drawn."""
    with Image.open(io.BytesIO(locator.screenshot())) as screenshot:
        width, height = screenshot.size
        box = (width // 2 - 2, height // 2 - 2, width // 2 + 2, height // 2 + 2)
        return ImageStat.Stat(screenshot.convert("L").crop(box)).mean[0]


def brightness_changes(locator, before: float) -> bool:
    """Return whether the brightness at the centre changes within 10 s. A busy browser paints late."""
    return any(abs(centre_brightness(locator) - before) > 60 or time.sleep(0.2) for _ in range(50))


def pick_checkpoint(page, name: str):
    """Select a checkpoint."""
    picker = page.locator("#vitviz-picker input")
    picker.fill(name)
    picker.press("Enter")


def choose_sample(page, number: int):
    """Select a sample image by its index."""
    name = samples.samples()[number].name
    thumb = page.locator(f"#vitviz-samples [data-name={name}]")
    page.locator("#vitviz-samples .thumbnail-item").first.wait_for(state="attached")
    if not thumb.count():
        page.locator(".vv-more-samples").click()
    thumb.click()


def upload_image_set(page, files: list) -> None:
    """Open the panel of the image set below the views, and upload images."""
    page.locator(".vv-set-fold").click()
    page.locator("#vitviz-set-files input[type=file]").set_input_files(files)
    page.get_by_text(f"{len(files)} uploaded").wait_for(timeout=30_000)


def copy_checkpoint(folder: Path) -> Path:
    """Copy the shipped checkpoint, without its training snapshots, to a new folder."""
    return shutil.copytree(
        ROOT / "weights/vitviz-tiny", folder, ignore=shutil.ignore_patterns("snapshots*", "*.py", "film.csv")
    )


@pytest.fixture
def every_pass_expensive(monkeypatch):
    """Classify every forward pass of an app in the test process as expensive."""
    from vitviz.server import options

    monkeypatch.setattr(options, "EXPENSIVE", 1)
