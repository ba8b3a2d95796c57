"""Back, Forward, reload and language switch restore the view, the settings and an uploaded image."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, choose_sample, open_tab, pick_checkpoint, ready, upload_image_set
from tests.browser.helpers import (
    OWN_SIZE,
    drawn_settings,
    resize,
    size_text,
    upload_image,
    wait_for_history,
    wait_for_query,
    write_image,
)


def history_length(page) -> int:
    return page.evaluate("history.length")


def test_back_and_forward_restore_images_views_checkpoints_and_edits(open_page, tmp_path):
    page = open_page("?sample=rocket&tab=patches")
    wait_for_history(page, "moment.sample === 'rocket'")
    start = history_length(page)
    upload_image(page, tmp_path / "mine.png")
    open_tab(page, "Rollout")
    wait_for_query(page, tab="rollout")
    ready(page, "rollout")
    pick_checkpoint(page, "vitviz-tiny@30")
    wait_for_query(page, checkpoint="vitviz-tiny@30")
    pick_checkpoint(page, "vitviz-positions-none-0")
    wait_for_query(page, checkpoint="vitviz-positions-none-0")
    page.evaluate("vitviz.send('ablate', { heads: ['2.1'] })")
    wait_for_query(page, without="heads=2.1")
    expect(page.locator("#vitviz-edits")).to_contain_text("Layer 2, head 1")
    assert history_length(page) - start == 4, "a training step adds a history entry"
    page.go_back()
    expect(page.locator("#vitviz-edits .vv-edits")).to_be_hidden()
    wait_for_query(page, without=None, checkpoint="vitviz-positions-none-0")
    page.go_back()
    expect(page.locator("#vitviz-facts [data-checkpoint='vitviz-tiny@30']")).to_be_attached()
    expect(page.locator("#vitviz-picker input")).to_have_value(re.compile("^vitviz-tiny@30"))
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    expect(page.locator("#vitviz-tab-rollout")).to_be_visible()
    page.go_back()
    expect(page.locator("#vitviz-tab-patches")).to_be_visible()
    expect(page.locator("#vitviz-facts [data-checkpoint='vitviz-tiny']")).to_be_attached()
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    page.go_back()
    expect(page.locator("#vitviz-stage")).to_contain_text(size_text("rocket"))
    wait_for_query(page, sample="rocket", tab="patches", checkpoint="vitviz-tiny")
    for _ in range(4):
        page.go_forward()
    expect(page.locator("#vitviz-edits")).to_contain_text("Layer 2, head 1", timeout=30_000)
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    expect(page.locator("#vitviz-tab-rollout")).to_be_visible()
    wait_for_query(page, without="heads=2.1", checkpoint="vitviz-positions-none-0", tab="rollout")
    assert history_length(page) - start == 4
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()


def test_slider_adds_no_history_entry_and_back_restores_it(open_page):
    page = open_page("?tab=rollout", wait=False)
    ready(page, "rollout")
    wait_for_history(page, "moment.tab === 'rollout'")
    start = history_length(page)
    slider = page.locator("#vitviz-rollout [data-name=residual] input")
    for value in ("0.6", "0.7", "0.8"):
        slider.fill(value)
    wait_for_query(page, residual="0.8")
    assert history_length(page) == start
    open_tab(page, "Attention distance")
    wait_for_query(page, tab="distance")
    open_tab(page, "Rollout")
    wait_for_query(page, tab="rollout")
    slider.fill("0.1")
    page.wait_for_function("() => location.search.includes('residual=0.1')")
    page.go_back()
    page.go_back()
    expect(page.locator("#vitviz-tab-rollout")).to_be_visible()
    page.wait_for_function(
        "(value) => document.querySelector('#vitviz-rollout [data-ready]').dataset.ready.includes(value)",
        arg="residual=0.8",
    )
    expect(slider).to_have_value("0.8")


def test_back_restores_the_previous_input_size(open_page):
    page = open_page("?tab=patches")
    wait_for_history(page, "moment.checkpoint === 'vitviz-tiny'")
    own = ready(page, "patches")
    resize(page, "168")
    wait_for_query(page, size="168x168")
    expect(page.locator("#vitviz-patches")).to_contain_text("21 × 21 = 441 patches")
    page.go_back()
    wait_for_query(page, size=None)
    expect(page.locator("#vitviz-patches")).to_contain_text("14 × 14 = 196 patches")
    assert ready(page, "patches") == own
    page.go_forward()
    expect(page.locator("#vitviz-patches")).to_contain_text("21 × 21 = 441 patches")


def test_training_step_adds_no_history_entry(open_page):
    page = open_page()
    wait_for_history(page, "moment.checkpoint === 'vitviz-tiny'")
    start = history_length(page)
    slider = page.locator("#vitviz-film input[type=range]")
    for step in ("0", "3"):
        slider.fill(step)
        page.wait_for_function("(step) => location.search.includes('vitviz-tiny%40')", arg=step)
    assert history_length(page) == start


@pytest.mark.parametrize("width", [390, 1440])
def test_reload_and_language_switch_keep_upload_and_settings(open_page, tmp_path, width):
    page = open_page("?tab=rollout&fusion=max", wait=False, width=width, height=844)
    ready(page, "rollout")
    page.set_input_files("#vitviz-upload input[type=file]", write_image(tmp_path / "mine.png"))
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    page.reload()  # immediately
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    open_tab(page, "Attention distance")
    wait_for_query(page, tab="distance")
    key = ready(page, "distance")
    page.reload()
    assert ready(page, "distance") == key
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()
    page.locator("#vitviz-language a", has_text="한국어").click()
    expect(page.locator("#vitviz-links .vv-copy")).to_have_text("링크 복사")
    mark = page.locator("#vitviz-distance [data-ready]").first
    expect(mark).to_have_attribute("data-ready", re.compile(f"^{key}"), timeout=30_000)  # eventually
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    open_tab(page, "롤아웃")
    assert drawn_settings(page, "rollout")["fusion"] == ["max"], "the settings of a hidden view are lost"
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()


def test_change_during_language_switch_keeps_uploaded_image(open_page, tmp_path):
    page = open_page("?tab=distance", wait=False)
    ready(page, "distance")
    upload_image(page, tmp_path / "mine.png")
    wait_for_query(page, tab="distance")
    page.route("**/?*lang=ko*", lambda route: (page.wait_for_timeout(1500), route.continue_()))
    page.evaluate(
        """() => {
            document.querySelector('#vitviz-language a[lang=ko]').click();
            setTimeout(() => document.querySelector('#vitviz-tab-distance input[value=sorted]').click(), 100);
        }"""
    )
    expect(page.locator("#vitviz-links .vv-copy")).to_have_text("링크 복사")
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)


def test_evicted_upload_is_reported_on_back(browser, tmp_path):
    with Server("--device", "cpu", "--picture-cache", "0.2") as server:
        page = browser.new_page(locale="zh-CN")
        page.goto(server.url + "?tab=patches")
        ready(page, "patches")
        upload_image(page, tmp_path / "mine.png")
        choose_sample(page, 3)  # larger than the cache: evicts the upload
        expect(page.locator("#vitviz-stage")).to_contain_text(size_text("rocket"))
        wait_for_history(page, "moment.sample === 'rocket'")
        page.go_back()
        notice = page.locator("#vitviz-notice .vv-notice-text")
        expect(notice).to_contain_text("腾出")
        expect(page.locator("#vitviz-stage")).to_contain_text(size_text("rocket"))
        wait_for_history(page, "moment.sample === 'rocket'")
        page.close()
        page = browser.new_page(locale="ko-KR")
        page.add_init_script(
            "history.replaceState({ vitviz: { checkpoint: 'vitviz-tiny', picture: 'x' } }, '')"
        )
        page.goto(server.url)
        expect(page.locator("#vitviz-notice .vv-notice-text")).to_contain_text("서버에 없어")
        expect(page.locator("#vitviz-stage")).to_contain_text(size_text("coffee"))
        page.close()


def test_foreign_history_state_is_ignored(open_page):
    page = open_page()
    for state in (
        "{}",
        "{ vitviz: 3 }",
        "{ vitviz: { checkpoint: 3 } }",
        "{ vitviz: { checkpoint: '../x', settings: [], tab: 9 } }",
    ):
        page.evaluate(f"history.replaceState({state}, '')")
        page.reload()
        ready(page, "patches")
        open_tab(page, "Rollout")
        ready(page, "rollout")
        wait_for_query(page, tab="rollout")
        page.go_back()
        expect(page.locator("#vitviz-tab-patches")).to_be_visible()
        expect(page.locator("#vitviz-stage")).to_contain_text(size_text("coffee"))


@pytest.mark.parametrize("again", ["loaded", "in Korean"])
def test_average_survives_reload_and_language_switch(open_page, tmp_path, again):
    page = open_page("?tab=distance", wait=False)
    ready(page, "distance")
    upload_image(page, tmp_path / "mine.png")
    sets = [write_image(tmp_path / f"{number}.png") for number in range(3)]
    upload_image_set(page, sets)
    page.locator(".vv-set .vv-go").click()
    chart = page.locator("#vitviz-distance")
    expect(chart).to_contain_text("mean of 3 images")
    wait_for_history(page, "moment.averages.distance")
    if again == "loaded":
        page.reload()
        expect(chart).to_contain_text("mean of 3 images")
    else:
        page.locator("#vitviz-language a", has_text="한국어").click()
        page.wait_for_url("**lang=ko**")
        expect(chart).to_contain_text("이미지 3장의 평균")
    expect(page.locator("#vitviz-stage")).to_contain_text(OWN_SIZE)
    fold = page.locator(".vv-set-fold")
    expect(fold).to_contain_text("3 uploaded" if again == "loaded" else "업로드한 3장")
    fold.click()
    expect(page.locator(".vv-set-pictures li")).to_have_count(3)
    page.locator(".vv-set-single").click()
    wait_for_history(page, "!moment.averages.distance")
    expect(chart).not_to_contain_text("3 pictures" if again == "loaded" else "3장")


def test_invalid_averages_in_history_are_ignored(open_page):
    page = open_page("?tab=distance", wait=False)
    before = ready(page, "distance")
    wait_for_history(page, "moment.sample")
    for averages in ({"distance": before}, {"distance": 7}, {"patches": "x"}, ["distance"], None, "x"):
        page.evaluate(
            "(averages) => history.replaceState("
            "{ ...history.state, vitviz: { ...history.state.vitviz, averages } }, '')",
            averages,
        )
        page.reload()
        assert ready(page, "distance") == before
        expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()
