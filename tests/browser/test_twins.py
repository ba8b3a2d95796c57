"""The lesson of table 8 of the paper: models that differ only in position embeddings, on the same image."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, choose_sample, copy_checkpoint, ready
from vitviz.traces.samples import samples

FINISHED = "[data-experiment]:not([data-experiment=''])"
PROBABILITIES = """(cell) => [...window.vitviz.views]
  .find((view) => view.root.closest('#' + cell)).ui.run.points
  .map(([shuffled]) => shuffled.means.probability[0])"""
NAMES = [one.name for one in samples()]


@pytest.mark.parametrize(
    ("tab", "place"), [("positions", "#vitviz-positions"), ("tour", "#vitviz-tour")], ids=lambda one: one
)
def test_view_links_to_twin_checkpoints_on_same_image(open_page, tab, place):
    page = open_page(f"?tab={tab}" + ("&step=6" if tab == "tour" else ""), wait=False)
    ready(page, tab)
    choose_sample(page, NAMES.index("astronaut"))
    expect(page.locator("#vitviz-stage canvas")).to_have_attribute("aria-label", re.compile("512 × 512"))
    page.locator(place).get_by_role("button", name="none and 1-D").click()
    for facts, name in (("#vitviz-facts", "none"), ("#vitviz-second-facts", "1d")):
        twin = page.locator(f"{facts} [data-checkpoint]")
        expect(twin).to_have_attribute("data-checkpoint", f"vitviz-positions-{name}-0")
    page.wait_for_function("() => location.search.includes('kind=shuffle')")
    assert "tab=experiment" in page.url and "sample=astronaut" in page.url
    page.get_by_role("button", name="← ").click()  # back to the view and its single checkpoint
    expect(page.locator("#vitviz-facts [data-checkpoint]")).to_have_attribute(
        "data-checkpoint", "vitviz-tiny"
    )
    expect(page.locator(place)).to_be_visible()
    expect(page.locator("#vitviz-second-facts [data-checkpoint]")).to_be_hidden()
    expect(page.locator(".vv-way")).to_be_hidden()


def test_shuffling_changes_only_the_model_with_positions(open_page):
    page = open_page(
        "?sample=coffee&checkpoint=vitviz-positions-none-0&second=vitviz-positions-1d-0"
        "&tab=experiment&kind=shuffle",
        wait=False,
    )
    spread = {}
    for cell in ("vitviz-experiment", "vitviz-second-experiment"):
        page.locator(f"#{cell} .vv-go").click()
        page.locator(f"#{cell} {FINISHED}").wait_for(state="attached", timeout=60_000)
        probabilities = page.evaluate(PROBABILITIES, cell)
        assert len(probabilities) == 4  # unshuffled, and 4, 16 and 64 pieces
        spread[cell] = max(probabilities) - min(probabilities)
    assert spread["vitviz-experiment"] < 1e-5 and spread["vitviz-second-experiment"] > 0.01


@pytest.fixture(scope="module")
def server_without_twins(tmp_path_factory):
    weights = tmp_path_factory.mktemp("weights")
    copy_checkpoint(weights / "vitviz-tiny")
    with Server("--weights", str(weights), "--device", "cpu") as server:
        yield server


def test_no_link_to_twins_without_twin_checkpoints(browser, server_without_twins):
    page = browser.new_page()
    page.goto(f"{server_without_twins.url}?tab=positions")
    ready(page, "positions")
    expect(page.locator("#vitviz-positions .vv-leads")).to_be_hidden()
    page.close()
