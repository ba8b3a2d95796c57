"""The lesson of the paper's table 8, as somebody meets it: from a view to the twins on the same picture."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, choose_sample, copy_checkpoint, ready
from vitviz.traces.samples import samples

WHOLE = "[data-experiment]:not([data-experiment=''])"
PROBABILITIES = """(cell) => [...window.vitviz.views]
  .find((view) => view.root.closest('#' + cell)).ui.run.points
  .map(([shuffled]) => shuffled.means.probability[0])"""
NAMES = [one.name for one in samples()]


@pytest.mark.parametrize(
    ("tab", "place"), [("positions", "#vitviz-positions"), ("tour", "#vitviz-tour")], ids=lambda one: one
)
def test_a_view_leads_to_the_twins_on_the_same_picture(open_page, tab, place):
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
    page.get_by_role("button", name="← ").click()  # back to where it led from, one checkpoint as before
    expect(page.locator("#vitviz-facts [data-checkpoint]")).to_have_attribute(
        "data-checkpoint", "vitviz-tiny"
    )
    expect(page.locator(place)).to_be_visible()
    expect(page.locator("#vitviz-second-facts [data-checkpoint]")).to_be_hidden()
    expect(page.locator(".vv-way")).to_be_hidden()


def test_shuffling_moves_the_answer_of_the_twin_that_knows_places_alone(open_page):
    page = open_page(
        "?sample=coffee&checkpoint=vitviz-positions-none-0&second=vitviz-positions-1d-0"
        "&tab=experiment&kind=shuffle",
        wait=False,
    )
    spread = {}
    for cell in ("vitviz-experiment", "vitviz-second-experiment"):
        page.locator(f"#{cell} .vv-go").click()
        page.locator(f"#{cell} {WHOLE}").wait_for(state="attached", timeout=60_000)
        answers = page.evaluate(PROBABILITIES, cell)
        assert len(answers) == 4  # whole, and in 4, 16 and 64 pieces
        spread[cell] = max(answers) - min(answers)
    assert spread["vitviz-experiment"] < 1e-5 and spread["vitviz-second-experiment"] > 0.01


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    weights = tmp_path_factory.mktemp("weights")
    copy_checkpoint(weights / "vitviz-tiny")
    with Server("--weights", str(weights), "--device", "cpu") as server:
        yield server


def test_where_there_are_no_twins_nothing_leads_to_them(browser, alone):
    page = browser.new_page()
    page.goto(f"{alone.url}?tab=positions")
    ready(page, "positions")
    expect(page.locator("#vitviz-positions .vv-leads")).to_be_hidden()
    page.close()
