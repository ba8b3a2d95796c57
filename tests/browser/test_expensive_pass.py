"""During an expensive pass: views that need no pass are drawn, and the others show progress."""

import threading

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import choose_sample, open_tab, ready
from tests.browser.helpers import (
    NEEDS_PASS,
    download_all,
    drawn_settings,
    drop_file,
    is_painted,
    resize,
    wait_for_query,
    wait_redrawn,
)
from tests.browser.running_app import RunningApp, wait_until
from vitviz.server import options
from vitviz.traces.samples import samples
from vitviz.views import VIEWS

LAYERS = 8
pytestmark = pytest.mark.usefixtures("every_pass_expensive")


@pytest.fixture(scope="module")
def server():
    app = RunningApp()
    yield app
    app.stop()


@pytest.fixture
def held_pass(server):
    """Hold every pass after three layers until it is released."""
    release, started = threading.Event(), threading.Event()

    def hold(tensor) -> None:
        started.set()
        assert release.wait(60), "a pass was held and never released"

    with server.service.checkpoints.inspector("vitviz-tiny").hook("blocks.3.input", hold):
        yield started, release
        release.set()
        wait_until(lambda: server.idle)


def test_views_without_pass_are_drawn_and_others_show_progress(open_page, held_pass):
    came, free = held_pass
    free.set()
    page = open_page()
    before = ready(page, "patches")
    free.clear(), came.clear()
    resize(page, "168")
    assert came.wait(30)
    key = wait_redrawn(page, "patches", before)
    expect(page.locator("#vitviz-stage")).to_contain_text("168 × 168 for the model")
    expect(page.locator("#vitviz-patches")).to_contain_text("21 × 21 = 441 patches of 8 × 8 pixels")
    expect(page.locator("#vitviz-patches .vv-norms")).to_be_hidden()  # norms need the pass
    assert is_painted(page, "patches")
    facts = page.locator("#vitviz-facts")
    expect(facts).to_contain_text(f"layer 3 of {LAYERS}")
    for view in VIEWS:
        open_tab(page, view.title)
        if view.scope.needs_no_pass:
            assert ready(page, view.slug) == key
            continue
        note = page.locator(f"#vitviz-{view.slug} .vv-note")
        expect(note).to_contain_text(NEEDS_PASS)
        expect(note).to_contain_text(f"layer 3 of {LAYERS}")
        assert note.evaluate("(node) => node.scrollHeight <= node.clientHeight"), "the note is cut off"
        assert note.locator("progress").evaluate("(bar) => [bar.value, bar.max]") == [3, LAYERS]
        expect(page.locator(f"#vitviz-{view.slug} .vv-figure")).to_be_hidden()
    free.set()
    open_tab(page, "Attention")
    assert ready(page, "explorer") == key
    expect(page.locator("#vitviz-explorer .vv-note")).to_be_hidden()
    expect(facts.locator(".vv-answers li")).to_have_count(3)
    open_tab(page, "Patches")
    expect(page.locator("#vitviz-patches .vv-norms")).to_be_visible()
    assert ready(page, "patches") == key


def test_page_with_large_input_draws_patches_during_the_pass(open_page, held_pass):
    came, free = held_pass
    page = open_page("?sample=rocket&size=184&lang=zh-CN", wait=False)
    assert came.wait(30)
    ready(page, "patches")
    assert is_painted(page, "patches")
    expect(page.locator("#vitviz-facts")).to_contain_text(f"第 3 层，共 {LAYERS} 层")
    free.set()
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)


def test_link_with_edits_shows_no_prediction_before_the_pass(open_page, held_pass):
    came, free = held_pass
    page = open_page("?sample=rocket&size=200&without=patches%3D0.1%20patches_as%3Dblack", wait=False)
    assert came.wait(30)
    ready(page, "patches")
    expect(page.locator("#vitviz-edits .vv-edit").first).to_be_visible()  # the removed patches are listed
    facts = page.locator("#vitviz-facts")
    expect(facts.locator(".vv-answers")).to_have_count(0)  # no prediction of the unedited image
    open_tab(page, "Rollout")
    expect(page.locator("#vitviz-rollout .vv-note")).to_contain_text(NEEDS_PASS)
    free.set()
    expect(facts.locator(".vv-before").first).to_be_visible()
    expect(facts.locator(".vv-answers li")).to_have_count(3)
    ready(page, "rollout")


