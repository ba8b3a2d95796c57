"""While a long pass is made: what needs none of it stands there, the rest says how far it is."""

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
from tests.browser.house import RunningApp, wait_until
from vitviz.server import options
from vitviz.traces.samples import samples
from vitviz.views import VIEWS

LAYERS = 8
pytestmark = pytest.mark.usefixtures("expensive")


@pytest.fixture(scope="module")
def server():
    house = RunningApp()
    yield house
    house.stop()


@pytest.fixture
def held(server):
    """Holds every pass in the middle, with so many layers done, until it is let go."""
    free, came = threading.Event(), threading.Event()

    def hold(tensor) -> None:
        came.set()
        assert free.wait(60), "a pass was held and never let go"

    with server.service.checkpoints.inspector("vitviz-tiny").hook("blocks.3.input", hold):
        yield came, free
        free.set()
        wait_until(lambda: server.idle)


def test_picture_grid_filters_and_positions_stand_at_once_and_the_rest_says_how_far_it_is(open_page, held):
    came, free = held
    free.set()
    page = open_page()
    before = ready(page, "patches")
    free.clear(), came.clear()
    resize(page, "168")
    assert came.wait(30)
    key = wait_redrawn(page, "patches", before)
    expect(page.locator("#vitviz-stage")).to_contain_text("168 × 168 for the model")
    expect(page.locator("#vitviz-patches")).to_contain_text("21 × 21 = 441 patches of 8 × 8 pixels")
    expect(page.locator("#vitviz-patches .vv-norms")).to_be_hidden()  # of the embedding: they come with it
    assert is_painted(page, "patches")
    facts = page.locator("#vitviz-facts")
    expect(facts).to_contain_text(f"layer 3 of {LAYERS}")
    for view in VIEWS:
        open_tab(page, view.title)
        if view.needs_no_pass:
            assert ready(page, view.slug) == key
            continue
        note = page.locator(f"#vitviz-{view.slug} .vv-note")
        expect(note).to_contain_text(NEEDS_PASS)
        expect(note).to_contain_text(f"layer 3 of {LAYERS}")
        assert note.evaluate("(node) => node.scrollHeight <= node.clientHeight"), "all of it can be read"
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


def test_a_page_that_is_opened_with_a_large_input_is_not_empty_meanwhile(open_page, held):
    came, free = held
    page = open_page("?sample=rocket&size=184&lang=zh-CN", wait=False)
    assert came.wait(30)
    ready(page, "patches")
    assert is_painted(page, "patches")
    expect(page.locator("#vitviz-facts")).to_contain_text(f"第 3 层，共 {LAYERS} 层")
    free.set()
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)


def test_a_link_with_edits_stands_there_untouched_until_what_they_do_is_computed(open_page, held):
    came, free = held
    page = open_page("?sample=rocket&size=200&without=patches%3D0.1%20patches_as%3Dblack", wait=False)
    assert came.wait(30)
    ready(page, "patches")
    expect(page.locator("#vitviz-edits .vv-edit").first).to_be_visible()  # it is said that patches go
    facts = page.locator("#vitviz-facts")
    expect(facts.locator(".vv-answers")).to_have_count(0)  # and nothing that might be taken for the answer
    open_tab(page, "Rollout")
    expect(page.locator("#vitviz-rollout .vv-note")).to_contain_text(NEEDS_PASS)
    free.set()
    expect(facts.locator(".vv-before").first).to_be_visible()
    expect(facts.locator(".vv-answers li")).to_have_count(3)
    ready(page, "rollout")


def test_whoever_goes_on_to_another_tab_meanwhile_stays_there(open_page, held):
    came, free = held
    page = open_page("?sample=rocket&size=192&tab=rollout", wait=False)
    assert came.wait(30)
    expect(page.locator("#vitviz-rollout .vv-note")).to_contain_text(NEEDS_PASS)
    open_tab(page, "Attention distance")
    expect(page.locator("#vitviz-distance .vv-note")).to_contain_text(NEEDS_PASS)
    free.set()
    ready(page, "distance")
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)
    wait_for_query(page, tab="distance", size="192")


def test_back_to_what_takes_long_waits_for_it_and_brings_its_settings(open_page, server, held):
    came, free = held
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


def test_a_lesson_that_takes_long_stands_there_too_and_then_opens_its_view(open_page, server, held, tmp_path):
    came, free = held
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
    expect(page.locator("#vitviz-rollout .vv-note")).to_contain_text(NEEDS_PASS)  # its view is open already
    expect(page.locator("#vitviz-rollout .vv-note")).to_be_visible()
    open_tab(page, "Patches")
    expect(page.locator("#vitviz-patches")).to_contain_text("17 × 17 = 289 patches")
    open_tab(page, "Rollout")
    free.set()
    ready(page, "rollout")
    wait_for_query(page, tab="rollout", size="136x136", residual="0.7")
    assert drawn_settings(page, "rollout")["residual"] == ["0.7"]


def test_what_is_chosen_meanwhile_stays(open_page, server, held, monkeypatch):
    came, free = held
    free.set()
    page = open_page("?size=112")
    before = ready(page, "patches")
    free.clear(), came.clear()
    resize(page, "152")
    assert came.wait(30)
    during = wait_redrawn(page, "patches", before)
    monkeypatch.setattr(options, "EXPENSIVE", 10**12)  # or what is known would wait for the same turn
    resize(page, "112")
    wait_redrawn(page, "patches", during)
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)
    free.set()
    wait_until(lambda: server.idle)
    choose_sample(page, 2)  # and what comes next is of the size that was chosen last
    wait_for_query(page, sample=samples()[2].name)
    expect(page.locator("#vitviz-stage")).to_contain_text("112 × 112 for the model")
