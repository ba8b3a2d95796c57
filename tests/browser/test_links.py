"""Links restore the page, and hostile query parameters have no effect."""

import re
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import choose_sample, export, open_more_settings, open_tab, ready
from tests.browser.helpers import drawn_settings, size_text, wait_for_query, write_image
from vitviz.server.page.handlers import FIRST_SAMPLE
from vitviz.views.rollout import RolloutView


def query_parameters(page) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(page.url).query).items()}


def copied_link(page) -> str:
    """Return the link from the field that is shown if the clipboard is unavailable."""
    page.evaluate(
        "() => Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })"
    )
    page.locator(".vv-copy").click()
    field = page.locator(".vv-bubble input")
    expect(field).to_be_visible()
    return field.input_value()


def test_link_restores_image_tab_and_settings(open_page):
    page = open_page()
    choose_sample(page, 3)
    wait_for_query(page, sample="rocket")
    open_tab(page, "Rollout")
    wait_for_query(page, tab="rollout")
    ready(page, "rollout")
    page.locator("#vitviz-rollout [data-name=residual] input").fill("0.8")
    open_more_settings(page, "rollout")
    page.locator("#vitviz-rollout [data-name=overlay] input[value=paper]").check(force=True)
    page.locator("#vitviz-rollout").get_by_role("button", name="Layer 3", exact=True).click()
    wait_for_query(page, residual="0.8", overlay="paper", alone="3")
    assert query_parameters(page) == {
        "checkpoint": "vitviz-tiny",
        "sample": "rocket",
        "tab": "rollout",
        "residual": "0.8",
        "overlay": "paper",
        "alone": "3",
    }
    link = copied_link(page)
    assert link == page.url
    key = ready(page, "rollout")
    other = open_page(link.split("/", 3)[3], wait=False)
    assert ready(other, "rollout") == key
    assert drawn_settings(other, "rollout") == drawn_settings(page, "rollout")
    expect(other.locator("#vitviz-stage")).to_contain_text(size_text("rocket"))
    expect(other.get_by_role("tab", name="Rollout", exact=True)).to_have_attribute("aria-selected", "true")
    expect(other.locator("#vitviz-picker input")).to_have_value(re.compile("^vitviz-tiny"))
    expect(other.locator("#vitviz-rollout [data-name=overlay] input[value=paper]")).to_be_checked()
    expect(other.locator("#vitviz-rollout")).to_contain_text("Layer 3 alone · class token")
    other.locator("#vitviz-rollout").get_by_role("button", name="Rollout", exact=True).click()
    expect(other.locator("#vitviz-rollout")).to_contain_text("Rollout · class token")
    wait_for_query(other, alone=None)


def test_link_restores_attention_query(open_page):
    page = open_page(
        "?sample=rocket&tab=explorer&layer=2&head=3&token=4&direction=column&pins=5.6", wait=False
    )
    settings = drawn_settings(page, "explorer")
    assert [settings[name] for name in ("layer", "head", "token", "direction", "pins")] == [
        ["2"],
        ["3"],
        ["4"],
        ["column"],
        ["5.6"],
    ]
    page.locator("#vitviz-explorer canvas.vv-heat").first.focus()
    page.keyboard.press("[")
    wait_for_query(page, layer="2", head="2", token="4", direction="column", pins="5.6", sample="rocket")


def test_link_restores_chart_settings_and_downloads(open_page, tmp_path):
    page = open_page("?tab=distance&form=sorted&rows=renormalised", wait=False)
    ready(page, "distance")
    expect(page.get_by_label("Sorted within the layer")).to_be_checked()
    expect(page.get_by_label("Renormalised over patches")).to_be_checked()
    files = {}
    for name in ("Numbers (.npz)", "Numbers (.csv)", "Figure (HTML)"):
        with page.expect_download() as download:
            export(page, "distance", f":text-is('{name}')")
        download.value.save_as(path := tmp_path / download.value.suggested_filename)
        files[path.suffix] = path
    expected = vitviz.attention_distance(
        vitviz.load("vitviz-tiny").trace(vitviz.sample_image(FIRST_SAMPLE)), renormalise=True
    ).numpy()
    with np.load(files[".npz"]) as file:
        assert np.allclose(file["distance"], expected, atol=1e-4) and str(file["setting_form"]) == "sorted"
    assert files[".csv"].read_text().count("\n") == expected.size + 1
    page.get_by_label("By layer").check(force=True)
    page.wait_for_function(
        "() => /form=depth/.test(document.querySelector('#vitviz-distance [data-ready]').dataset.ready)"
    )
    wait_for_query(page, checkpoint="vitviz-tiny", rows="renormalised", form=None)
    choose_sample(page, 3)
    wait_for_query(page, sample="rocket")
    expect(page.get_by_label("Renormalised over patches")).to_be_checked()
    assert drawn_settings(page, "distance")["rows"] == ["renormalised"], "a new image resets the settings"


