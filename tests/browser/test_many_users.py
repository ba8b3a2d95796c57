"""Many users on one server: full queues, closed pages and deleted checkpoints."""

import os
import re
import shutil
import time

import httpx
import numpy as np
import pytest
from gradio.utils import get_upload_folder
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import (
    choose_sample,
    copy_checkpoint,
    export,
    open_tab,
    pick_checkpoint,
    ready,
    upload_image_set,
)
from tests.browser.helpers import is_painted, notice
from tests.browser.running_app import RunningApp, wait_until
from vitviz import engine
from vitviz.errors import CheckpointError
from vitviz.server.security.request_context import PageClosed

BATCH = 8  # images between two progress states of a survey


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    for name in ("vitviz-tiny", "mine"):
        copy_checkpoint(folder / name)
    return folder


@pytest.fixture(scope="module")
def server(weights):
    app = RunningApp("--weights", str(weights))
    yield app
    app.stop()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    files = [folder / f"{number:02}.png" for number in range(3 * BATCH)]
    for file in files:
        Image.fromarray(rng.integers(0, 255, (20, 30, 3), dtype=np.uint8)).save(file)
    return files


def wait_redrawn(page, before: str):
    ready = "document.querySelector('#vitviz-patches [data-ready]').dataset.ready"
    page.wait_for_function(f"(key) => !{ready}.startsWith(key)", arg=before)


