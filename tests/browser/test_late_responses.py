"""Late responses: figures stay consistent, and a newer choice wins."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, choose_sample, copy_checkpoint, ready
from tests.browser.held_requests import HeldRequests

EXPLORER = "[...window.vitviz.views].find((view) => view.name === 'explorer' && view.root.isConnected)"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Create weights: vitviz-tiny and a model with four registers."""
    import timm

    home = tmp_path_factory.mktemp("weights")
    copy_checkpoint(home / "vitviz-tiny")
    options = {"img_size": 112, "patch_size": 8, "embed_dim": 64, "depth": 8, "num_heads": 2, "reg_tokens": 4}
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, **options)
    timm.models.save_for_hf(model, home / "registers", model_args=options)
    return home


@pytest.fixture(scope="module")
def server(weights):
    with Server("--weights", str(weights)) as running:
        yield running


def test_setting_change_during_request_draws_new_image(open_page):
    page = open_page("?sample=coffee&tab=explorer", wait=False)
    before = ready(page, "explorer")
    canvas = page.locator("#vitviz-explorer .vv-plot canvas").first
    coffee = canvas.evaluate("(canvas) => canvas.toDataURL()")
    held = HeldRequests(page, "/explorer/wall")
    choose_sample(page, 0)
    page.wait_for_function(f"(old) => {EXPLORER}.key !== old", arg=before)
    page.evaluate(f"{EXPLORER}.set('scale', 'shared')")  # drawn at once from the old data
    page.wait_for_timeout(200)
    held.release()
    page.wait_for_function(
        "(old) => !document.querySelector('#vitviz-explorer [data-ready]').dataset.ready.startsWith(old)",
        arg=before,
    )
    other = canvas.evaluate("(canvas) => canvas.toDataURL()")
    page.evaluate(f"{EXPLORER}.ui.drawn = ''; {EXPLORER}.draw()")
    assert other == canvas.evaluate("(canvas) => canvas.toDataURL()") != coffee


def test_head_wall_matches_its_title_after_quick_changes(open_page):
    page = open_page("?sample=coffee&tab=explorer", wait=False)
    ready(page, "explorer")
    held = HeldRequests(page, "/explorer/wall\\?.*token=20&")
    page.evaluate(f"{EXPLORER}.set('token', 20)")
    held.wait()
    page.evaluate(f"{EXPLORER}.set('token', 150)")  # while the first response is held
    page.wait_for_timeout(50)
    held.release()
    page.wait_for_function(
        "() => document.querySelector('#vitviz-explorer [data-ready]').dataset.ready.includes('token=150')"
    )
    wall = page.locator("#vitviz-explorer .vv-below canvas").first
    seen = wall.evaluate("(canvas) => canvas.toDataURL()")
    page.evaluate(f"{EXPLORER}.ui.wallName = {EXPLORER}.ui.wallDrawn = ''; {EXPLORER}.draw()")
    assert seen == wall.evaluate("(canvas) => canvas.toDataURL()")
    expect(page.locator("#vitviz-explorer .vv-below .vv-h").first).to_contain_text("Patch 150 ")


def test_late_experiment_of_another_image_is_discarded(open_page):
    page = open_page("?sample=coffee&tab=tour&step=6", wait=False)
    done = page.locator("#vitviz-tour .vv-step, #vitviz-tour [data-experiment]").last
    coffee = ready(page, "tour")
    page.wait_for_function(
        "(key) => document.querySelector('#vitviz-tour"
        " [data-experiment]')?.dataset.experiment.startsWith(key)",
        arg=coffee,
    )
    held = HeldRequests(page, "/tour/experiment", unless=coffee)
    choose_sample(page, 0)
    page.wait_for_function(
        "(old) => !document.querySelector('#vitviz-tour [data-ready]').dataset.ready.startsWith(old)",
        arg=coffee,
    )
    held.wait()
    choose_sample(page, 1)
    page.wait_for_function(
        "(key) => document.querySelector('#vitviz-tour [data-ready]').dataset.ready.startsWith(key)",
        arg=coffee,
    )
    page.wait_for_function(
        "(key) => document.querySelector('#vitviz-tour"
        " [data-experiment]')?.dataset.experiment.startsWith(key)",
        arg=coffee,
    )
    answers = page.locator("#vitviz-tour .vv-tops").all_inner_texts()
    held.release()
    page.wait_for_timeout(1500)
    assert done.get_attribute("data-experiment").startswith(coffee)
    assert page.locator("#vitviz-tour .vv-tops").all_inner_texts() == answers


def test_same_patch_is_shown_despite_other_prefix_tokens(open_page):
    page = open_page("?sample=coffee&tab=explorer&second=registers", wait=False)
    ready(page, "explorer")
    titles = page.locator("#vitviz-explorer .vv-h, #vitviz-second-explorer .vv-h").filter(
        has_text="attention from"
    )
    page.wait_for_function(
        "() => window.vitviz.views.size && document.querySelectorAll('#vitviz-tab-explorer"
        " [data-ready]').length === 2"
    )
    page.evaluate(f"{EXPLORER}.set('layer', 3)")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#vitviz-tab-explorer [data-ready]')].every((one) =>"
        " one.dataset.ready.includes('layer=3'))"
    )
    patches = {
        re.search(r"Patch \d+ \(.*?\)", text)[0]
        for text in page.locator("#vitviz-tab-explorer .vv-h").all_inner_texts()
        if "Patch" in text
    }
    assert len(patches) == 1, (patches, titles.count())
    page.evaluate(f"{EXPLORER}.set('token', 0)")  # the class token comes first in both
    page.wait_for_function(
        "() => [...document.querySelectorAll('#vitviz-tab-explorer [data-ready]')].every((one) =>"
        " one.dataset.ready.includes('token=0'))"
    )


def test_rollout_in_attention_view_ignores_column_direction(open_page):
    page = open_page("?sample=coffee&tab=explorer&direction=column&show=rollout", wait=False)
    ready(page, "explorer")
    title = page.locator("#vitviz-explorer .vv-h").first
    expect(title).to_contain_text("Rollout")
    expect(title).to_contain_text("attention from")
    expect(page.locator("#vitviz-explorer .vv-text:not(.vv-framed-said)").first).to_contain_text(
        "On patches:"
    )
    before = title.inner_text()
    heat = page.locator("#vitviz-explorer .vv-heat").first
    heat.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert title.inner_text() == before  # the rollout of this token is not fetched yet