def test_tab_changed_during_a_pass_stays_open(open_page, held_pass):
    came, free = held_pass
    page = open_page("?sample=rocket&size=192&tab=rollout", wait=False)
    assert came.wait(30)
    expect(page.locator("#vitviz-rollout .vv-note")).to_contain_text(NEEDS_PASS)
    open_tab(page, "Attention distance")
    expect(page.locator("#vitviz-distance .vv-note")).to_contain_text(NEEDS_PASS)
    free.set()
    ready(page, "distance")
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)
    wait_for_query(page, tab="distance", size="192")


def test_back_waits_for_the_pass_and_restores_settings(open_page, server, held_pass):
    came, free = held_pass
    free.set()
    page = open_page("?tab=rollout", wait=False)
    before = ready(page, "rollout")
    slider = page.locator("#vitviz-rollout [data-name=residual] input")
    slider.fill("0.8")
    wait_for_query(page, residual="0.8")
    resize(page, "160")
    between = wait_redrawn(page, "rollout", before)
    slider.fill("0.3")
    wait_for_query(page, residual="0.3", size="160")
    server.forget_traces()
    free.clear(), came.clear()
    page.go_back()
    assert came.wait(30)
    expect(page.locator("#vitviz-rollout .vv-note")).to_contain_text(f"layer 3 of {LAYERS}")
    free.set()
    assert wait_redrawn(page, "rollout", between) == before
    wait_for_query(page, residual="0.8", size=None)
    expect(slider).to_have_value("0.8")


def test_lesson_shows_progress_and_then_opens_its_view(open_page, server, held_pass, tmp_path):
    came, free = held_pass
    free.set()
    page = open_page("?size=136&tab=rollout&residual=0.7", wait=False)
    ready(page, "rollout")
    wait_for_query(page, residual="0.7")
    lesson = download_all(page, tmp_path / "lesson.zip")
    page = open_page()
    server.forget_traces()
    free.clear(), came.clear()
    drop_file(page, lesson)
    assert came.wait(30)
    expect(page.locator("#vitviz-facts")).to_contain_text(f"layer 3 of {LAYERS}")
    expect(page.locator("#vitviz-rollout .vv-note")).to_contain_text(
        NEEDS_PASS
    )  # the view of the lesson is already open
    expect(page.locator("#vitviz-rollout .vv-note")).to_be_visible()
    open_tab(page, "Patches")
    expect(page.locator("#vitviz-patches")).to_contain_text("17 × 17 = 289 patches")
    open_tab(page, "Rollout")
    free.set()
    ready(page, "rollout")
    wait_for_query(page, tab="rollout", size="136x136", residual="0.7")
    assert drawn_settings(page, "rollout")["residual"] == ["0.7"]


def test_size_chosen_during_a_pass_stays(open_page, server, held_pass, monkeypatch):
    came, free = held_pass
    free.set()
    page = open_page("?size=112")
    before = ready(page, "patches")
    free.clear(), came.clear()
    resize(page, "152")
    assert came.wait(30)
    during = wait_redrawn(page, "patches", before)
    monkeypatch.setattr(options, "EXPENSIVE", 10**12)  # otherwise the cached size would queue too
    resize(page, "112")
    wait_redrawn(page, "patches", during)
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)
    free.set()
    wait_until(lambda: server.idle)
    choose_sample(page, 2)  # the next image uses the last chosen size
    wait_for_query(page, sample=samples()[2].name)
    expect(page.locator("#vitviz-stage")).to_contain_text("112 × 112 for the model")
