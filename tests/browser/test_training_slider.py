"""The slider over the training snapshots: views, prediction and training curve follow."""

import re
import shutil

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, copy_checkpoint, open_tab, ready
from tests.browser.helpers import record_steps, wait_for_snapshot, wait_for_steps
from vitviz.views import VIEWS

STEPS = (0, 30, 3000)
INCOMPLETE = "incomplete"  # a checkpoint whose last snapshot one test deletes


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Copy vitviz-tiny and add three snapshots: its weights with decreasing noise."""
    import torch
    from safetensors.torch import load_file, save_file

    home = copy_checkpoint(tmp_path_factory.mktemp("weights") / "vitviz-tiny")
    (home / "snapshots").mkdir()
    torch.manual_seed(0)
    rows = ["file,weights,step,epoch,seconds,train_loss,val_loss,val_top1"]
    for step, noise in zip(STEPS, (0.2, 0.1, 0.02), strict=True):
        noisy = {
            name: weight + noise * torch.randn_like(weight)
            for name, weight in load_file(home / "model.safetensors").items()
        }
        save_file(noisy, home / "snapshots" / f"step-{step:05d}.safetensors")
        kind = "average" if step == STEPS[-1] else "raw"  # as if another training phase started here
        rows.append(
            f"snapshots/step-{step:05d}.safetensors,{kind},{step},{step / 1000},{step},,"
            f"{5 - step / 3000},{step / 10000}"
        )
    (home / "film.csv").write_text(
        "\n".join([*rows, "model.safetensors,average,9000,9,9000,,2.5,0.5"]) + "\n"
    )
    shutil.copytree(home, home.parent / INCOMPLETE)
    return home.parent


@pytest.fixture(scope="module")
def server(weights):
    with Server("--weights", str(weights)) as running:
        yield running


def test_missing_snapshot_is_reported_and_slider_returns(open_page, weights):
    page = open_page(f"?checkpoint={INCOMPLETE}@0")
    wait_for_snapshot(page, f"{INCOMPLETE}@0")
    slider, before = page.locator("#vitviz-film input"), ready(page, "patches")
    (weights / INCOMPLETE / "snapshots/step-03000.safetensors").unlink()
    slider.fill("2")
    expect(page.locator("#vitviz-notice .vv-notice")).to_contain_text(
        "no snapshot of step 3000; available are: 0, 30"
    )
    expect(slider).to_have_value("0")
    assert ready(page, "patches") == before


def test_views_prediction_and_curve_follow_the_slider(open_page):
    page = open_page()
    wait_for_snapshot(page, "vitviz-tiny")
    film, slider = page.locator("#vitviz-film"), page.locator("#vitviz-film input")
    expect(film).to_contain_text("50.0 %")
    before, prediction = ready(page, "patches"), page.locator("#vitviz-facts .vv-answers").inner_text()
    slider.fill("1")
    wait_for_snapshot(page, "vitviz-tiny@30")
    expect(film.locator(".vv-film-step")).to_have_text("30")
    expect(film).to_contain_text("0.3 %")
    expect(page.locator("#vitviz-facts .vv-facts")).to_have_attribute("data-checkpoint", "vitviz-tiny@30")
    assert page.locator("#vitviz-facts .vv-answers").inner_text() != prediction
    for view in VIEWS:
        open_tab(page, view.title)
        page.wait_for_function(
            "([panel, old]) => !(document.querySelector(`#vitviz-${panel} [data-ready]`)?.dataset.ready ||"
            " old).startsWith(old)",
            arg=[view.slug, before],
        )
    film.get_by_role("button", name="Curve").click()
    dots = film.locator("circle")
    assert dots.count() == 2
    x, thumb = dots.first.bounding_box(), slider.bounding_box()
    middle = thumb["x"] + 8 + (thumb["width"] - 16) / 3
    assert abs(x["x"] + x["width"] / 2 - middle) < 1.5  # the dot is above the thumb of the slider


def test_removed_heads_and_patches_stay_removed_during_training(open_page):
    removed = "heads%3D2.2+patches%3D32.33"
    page = open_page(f"?checkpoint=vitviz-tiny&sample=coffee&tab=distance&without={removed}", wait=False)
    wait_for_snapshot(page, "vitviz-tiny")
    slider, chips = page.locator("#vitviz-film input"), page.locator("#vitviz-edits")
    expect(chips).to_contain_text("Layer 2, head 2")
    for index, name in (("1", "vitviz-tiny@30"), ("3", "vitviz-tiny")):
        slider.fill(index)
        wait_for_snapshot(page, name)
        expect(chips).to_contain_text("Layer 2, head 2")
        expect(chips).to_contain_text("2 patches")
        page.wait_for_function("text => location.search.includes(text)", arg=f"without={removed}")


def test_last_slider_move_wins_and_playback_reaches_the_end(open_page):
    page = open_page("?checkpoint=vitviz-tiny@0")
    wait_for_snapshot(page, "vitviz-tiny@0")
    slider = page.locator("#vitviz-film input")
    slider.evaluate(
        "(input) => { for (const index of '1232102') { input.value = index; input.dispatchEvent(new"
        " Event('input')); } }"
    )
    wait_for_snapshot(page, "vitviz-tiny@3000")
    expect(slider).to_have_value("2")
    note = page.locator("#vitviz-film .vv-film-why")
    expect(note).to_contain_text("A training phase ended here")
    page.get_by_role("button", name="Play the training").click()
    wait_for_snapshot(page, "vitviz-tiny")
    expect(note).to_contain_text("no information")
    expect(page.get_by_role("button", name="Play the training")).to_be_visible()
    record_steps(page)
    page.get_by_role("button", name="Play the training").click()  # restarts from the first snapshot
    wait_for_steps(page, "vitviz-tiny@0", "vitviz-tiny@30")
    page.get_by_role("button", name="Stop", exact=True).first.click()


def test_checkpoint_without_snapshots_has_no_slider(open_page, weights):
    copy_checkpoint(weights / "plain")
    page = open_page("?checkpoint=plain")
    expect(page.locator("#vitviz-facts .vv-facts")).to_have_attribute("data-checkpoint", "plain")
    expect(page.locator("#vitviz-film")).to_be_hidden()


def test_training_curve_fits_a_phone(open_page):
    page = open_page(width=390, height=844, dark=True)
    film = page.locator("#vitviz-film .vv-film")
    film.scroll_into_view_if_needed()
    film.get_by_role("button", name="Curve").click()
    box, plot = film.bounding_box(), page.locator("#vitviz-film svg").bounding_box()
    assert 0 <= plot["x"] and plot["x"] + plot["width"] <= 390 and box["width"] <= 390


@pytest.mark.parametrize("panel", ["positions", "patches", "filters"])
def test_selected_patch_is_kept_along_the_slider(open_page, panel):
    page = open_page(f"?tab={panel}", wait=False)
    key, view = ready(page, panel), page.locator(f"#vitviz-{panel}")

    def shown() -> str:
        return re.search(r"Patch \d+: row \d+|Component \d+ of", view.inner_text())[0]

    default, canvas = shown(), view.locator("canvas").first.bounding_box()
    page.mouse.click(canvas["x"] + 110, canvas["y"] + 60)
    page.mouse.move(5, 5)
    selected = shown()
    assert selected != default
    page.locator("#vitviz-film input").press("ArrowLeft")
    page.wait_for_function(
        "([panel, key]) => !document.querySelector(`#vitviz-${panel}"
        " [data-ready]`).dataset.ready.startsWith(key)",
        arg=[panel, key],
    )
    assert ready(page, panel) != key and shown() == selected
    view.locator(".vv-reset").click()
    page.wait_for_function(
        "([panel, usual]) => document.querySelector(`#vitviz-${panel}`).innerText.includes(usual)",
        arg=[panel, default],
    )
