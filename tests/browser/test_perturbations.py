"""The Perturbations view: run, stop, continue, cached results, and the images that the model receives."""

import re

import numpy as np
from playwright.sync_api import expect

from tests.browser.conftest import choose_sample, export, open_tab, ready
from tests.browser.held_requests import HeldRequests
from vitviz.analyses import patches_kept
from vitviz.traces.grid import Grid
from vitviz.traces.samples import samples

NAMES = [one.name for one in samples()]
COFFEE, OTHER = NAMES.index("coffee"), NAMES.index("rocket")
READY = "#vitviz-experiment [data-ready]"
FINISHED = "#vitviz-experiment [data-experiment]:not([data-experiment=''])"
GO = "#vitviz-experiment .vv-go"

# red, green, blue and alpha a quarter into each of 14 x 14 patches
CENTRES = """canvas => Array.from({ length: 196 }, (_, i) => Array.from(canvas.getContext('2d').getImageData(
  Math.floor((i % 14 + 0.25) * canvas.width / 14),
  Math.floor((Math.floor(i / 14) + 0.25) * canvas.height / 14), 1, 1).data))"""


def open_view(open_page, path, tab="Perturbations", **options):
    page = open_page(path, **options)
    open_tab(page, tab)
    ready(page, "experiment")
    return page


def choose_kind(page, value):
    page.locator("#vitviz-experiment [data-name=kind] select").select_option(value)


def wait_for_dots(page, dots: int):
    """Wait for a number of dots in the chart."""
    expect(page.locator("#vitviz-experiment .vv-chart .point")).to_have_count(dots)


def test_experiment_runs_stops_continues_and_keeps_results(open_page):
    page = open_view(open_page, "?sample=coffee")
    wait_for_dots(page, 0)  # no request before the button
    held = HeldRequests(page, r"/experiment/point\?.*step=4(&|$)")
    go, status = page.locator(GO), page.locator("#vitviz-experiment .vv-trying")
    go.click()
    expect(status).to_have_text("4 of 11", timeout=30_000)
    expect(go).to_have_text("Stop")
    assert page.locator("#vitviz-experiment progress").get_attribute("value") == str(4 / 11)
    go.click()
    expect(go).to_have_text("Continue")
    expect(status).to_contain_text("Results so far are kept")
    wait_for_dots(page, 8)
    assert len(held) == 1
    held.release()
    requests = []
    page.on("request", lambda request: requests.append(request.url) if "/point?" in request.url else None)
    go.click()
    page.locator(FINISHED).wait_for(state="attached", timeout=60_000)
    wait_for_dots(page, 22)
    assert go.is_hidden()
    assert len(requests) == 7 and not any(re.search("step=[0-3]$", one) for one in requests)
    choose_kind(page, "shuffle")
    expect(go).to_have_text("Start the experiment")
    expect(page.locator("#vitviz-experiment .vv-below")).to_contain_text("196 pieces of 1 × 1 patches")
    first = ready(page, "experiment")
    choose_sample(page, OTHER)
    page.wait_for_function(f"() => !document.querySelector('{READY}').dataset.ready.startsWith('{first}')")
    choose_kind(page, "drop")
    expect(go).to_be_visible()
    wait_for_dots(page, 0)  # no results for another image
    choose_sample(page, COFFEE)
    page.locator(FINISHED).wait_for(state="attached", timeout=30_000)
    wait_for_dots(page, 22)
    assert len(requests) == 7, "cached results are requested again"
    choose_kind(page, "shift")  # the images are shown before the experiment runs
    expect(page.locator("#vitviz-experiment .vv-guess")).to_contain_text("by less than a patch?")
    below = page.locator("#vitviz-experiment .vv-below")
    expect(below).to_contain_text("image shifted by 5 pixels")
    expect(below).to_contain_text("to the right")
    first, *others = np.array(below.locator("canvas").first.evaluate(CENTRES)).reshape(14, 14, 4)[:, 0]
    assert all((one == first).all() for one in others), "the left column is not the mean colour"


