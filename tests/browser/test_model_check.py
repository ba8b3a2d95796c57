"""The model check on the page: its dialog, and the line that offers it after a serious finding."""

import csv

import pytest
from playwright.sync_api import expect
from safetensors.torch import load_file, save_file

from tests.browser.conftest import Server, copy_checkpoint, pick_checkpoint


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    weights = tmp_path_factory.mktemp("weights")
    copy_checkpoint(weights / "vitviz-tiny")
    damaged = copy_checkpoint(weights / "no-positions") / "model.safetensors"
    tensors = load_file(damaged)
    tensors["pos_embed"].zero_()
    save_file(tensors, damaged)
    with Server("--weights", str(weights), "--device", "cpu") as server:
        yield server


def open_check(page):
    """Open the dialog of the check by the button in the details below the prediction."""
    page.locator("#vitviz-facts .vv-cost summary").click()
    page.get_by_role("button", name="Check this model").last.click()
    return page.locator(".vv-check-dialog")


def test_model_check_stops_continues_and_exports_findings(open_page, tmp_path):
    page = open_page()
    dialog = open_check(page)
    rows = dialog.locator(".vv-check-list > li")
    expect(rows.first).to_be_attached()
    dialog.get_by_role("button", name="Stop").click()
    expect(dialog.get_by_role("button", name="Continue")).to_be_visible()
    count = rows.count()
    expect(dialog.locator("[role=status]")).to_contain_text("Serious findings: 0")
    dialog.get_by_role("button", name="Continue").click()
    positions = dialog.locator("li[data-name=random_positions]")
    expect(positions).to_be_attached()
    dialog.get_by_role("button", name="Stop").click()
    expect(dialog.get_by_role("button", name="Continue")).to_be_visible()
    with page.expect_download() as download:
        dialog.get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "check.csv")
    names = [row["name"] for row in csv.DictReader((tmp_path / "check.csv").open(encoding="utf-8"))]
    shown = rows.evaluate_all("(rows) => rows.map((row) => row.dataset.name)")
    assert set(shown) <= set(names) and len(shown) > count
    dialog.locator("details summary").click()
    show_button = positions.locator("button")
    expect(show_button).to_have_text("Show in Positions")
    show_button.click()
    expect(dialog).to_have_count(0)
    expect(page.locator("#vitviz-tab-positions-button")).to_have_attribute("aria-selected", "true")


def test_serious_finding_offers_check_until_dialog_opens(open_page):
    page = open_page()
    offer = page.locator(".vv-check-offer")
    expect(offer).to_be_hidden()
    pick_checkpoint(page, "no-positions")
    expect(offer).to_contain_text("The position table is the same for every patch.")
    offer.get_by_role("button", name="Check this model").click()
    serious = page.locator(".vv-check-dialog li[data-severity=serious]").first
    expect(serious).to_contain_text("Load the position embedding.")
    page.locator(".vv-check-dialog").get_by_role("button", name="Close").click()
    expect(offer).to_be_hidden()
    pick_checkpoint(page, "vitviz-tiny")
    expect(page.locator("#vitviz-facts [data-checkpoint]")).to_have_attribute(
        "data-checkpoint", "vitviz-tiny"
    )
    expect(offer).to_be_hidden()
