"""The app started as the README says, and a browser that notices errors and requests to other hosts."""

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

from tests.browser import nothing
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


def heeding_ctrl_c() -> None:
    """As from a terminal; what a shell starts in the background ignores SIGINT, and so do its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


PATIENCE = 60_000  # ms that anything is waited for: five seconds are a fast and idle machine's
STARTS = 90  # s that an app may take to start; 10 by itself, four times that beside much else


class Server:
    """A running app, of this checkout or of a copy of it."""

    def __init__(self, *arguments: str, home: Path = ROOT, **given: str):
        self.url = f"http://127.0.0.1:{(port := free_port())}/"
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "0",
            "HF_ENDPOINT": "http://127.0.0.1:9",
            **given,
        }  # a hub that cannot be reached
        if "GRADIO_TEMP_DIR" not in given:
            environment.pop("GRADIO_TEMP_DIR", None)  # the test process's own; an app has one too
        self._told = tempfile.NamedTemporaryFile()  # a pipe that nobody empties would stop what logs much
        self.process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port), *arguments],
            cwd=home,
            env=environment,
            stdout=self._told,
            stderr=subprocess.STDOUT,
            preexec_fn=heeding_ctrl_c,
        )
        end = time.monotonic() + STARTS
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"app.py ended:\n{self.said()}") from None
                time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"app.py did not answer within {STARTS} s:\n{self.said()}")

    def said(self) -> str:
        """All that the app has written."""
        return Path(self._told.name).read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error) -> None:
        self.stop()


def chromium() -> str | None:
    """The browser of this machine; the shell is the same without windows of its own, a sixth faster."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session")
def server():
    running = Server()
    yield running
    running.process.send_signal(signal.SIGINT)  # as a person does, by Ctrl-C
    running.process.wait(20)
    said = running.said()
    assert "Traceback" not in said and "leak" not in said, said


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
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield launched
        launched.close()


class Window:
    """A page in a context of its own, which one test after the other may use: the browser then keeps what it
    has fetched and compiled of the page, half of what opening it costs.
    """

    MOST = 20  # entries of a history that the next test still has room in
    open: list[Window] = []  # of the current test

    def __init__(self, browser, **options):
        self.context = browser.new_context(accept_downloads=True, **options)
        self.context.set_default_timeout(PATIENCE)
        self.context.add_init_script(nothing.SCRIPT)
        self.page = self.context.new_page()
        self.console: list[str] = []
        self.page.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.console.append(f"uncaught: {error}"))
        self._heard: list[tuple] = []
        self.page.on = self._on

    def _on(self, event: str, listener) -> None:
        self._heard.append((event, listener))
        type(self.page).on(self.page, event, listener)

    def left(self) -> bool:
        """Puts everything back at a test's end; whether another may have the page."""
        page = self.page
        if page.is_closed() or page.evaluate("history.length") > self.MOST:
            return False
        for event, listener in self._heard:
            page.remove_listener(event, listener)
        self._heard.clear()
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
        told = [f"url: {window.page.url}", *window.console]
        try:
            FAILURES.mkdir(exist_ok=True)
            window.page.screenshot(path=path, timeout=5_000)
            told.insert(0, f"screenshot: {path}")
        except Exception as error:  # the page is closed or hangs: the test's own failure matters
            told.insert(0, f"no screenshot: {error}")
        report.sections.append((f"page {number}", "\n".join(told)))
    return report


@pytest.fixture(scope="session")
def windows():
    """The window that waits for its next test, if there is one."""
    waiting: list[Window] = []
    yield waiting
    for window in waiting:
        window.context.close()


@pytest.fixture
def open_page(browser, server, windows):
    """Opens a page of the app; at the end no script may have failed, nothing may have left the machine, and
    no text that was ever shown or taken home may say NaN and the like.
    """
    opened, errors, elsewhere, taken = [], [], [], []

    def open_(
        path: str = "",
        width: int = 1440,
        height: int = 900,
        dark: bool = False,
        wait: bool = True,
        first: bool = False,  # whether the page opens with its first screen; otherwise with Patches
        **options,
    ):
        usual = not options
        window = windows.pop() if usual and windows else Window(browser, **options)
        if not first and set(parse_qs(path.partition("?")[2])) <= {"lang"}:
            path += ("&" if "?" in path else "?") + "tab=patches"
        opened.append((window, usual))
        Window.open.append(window)
        page = window.page
        page.set_viewport_size({"width": width, "height": height})
        if "color_scheme" not in options:
            page.emulate_media(color_scheme="dark" if dark else "light")
        page.on("download", lambda download: taken.append(download))
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
                else elsewhere.append(request.url)
            ),
        )
        page.goto(server.url + path)
        if wait:
            ready(page, "patches")
        return page

    yield open_
    Window.open.clear()
    errors += [fault for download in taken for fault in nothing.taken_home(download)]
    for window, usual in opened:
        if usual and not windows and window.left():
            windows.append(window)
        else:
            window.context.close()
    assert errors == [], f"script errors: {errors}"
    assert elsewhere == [], f"requests to other hosts: {elsewhere}"