@pytest.fixture(scope="module")
def chart(browser, server, images):
    """Open the distance chart with an uploaded set of images. The last test closes this page."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(server.url + "?tab=distance")
    ready(page, "distance")
    upload_image_set(page, images)
    page.wait_for_function(  # predictions need passes that no gate may hold
        "() => { const all = [...document.querySelectorAll('.vv-set-pictures li')];"
        " return all.length && all.every((one) => !one.textContent.includes('…')) }"
    )
    yield page
    page.context.close()


def start_survey(page):
    page.locator(".vv-set .vv-go").click()


def expect_chart_title(page, text: str):
    expect(page.locator("#vitviz-distance .vv-h")).to_have_text(f"vitviz-tiny, {text}")


def averaged_images(page) -> int:
    """Return the number of averaged images according to the downloaded numbers."""
    with page.expect_download() as download:
        export(page, "distance", ":text-is('Numbers (.csv)')")
    return int(download.value.path().read_text().splitlines()[1].split(",")[1])


def test_full_queue_is_reported_and_figure_stays(open_page, server, monkeypatch):
    page = open_page()
    before = ready(page, "patches")
    monkeypatch.setattr(server.demo._queue, "max_size", 1)
    with server.gate() as gate:
        for name in ("astronaut", "rocket"):  # the first is held in its forward pass, the second waits
            body = {"data": [name, "", 5]}
            httpx.post(server.url + "gradio_api/call/predict", json=body).raise_for_status()
        wait_until(lambda: gate.started and len(server.demo._queue) == 1)
        choose_sample(page, 0)
        expect(page.locator(".toast-body").first).to_contain_text("busy. Please try again")
        assert ready(page, "patches") == before and is_painted(page, "patches")
        late = open_page(wait=False)
        expect(notice(late)).to_contain_text("Reload in a moment")
    choose_sample(page, 0)
    wait_redrawn(page, before)
    late.reload()
    ready(late, "patches")
    expect(notice(late)).to_be_hidden()


def test_closed_page_cancels_its_forward_pass(open_page, server):
    page = open_page()
    server.forget_traces()
    with server.gate() as gate:
        choose_sample(page, 2)
        wait_until(lambda: gate.started == 1)
        page.context.close()
        key = server.service.pictures.sample("astronaut")
        wait_until(lambda: gate.cancelled)
        gate.release()
        wait_until(lambda: server.idle)
        assert not server.service._traces._entries, "the cancelled pass was finished"
        gate.release()
        server.service.look(key, "vitviz-tiny")
        assert gate.started == 2 and len(server.service._traces._entries) == 1


def test_closed_page_cancels_its_download(open_page, server, monkeypatch):
    chunks, ended = [], []

    def load(name, progress, **options):
        if ended:
            raise CheckpointError("Asked for anew.")
        try:
            while len(chunks) < 1_000:
                progress(len(chunks), 1_000)
                chunks.append(len(chunks))
                time.sleep(0.02)  # a slow download
        except PageClosed as error:
            ended.append(error)
            raise

    page = open_page()
    monkeypatch.setattr(engine, "load", load)
    pick_checkpoint(page, "vit_tiny_patch16_224.augreg_in21k")
    expect(page.locator("#vitviz-stage")).to_contain_text("Downloading vit_tiny_patch16_224.augreg_in21k")
    page.context.close()
    wait_until(lambda: ended and server.idle)
    other = open_page()
    pick_checkpoint(other, "vit_tiny_patch16_224.augreg_in21k")
    expect(notice(other)).to_contain_text("Asked for anew")


def test_stopped_survey_keeps_its_mean_and_resumes(chart, server, images):
    files_before = len(os.listdir(get_upload_folder()))
    with server.gate() as gate:
        start_survey(chart)
        wait_until(lambda: gate.started == 1)
        chart.locator(".vv-set .vv-go").click()
        wait_until(lambda: not server.running)
        gate.release()
        wait_until(lambda: server.idle)
        expect_chart_title(chart, "one image")
        assert averaged_images(chart) == 1
        start_survey(chart)
        wait_until(lambda: gate.started == 2)
        gate.release()
        expect_chart_title(chart, f"mean of {BATCH} images")
        wait_until(lambda: gate.started == 3)
        chart.locator(".vv-set .vv-go").click()
        wait_until(lambda: not server.running)
        gate.release()
        wait_until(lambda: server.idle)
        chart.get_by_label("Renormalised over patches").check(force=True)
        chart.wait_for_function(
            "() => /renormalised/.test(document.querySelector('#vitviz-distance [data-ready]').dataset.ready)"
        )
        expect_chart_title(chart, f"mean of {BATCH} images")
        assert averaged_images(chart) == BATCH and gate.started == 3
        start_survey(chart)
        gate.release(3)
        expect_chart_title(chart, f"mean of {len(images)} images")
        assert averaged_images(chart) == len(images)
    assert len(os.listdir(get_upload_folder())) <= files_before, "the restarted survey leaves files behind"


def test_new_setting_keeps_survey_and_new_sample_ends_it(chart, server):
    chart.locator(".vv-set-single").click()
    expect_chart_title(chart, "one image")
    axis = chart.locator("#vitviz-distance .annotation-text")
    sorted_heads = chart.get_by_label("Sorted within the layer")
    with server.gate() as gate:
        start_survey(chart)
        gate.release()
        expect_chart_title(chart, f"mean of {BATCH} images")
        wait_until(lambda: gate.started == 2)
        sorted_heads.check(force=True)  # drawn in the browser: the survey goes on
        expect(axis).to_have_text("Heads of a layer, sorted by distance")
        gate.release()
        expect_chart_title(chart, f"mean of {2 * BATCH} images")
        expect(axis).to_have_text("Heads of a layer, sorted by distance")
        wait_until(lambda: gate.started == 3)
        choose_sample(chart, 3)
        wait_until(lambda: server.running == ["sample"])
        gate.release(2)
        expect_chart_title(chart, "one image")
        wait_until(lambda: server.idle)
        expect_chart_title(chart, "one image")
        assert gate.started == 4 and sorted_heads.is_checked()


def test_closed_page_ends_its_survey(chart, server):
    with server.gate() as gate:
        start_survey(chart)
        gate.release()
        expect_chart_title(chart, f"mean of {BATCH} images")
        wait_until(lambda: gate.started == 2)
        chart.context.close()
        gate.release()
        wait_until(lambda: server.idle)
        assert gate.started == 2, "the survey continued without a client"


def test_deleted_checkpoint_is_reported_only_where_needed(open_page, server, weights):
    page = open_page("?checkpoint=mine")
    shutil.rmtree(weights / "mine")
    before = ready(page, "patches")
    choose_sample(page, 2)  # the checkpoint is still cached
    wait_redrawn(page, before)
    open_tab(page, "Rollout")
    address = f"{server.url}gradio_api/vitviz/{(key := ready(page, 'rollout'))}/rollout/map"
    drawn = httpx.get(address).raise_for_status()
    for cache in (server.service.checkpoints._inspectors, server.service._traces):  # as if evicted
        cache._entries.clear()
    assert httpx.get(address).content == drawn.content, "a cached response needs the checkpoint"

    open_tab(page, "Attention distance")
    page.get_by_label("Renormalised over patches").check(force=True)
    expect(page.locator("#vitviz-distance .vv-error")).to_contain_text("There is no checkpoint 'mine'")
    open_tab(page, "Rollout")
    ready(page, "rollout")
    page.locator("#vitviz-rollout [data-name=residual] input").fill("0.8")
    expect(page.locator("#vitviz-rollout .vv-error")).to_contain_text("There is no checkpoint 'mine'")
    choose_sample(page, 0)
    expect(notice(page)).to_contain_text("There is no checkpoint 'mine'")
    assert ready(page, "rollout") == key and is_painted(page, "rollout")

    page.goto(server.url + "?tab=patches")
    ready(page, "patches")
    page.locator("#vitviz-picker input").click()
    options = page.locator("#vitviz-picker [role=option]")
    expect(options.first).to_contain_text("vitviz-tiny")
    assert not [text for text in options.all_inner_texts() if re.search(r"\bmine\b", text)]