def test_images_show_the_dropped_patches_of_the_point(open_page):
    page = open_page("?sample=coffee&tab=experiment&step=7&draw=3", wait=False)
    ready(page, "experiment")
    below = page.locator("#vitviz-experiment .vv-below")
    expect(below).to_contain_text("70 % of the patches dropped: 137 of 196")
    left, black = (np.array(canvas.evaluate(CENTRES)) for canvas in below.locator("canvas").all()[:2])
    kept = patches_kept(Grid(14, 14, (16, 16), ("class",)), 70, 3)
    gone = np.setdiff1d(np.arange(196), kept)
    assert (black[gone] == [0, 0, 0, 255]).all() and (black[kept, :3].max(axis=1) > 0).mean() > 0.9
    colourful = np.ptp(left[:, :3].astype(int), axis=1) > 3  # the tint of the hatch's paper
    assert not colourful[gone].any() and colourful[kept].mean() > 0.7, "dropped patches are not hatched"
    np.testing.assert_array_equal(left[kept], black[kept])


def test_keyboard_selects_a_point_and_link_contains_it(open_page):
    page = open_view(open_page, "?sample=coffee")
    page.locator(GO).click()
    page.locator(FINISHED).wait_for(state="attached", timeout=60_000)
    plot = page.locator("#vitviz-experiment .vv-chart")
    plot.focus()
    for _ in range(3):
        plot.press("ArrowRight")
    expect(page.locator(".vv-tip.vv-on")).to_contain_text("20 % of the patches dropped: 39 of 196")
    plot.press("Enter")
    expect(page.locator("#vitviz-experiment .vv-below")).to_contain_text("39 of 196")
    expect(page.locator("#vitviz-experiment .vv-card .vv-top")).to_have_count(6)
    expect(page).to_have_url(re.compile("step=2"))
    with page.expect_download(timeout=60_000) as taken:
        export(page, "experiment", ".vv-npz")
    numbers = np.load(taken.value.path())
    assert numbers["probability"].shape == (2, 11, 10) and str(numbers["setting_kind"]) == "drop"


def test_korean_phone_page_has_no_horizontal_overflow(open_page):
    page = open_view(open_page, "?sample=rocket&lang=ko", tab="섭동", width=390, height=844)
    page.locator("#vitviz-experiment .vv-unfold").click()  # the figure's settings
    page.locator("#vitviz-experiment [data-name=kind] label").nth(1).click()  # short labels are radio buttons
    go = page.locator(GO)
    expect(go).to_have_text("실험 시작")
    go.click()
    page.locator(FINISHED).wait_for(state="attached", timeout=180_000)
    wait_for_dots(page, 4)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_drawn_guess_is_compared_with_measured_curve(open_page):
    page = open_page("?sample=coffee&tab=experiment", wait=False)
    ready(page, "experiment")
    view, result = page.locator("#vitviz-experiment"), page.locator("#vitviz-experiment .vv-guess")
    invitation = view.locator(".vv-plot .vv-invitation")
    expect(invitation).to_have_text("Draw your guess here. The measured curve then appears beside it.")
    expect(invitation).to_be_visible()
    view.locator(".vv-chart .xtick text").first.wait_for()  # wait for the axes
    box = view.locator(".vv-chart").bounding_box()
    page.mouse.move(box["x"] + 70, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] - 60, steps=8)
    page.mouse.up()
    expect(view.locator(".vv-legends")).to_contain_text("your guess")
    expect(invitation).to_be_hidden()
    drawn = view.locator(".vv-graph").evaluate(
        "(graph) => graph.data.find((one) => one.name === 'your guess').y.length"
    )
    assert drawn == 11, "the guess has no point at some steps of the drag"
    view.get_by_role("button", name="Start the experiment").click()
    expect(result).to_contain_text("percentage points on average", timeout=300_000)
    expect(view.locator(".vv-chart .js-line:not([style*='stroke-width: 0px'])")).to_have_count(3)