def ready(page, view: str, timeout: float = PATIENCE) -> str:
    """Waits until a view has been drawn, and returns the picture's key."""
    mark = page.locator(f"#vitviz-{view} [data-ready]").first
    mark.wait_for(state="visible", timeout=timeout)
    return mark.get_attribute("data-ready").split("/")[0]


def export(page, view: str, item: str):
    """Clicks an item, a selector, in the *Export* menu of a view."""
    page.locator(f"#vitviz-{view} .vv-export").click()
    page.locator(f"#vitviz-{view} .vv-menu {item}").click()


def unfold(page, view: str):
    """Opens *More settings* of a view."""
    page.locator(f"#vitviz-{view} .vv-advanced summary").click()


def open_tab(page, name: str):
    """Opens a view's tab, where another question is open by way of its own; in one go, so that the browser's
    history has one entry of it.
    """
    tab = page.get_by_role("tab", name=name, exact=True)
    if tab.count():
        return tab.click()
    hidden = page.locator("#vitviz-tabs [role=tab]").filter(has_text=re.compile(f"^{re.escape(name)}$"))
    slug = hidden.get_attribute("id").removeprefix("vitviz-tab-").removesuffix("-button")
    groups = list(GROUPS)
    group = next((one for one, views in GROUPS.items() if slug in [view.slug for view in views]), ELSE)
    page.evaluate(
        """(slug) => document.querySelector('#vitviz-groups').addEventListener('click', () =>
          document.querySelector(`#vitviz-tab-${slug}-button`).click(), { once: true })""",
        slug,
    )
    page.locator("#vitviz-groups button").nth(groups.index(group)).click()


def walked(page, views, beside: bool = False):
    """Each view in turn, once it is open and has been drawn; `beside` it a second checkpoint's, too."""
    for view in views:
        page.evaluate("(slug) => document.getElementById(`vitviz-tab-${slug}-button`).click()", view.slug)
        for slug in (view.slug, f"second-{view.slug}")[: 1 + beside]:
            ready(page, slug)
        yield view


def question(listener: dict, said: dict) -> dict:
    """What the page sends to one of the config's listeners: a value for each of its inputs, by its number."""
    return {"fn_index": listener["id"], "data": [said.get(one) for one in listener["inputs"]]}


def middle(locator) -> float:
    """How bright the middle of an element is drawn, from 0 to 255: what a dot or a tick changes."""
    with Image.open(io.BytesIO(locator.screenshot())) as drawn:
        width, height = drawn.size
        box = (width // 2 - 2, height // 2 - 2, width // 2 + 2, height // 2 + 2)
        return ImageStat.Stat(drawn.convert("L").crop(box)).mean[0]


def drawn_otherwise(locator, before: float) -> bool:
    """Whether the middle of an element is soon drawn otherwise: a browser under load paints a frame late."""
    return any(abs(middle(locator) - before) > 60 or time.sleep(0.2) for _ in range(50))


def pick(page, name: str):
    """Switches the checkpoint."""
    picker = page.locator("#vitviz-picker input")
    picker.fill(name)
    picker.press("Enter")


def sample(page, number: int):
    """Chooses one of the sample photographs, counted from 0."""
    name = samples.samples()[number].name
    thumb = page.locator(f"#vitviz-samples [data-name={name}]")
    page.locator("#vitviz-samples .thumbnail-item").first.wait_for(state="attached")
    if not thumb.count():
        page.locator(".vv-more-samples").click()
    thumb.click()


def give_a_set(page, files: list) -> None:
    """Unfolds the panel of the set below the views, and gives it pictures."""
    page.locator(".vv-set-fold").click()
    page.locator("#vitviz-set-files input[type=file]").set_input_files(files)
    page.get_by_text(f"{len(files)} uploaded").wait_for(timeout=30_000)


def shipped(folder: Path) -> Path:
    """A copy of the shipped checkpoint in a new folder, without the film of its training."""
    return shutil.copytree(
        ROOT / "weights/vitviz-tiny", folder, ignore=shutil.ignore_patterns("snapshots*", "*.py", "film.csv")
    )


@pytest.fixture
def expensive(monkeypatch):
    """Every pass counts as a long one, of an app in the test's own process."""
    from vitviz.server import options

    monkeypatch.setattr(options, "EXPENSIVE", 1)
