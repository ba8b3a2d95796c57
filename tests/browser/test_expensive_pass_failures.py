"""An expensive pass that fails, is superseded or meets a full queue."""

import threading

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import choose_sample, open_tab, ready
from tests.browser.helpers import NEEDS_PASS, notice, resize, wait_for_query, wait_redrawn
from tests.browser.running_app import RunningApp, wait_until
from vitviz.errors import OutOfMemory
from vitviz.server import options
from vitviz.traces.samples import samples

pytestmark = pytest.mark.usefixtures("every_pass_expensive")


@pytest.fixture(scope="module")
def server():
    app = RunningApp()
    yield app
    app.stop()


def test_failure_of_a_superseded_pass_is_ignored(open_page, server, monkeypatch):
    page = open_page("?size=112")
    before = ready(page, "patches")
    started, release, failed = (threading.Event() for _ in range(3))
    inspector = server.service.checkpoints.inspector("vitviz-tiny")
    forward = inspector.forward.run

    def fails(model, pixels, *given, **named):
        if pixels.shape[-1] != 144:
            return forward(model, pixels, *given, **named)
        started.set()
        assert release.wait(60)
        failed.set()
        raise OutOfMemory("There is no room for it.")

    monkeypatch.setattr(inspector.forward, "run", fails)
    resize(page, "144")
    during = wait_redrawn(page, "patches", before)
    assert started.wait(30)  # the pass that will fail is running
    monkeypatch.setattr(options, "EXPENSIVE", 10**12)
    resize(page, "112")
    assert wait_redrawn(page, "patches", during) == before
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)
    release.set()
    assert failed.wait(30)
    wait_until(lambda: server.idle)
    open_tab(page, "Attention")
    assert ready(page, "explorer") == before
    expect(notice(page)).to_be_hidden()
    expect(page.locator("#vitviz-stage")).to_contain_text("112 × 112 for the model")
    choose_sample(page, 1)  # the next image uses the last chosen size
    wait_for_query(page, sample=samples()[1].name)
    expect(page.locator("#vitviz-stage")).to_contain_text("112 × 112 for the model")


def test_request_is_repeated_after_a_full_queue(open_page, server):
    page, rejected = open_page("?tab=explorer", wait=False), []
    before = ready(page, "explorer")

    def join(route, request) -> None:
        listener = server.demo.fns[request.post_data_json["fn_index"]]
        if listener.name != "computed" or len(rejected) == 2:
            return route.continue_()
        rejected.append(request)
        route.fulfill(status=503, json={"detail": "The queue is full."})

    page.route("**/queue/join*", join)
    resize(page, "128")
    expect(page.locator("#vitviz-explorer .vv-note")).to_contain_text(NEEDS_PASS)
    key = wait_redrawn(page, "explorer", before)
    assert len(rejected) == 2 and key != before
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)


def test_failed_pass_is_reported_and_page_restored(open_page, server, monkeypatch):
    page = open_page("?tab=explorer", wait=False)
    before = ready(page, "explorer")
    inspector, release = server.service.checkpoints.inspector("vitviz-tiny"), threading.Event()

    def fails(*given, **named):
        assert release.wait(60)
        raise OutOfMemory("There is no room for it.")

    monkeypatch.setattr(inspector.forward, "run", fails)
    resize(page, "176")
    expect(page.locator("#vitviz-explorer .vv-note")).to_contain_text(NEEDS_PASS)
    release.set()
    expect(notice(page)).to_contain_text("There is no room for it.")
    expect(page.locator("#vitviz-explorer .vv-note")).to_be_hidden()
    assert ready(page, "explorer") == before
    expect(page.locator("#vitviz-stage")).to_contain_text("112 × 112 for the model")
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)


def test_cheap_pass_shows_no_progress(open_page, server, monkeypatch):
    monkeypatch.setattr(options, "EXPENSIVE", 10**12)
    page = open_page("?tab=explorer&sample=chelsea", wait=False)
    before = ready(page, "explorer")
    server.forget_traces()
    with server.gate() as gate:
        choose_sample(page, 2)
        wait_until(lambda: gate.started == 1)
        expect(page.locator("#vitviz-explorer .vv-figure")).to_be_visible()
        assert ready(page, "explorer") == before and page.locator("progress:visible").count() == 0
        gate.release()
    wait_redrawn(page, "explorer", before)
