"""Checkpoint selection, unreachable hubs, sets of images, and two checkpoints side by side."""

import json
import re
import time

import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import (
    Server,
    choose_sample,
    copy_checkpoint,
    open_tab,
    pick_checkpoint,
    ready,
    upload_image_set,
)
from vitviz.views import VIEWS


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Create weights: vitviz-tiny, a model without class token, and a model with registers and RoPE."""
    import timm
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("weights")
    copy_checkpoint(folder / "vitviz-tiny")
    kinds = {
        "<img src=x onerror=alert(1)>": (
            "vit_tiny_patch16_224",
            {"class_token": False, "global_pool": "avg", "img_size": [64, 96]},
        ),
        "rotary": ("vit_small_patch16_dinov3", {"img_size": 64, "num_classes": 0}),
    }
    for name, (architecture, options) in kinds.items():
        torch.manual_seed(1)
        model = timm.create_model(architecture, pretrained=False, depth=2, **options)
        (folder / name).mkdir()
        save_file(
            {
                key: value + 0.02 * torch.randn_like(value) if value.is_floating_point() else value
                for key, value in model.state_dict().items()
            },
            folder / name / "model.safetensors",
        )
        size = list(model.patch_embed.img_size)
        config = {
            "architecture": architecture,
            "num_classes": model.num_classes,
            "model_args": {"depth": 2, **options},
            "pretrained_cfg": {
                "input_size": [3, *size],
                "mean": [0.5] * 3,
                "std": [0.5] * 3,
                "interpolation": "bicubic",
                "crop_pct": 1.0,
                "num_classes": model.num_classes,
                "first_conv": "patch_embed.proj",
                "classifier": "head",
            },
        }
        (folder / name / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def server(weights):
    with Server("--weights", str(weights)) as running:
        yield running


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "rotary"])
def test_new_checkpoint_keeps_image_and_draws_every_view(open_page, name):
    page = open_page()
    choose_sample(page, 1)
    expect(page.locator("#vitviz-stage")).to_contain_text("600 × 400")
    pick_checkpoint(page, name)
    expect(page.locator("#vitviz-facts .vv-facts")).to_have_attribute("data-checkpoint", name)
    expect(page.locator("#vitviz-stage")).to_contain_text("600 × 400")
    for view in VIEWS:
        open_tab(page, view.title)
        ready(page, view.slug)
    open_tab(page, "Positions")
    note = page.locator("#vitviz-positions .vv-note")
    if name == "rotary":
        expect(note).to_contain_text("rotary")
        expect(page.locator("#vitviz-facts")).to_contain_text("no classifier")
    else:
        expect(note).to_be_hidden()
        expect(page.locator("#vitviz-facts")).to_contain_text("4 × 6")


def test_unreachable_hub_is_reported_within_deadline(open_page):
    page = open_page()
    before = ready(page, "patches")
    start = time.perf_counter()
    pick_checkpoint(page, "vit_tiny_patch16_224.augreg_in21k")
    expect(page.locator("#vitviz-notice .vv-notice")).to_contain_text(
        re.compile("hub.*vitviz-tiny", re.I | re.S)
    )
    assert time.perf_counter() - start < 8  # the deadline of the hub is 5 s; the page needs the rest
    assert ready(page, "patches") == before
    expect(page.locator("#vitviz-picker input")).to_have_value(re.compile("^vitviz-tiny"))


def test_unsupported_architecture_is_rejected_by_name(open_page):
    page = open_page()
    pick_checkpoint(page, "swin_tiny_patch4_window7_224")
    expect(page.locator("#vitviz-notice .vv-notice")).to_contain_text("Swin", ignore_case=True)


def test_survey_shows_mean_and_reports_unreadable_image(open_page, tmp_path):
    import numpy as np
    from PIL import Image

    page = open_page()
    open_tab(page, "Attention distance")
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (80, 90, 3), dtype=np.uint8)).save(
            files[-1]
        )
    (tmp_path / "bad.png").write_text("no picture")
    upload_image_set(page, [*files, tmp_path / "bad.png"])
    page.locator(".vv-set .vv-go").click()
    expect(page.locator("#vitviz-distance")).to_contain_text("mean of 3 images", timeout=30_000)
    expect(page.locator(".vv-set-told")).to_contain_text("Picture 4")


def test_two_checkpoints_share_controls(open_page):
    page = open_page("?second=rotary&tab=rollout", wait=False)
    ready(page, "rollout")
    ready(page, "second-rollout")
    expect(page.locator("#vitviz-second-facts .vv-facts")).to_have_attribute("data-checkpoint", "rotary")
    expect(page.locator("#vitviz-second-rollout .vv-heading")).to_have_text("rotary")
    expect(page.locator("#vitviz-second-rollout .vv-controls")).to_be_hidden()
    page.locator("#vitviz-rollout [data-name=residual] input").fill("0.8")
    page.wait_for_function(
        "() => /residual=0.8/.test(document.querySelector('#vitviz-second-rollout"
        " [data-ready]').dataset.ready)"
    )
    page.evaluate("vitviz.memory.compared = { against: 'own' }")  # the default draws both in one figure
    for view in VIEWS:
        open_tab(page, view.title)
        assert ready(page, view.slug) != ready(page, f"second-{view.slug}")
    open_tab(page, "Positions")
    expect(page.locator("#vitviz-second-positions .vv-note")).to_contain_text("rotary")


def test_two_checkpoints_share_chart_scale(open_page, weights):
    page = open_page("?second=rotary&tab=distance&size=64", wait=False)
    ready(page, "distance")
    ready(page, "second-distance")
    charts = "[...window.vitviz.views].filter((view) => view.name === 'distance' && view.root.isConnected)"
    page.wait_for_function(
        f"() => {{ const [one, two] = {charts}; return `${{one.scale}}` === `${{two.scale}}`; }}"
    )
    highest = []
    for name in ("vitviz-tiny", "rotary"):
        trace = vitviz.load(weights / name, device="cpu").trace(vitviz.sample_image("coffee"), size=64)
        measured = vitviz.analyses.distances(trace)
        highest.append(max(float(measured.distance.max()), vitviz.analyses.uniform_distance(trace.grid)))
    assert abs(highest[0] - highest[1]) > 1, "the two charts do not differ"
    assert page.evaluate(f"{charts}[0].scale") == pytest.approx([0, 1.08 * max(highest)], rel=1e-4)
    ticks = [
        page.locator(f"#vitviz-{name} .vv-chart .ytick").all_inner_texts()
        for name in ("distance", "second-distance")
    ]
    assert ticks[0] == ticks[1] and len(ticks[0]) > 2


def test_input_size_is_applied_and_indivisible_size_rejected(open_page):
    page = open_page("?size=shape&sample=chelsea&tab=patches")
    expect(page.locator("#vitviz-facts")).to_contain_text(re.compile(r"Input\d+ × \d+ × 3"))
    assert "64 × 64 × 3" not in page.locator("#vitviz-facts").inner_text()
    before = ready(page, "patches")
    page.get_by_text("Comparison and input size").click()
    size = page.locator("#vitviz-size input")
    size.fill("100x96")
    size.press("Enter")
    expect(page.locator("#vitviz-notice .vv-notice")).to_contain_text("do not divide")
    assert ready(page, "patches") == before
    size.fill("96 x 160")
    size.press("Enter")
    expect(page.locator("#vitviz-facts")).to_contain_text("96 × 160 × 3")
    open_tab(page, "Positions")
    ready(page, "positions")


def test_measured_faithfulness_of_rollout_is_shown_for_its_checkpoint_alone(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    said = page.get_by_text("vitviz-tiny keeps its prediction")
    expect(said).to_be_visible()
    page.goto(page.url.split("?")[0] + "?sample=coffee&tab=rollout&checkpoint=rotary")
    ready(page, "rollout")
    expect(said).to_be_hidden()


def test_list_of_checkpoints_opens_at_selection(open_page):
    page = open_page()
    page.locator("#vitviz-picker input").first.click()
    chosen = page.locator("#vitviz-picker [role=option][aria-selected=true]")
    expect(chosen).to_contain_text("vitviz-tiny")
    expect(chosen).to_be_in_viewport(ratio=0.9)
