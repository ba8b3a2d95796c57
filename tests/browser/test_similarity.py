"""The Similarity view: matrices match a survey, and hovering sends no requests."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import ready, upload_image_set
from vitviz.surveys import sample_crops

MATRIX = "JSON.parse(new TextDecoder().decode(view.data.matrix.values))"
VIEW = "[...window.vitviz.views].find((one) => one.name === 'compared' && one.root.isConnected)"


@pytest.fixture(scope="module")
def survey():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    return vitviz.survey(sample_crops(), inspector, ["similarity"], batch=8)


def test_hover_shows_cka_value_without_requests(open_page, survey):
    page = open_page("?tab=compared&against=own", wait=False)
    ready(page, "compared")
    expected = vitviz.cka(survey).numpy()
    shown = page.evaluate(f"((view) => {MATRIX}.values)({VIEW})")
    np.testing.assert_allclose(np.reshape(shown, (9, 9)), expected, rtol=1e-3, atol=1e-4)
    requests, canvas = [], page.locator("#vitviz-compared .vv-figure canvas").first
    page.on("request", lambda request: requests.append(request.url))
    canvas.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".vv-tip")).to_contain_text(f"{expected[0, 3]:.3f}")
    expect(page.locator(".vv-tip")).to_contain_text("depth of vitviz-tiny: 3")
    assert requests == []
    expect(page.locator("#vitviz-compared")).to_contain_text("20 crops of four images")


def test_default_compares_model_with_itself_before_training(open_page, survey):
    page = open_page("?tab=compared", wait=False)
    ready(page, "compared")
    before = vitviz.survey(
        sample_crops(), vitviz.load("vitviz-tiny@0", device="cpu"), ["similarity"], batch=8
    )
    shown = page.evaluate(f"((view) => {MATRIX}.values)({VIEW})")
    np.testing.assert_allclose(np.reshape(shown, (9, 9)), vitviz.cka(survey, before), rtol=1e-3, atol=1e-4)
    expect(page.locator("#vitviz-compared .vv-below .vv-legend")).to_have_text(
        ["vitviz-tiny", "vitviz-tiny@0"]
    )
    expect(page.locator("#vitviz-compared")).to_contain_text(
        "The columns are the model before training (step 0)."
    )


def choose_comparison(page, option):
    page.locator("#vitviz-compared [data-name=against] select").select_option(option)


def test_each_comparison_draws_expected_matrices_and_charts(open_page):
    page = open_page("?tab=compared&second=vitviz-tiny@30&curve=mlp", wait=False)
    ready(page, "compared")
    matrices = page.locator("#vitviz-tab-compared .vv-matrix .vv-plot canvas:visible")
    charts = page.locator("#vitviz-tab-compared .vv-below .vv-chart:visible")
    legends = page.locator("#vitviz-compared .vv-below .vv-legend")
    expect(matrices).to_have_count(1)  # not also its transpose
    expect(charts).to_have_count(1)
    expect(legends).to_have_text(["vitviz-tiny", "vitviz-tiny@30"])
    choose_comparison(page, "own")
    ready(page, "second-compared")
    expect(matrices).to_have_count(2)
    expect(charts).to_have_count(1)  # with both lines
    choose_comparison(page, "before")
    expect(charts).to_have_count(2)  # each checkpoint against itself before training
    expect(legends).to_have_text(["vitviz-tiny", "vitviz-tiny@0"])
    choose_comparison(page, "beside")
    expect(matrices).to_have_count(1)
    choose_comparison(page, "film")
    followed = f"() => ((view) => view.data.matrix && {MATRIX}.cols.length > 9)({VIEW})"
    page.wait_for_function(followed, timeout=300_000)  # seventeen snapshots on twenty images


def test_uploaded_image_set_is_compared(open_page, tmp_path):
    from PIL import Image

    page, files = open_page("?tab=compared", wait=False), []
    ready(page, "compared")
    for number in range(9):
        files.append(tmp_path / f"{number}.png")
        pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(files[-1])
    upload_image_set(page, files)
    page.locator(".vv-set .vv-go").click()
    expect(page.locator("#vitviz-compared")).to_contain_text("Based on a set of 9 images", timeout=60_000)
    under, view = (page.locator(one).bounding_box() for one in ("#vitviz-set", "#vitviz-tab-compared"))
    assert (under["x"], under["width"]) == (view["x"], view["width"])  # the panel must not widen the page
    page.locator(".vv-set-single").click()
    expect(page.locator("#vitviz-compared")).to_contain_text("crops of four images")


def test_training_comparison_shows_progress_stops_and_continues(open_page):
    page = open_page("?tab=compared", wait=False)
    ready(page, "compared")
    questions, requests, part = [], [], page.locator("#vitviz-compared")
    count = len(vitviz.training_snapshots("vitviz-tiny"))
    page.on("request", lambda request: requests.append(request.url) if "/looked?" in request.url else None)
    page.route(re.compile(r"/compared/looked\?frame=3$"), lambda question: questions.append(question))
    choose_comparison(page, "film")
    status, go, canvas = (part.locator(one) for one in (".vv-trying", ".vv-go", ".vv-figure canvas"))
    expect(status).to_have_text(f"3 of {count} training steps", timeout=60_000)
    expect(canvas.first).to_be_hidden()  # the previous matrix is hidden
    go.click()
    expect(status).to_contain_text("Results so far are kept")
    expect(go).to_have_text("Continue")
    expect(part.locator(".vv-below .vv-chart")).to_be_visible()
    page.wait_for_function(f"() => !{VIEW}.data.matrix")
    assert len(requests) == 4
    part.locator("[data-name=curve] select").select_option("entropy")
    ready(page, "compared")
    assert len(requests) == 4, "another curve continues the stopped comparison"
    page.unroute_all()
    go.click()
    followed = f"() => ((view) => view.data.matrix && {MATRIX}.cols.length === {count})({VIEW})"
    page.wait_for_function(followed, timeout=300_000)
    expect(go).to_be_hidden()
    expect(canvas.first).to_be_visible()
    steps = [int(one.split("=")[-1]) for one in requests[4:]]
    assert steps == [*range(3, count)], "finished snapshots are requested again"