def test_link_excludes_uploaded_image_and_says_so(open_page, tmp_path):
    page = open_page("?sample=rocket")
    page.set_input_files("#vitviz-upload input[type=file]", write_image(tmp_path / "mine.png"))
    expect(page.locator("#vitviz-stage")).to_contain_text("300 × 200")
    page.wait_for_function("() => !location.search.includes('sample')")
    assert "sample" not in copied_link(page)
    expect(page.locator(".vv-bubble")).to_contain_text("Your image isn’t included")


def test_copied_link_is_confirmed_and_has_no_secrets(open_page):
    page = open_page(
        "?sample=rocket&__theme=dark&__sign=secret", permissions=["clipboard-read", "clipboard-write"]
    )
    page.locator(".vv-copy").click()
    expect(page.locator(".vv-bubble")).to_contain_text("Link copied")
    link = page.evaluate("() => navigator.clipboard.readText()")
    assert "sample=rocket" in link and "secret" not in link and "__theme" not in link, (
        "the link contains the key of a private Space"
    )


@pytest.mark.parametrize(
    "value",
    [
        "<img src=x onerror=alert(1)>",
        "${alert(1)}",
        "1e9",
        "-1",
        "..",
        "../../etc/passwd",
        "NaN",
        "12",
        "%00",
    ],
)
def test_hostile_query_parameters_are_ignored(open_page, value):
    names = (
        "sample",
        "fusion",
        "residual",
        "discard",
        "layers",
        "query",
        "overlay",
        "opacity",
        "alone",
        "token",
        "head",
        "key",
        "form",
    )
    page = open_page("?" + urlencode({"tab": "rollout", **dict.fromkeys(names, value)}), wait=False)
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    settings = drawn_settings(page, "rollout")
    defaults = {
        control.name: [f"{start:g}" if isinstance(start := control.start(), float | int) else start]
        for control in RolloutView.controls
    }
    assert settings == {**defaults, "query": ["12" if value == "12" else "auto"]}
    expect(page.locator("#vitviz-notice .vv-notice")).to_contain_text("no known sample image")
    expect(page.locator("#vitviz-stage")).to_contain_text(size_text(FIRST_SAMPLE))
    assert dialogs == [] and page.locator("img[src='x']").count() == 0


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "../../etc/passwd", "${alert(1)}"])
def test_unknown_checkpoint_in_link_falls_back_to_default(open_page, name):
    page = open_page("?" + urlencode({"checkpoint": name, "sample": "rocket", "tab": "nothing"}))
    expect(page.locator("#vitviz-notice .vv-notice-text")).to_contain_text("There is no checkpoint")
    expect(page.locator("#vitviz-picker input")).to_have_value(re.compile("^vitviz-tiny"))
    expect(page.locator("#vitviz-stage")).to_contain_text(size_text("rocket"))
    assert page.locator("img[src='x']").count() == 0


@pytest.mark.parametrize("width, dark", [(390, True), (1440, False)])
def test_header_fits_the_window_without_overlap(open_page, width, dark):
    page = open_page(width=width, height=844, dark=dark)
    copied_link(page)
    for part in (".vv-copy", ".vv-everything", ".vv-bubble"):
        box = page.locator(part).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, f"{part} leaves the window"
    title, button = page.locator("#vitviz-title").bounding_box(), page.locator(".vv-copy").bounding_box()
    assert title["height"] < 80 and (
        button["y"] >= title["y"] + title["height"] - 1 or button["x"] >= title["x"] + title["width"] - 1
    ), "title and buttons overlap"
    assert page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_link_opens_view_in_narrow_window(open_page):
    page = open_page(width=390, height=844)
    open_tab(page, "Rollout")
    wait_for_query(page, tab="rollout")
    other = open_page("?" + urlsplit(page.url).query, wait=False, width=390, height=844)
    expect(other.locator("#vitviz-tab-rollout")).to_be_visible()
    assert re.search(
        "fusion=mean",
        other.locator("#vitviz-rollout [data-ready]").get_attribute("data-ready", timeout=30_000),
    )


def test_unknown_sample_is_reported_and_nothing_is_removed(open_page):
    page = open_page("?sample=cat&without=patches%3D1.2&tab=patches")
    expect(page.locator("#vitviz-notice .vv-notice")).to_contain_text("no known sample image")
    expect(page.locator("#vitviz-edits")).not_to_contain_text("2 patches")


@pytest.mark.parametrize("target", ["200", "3-967"])
def test_class_beyond_the_model_in_link_falls_back_to_prediction(open_page, target):
    """A link or a larger checkpoint may name a class that this model does not have."""
    page = open_page(f"?sample=coffee&tab=evidence&target={target}", wait=False)
    assert drawn_settings(page, "evidence")["target"] == ["top"]
    expect(page.locator("#vitviz-evidence .vv-class").first).to_have_value("espresso")
