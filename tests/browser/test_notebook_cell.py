"""Views in the output cell of a notebook, in an offline browser, light and dark."""

import re

import pytest

import vitviz
from vitviz.surveys import LAYERS, sample_crops
from vitviz.views import VIEWS, Needs

NOTEBOOK = """<!doctype html><meta charset="utf-8"><body style="background:{paper};color:{ink}">
<p>Cell [1]</p>{frame}</body>"""
LIGHT, DARK = dict(paper="#fff", ink="#1c2430"), dict(paper="#111", ink="#ddd")


@pytest.fixture(scope="module")
def traced():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    return inspector, inspector.trace(vitviz.sample_image("chelsea"))


@pytest.fixture
def open_cell(browser, tmp_path):
    """Return a function that opens a view in a notebook page. Requests and errors fail the test."""
    pages, problems = [], []

    def open_(cell, around=LIGHT):
        file = tmp_path / "notebook.html"
        file.write_text(NOTEBOOK.format(frame=cell._repr_html_(), **around), encoding="utf-8")
        page = browser.new_context(viewport={"width": 1000, "height": 800}, offline=True).new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on(
            "request",
            lambda request: problems.append(request.url) if request.url.startswith("http") else None,
        )
        pages.append(page)
        page.goto(file.as_uri())
        frame = page.frames[1]
        frame.wait_for_selector(".vv[data-ready]")
        return page, frame

    yield open_
    assert problems == []
    for page in pages:
        page.context.close()


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_view_is_drawn_uncropped_in_notebook_cell(open_cell, traced, view):
    inspector, trace = traced
    if view.slug in ("explorer", "tokens"):  # a cell holds all weights or norms: of 49 patches, not of 196
        trace = inspector.trace(trace.view.picture, size=56)
    subject = None if view.needs is Needs.WEIGHTS else trace
    if view.needs is Needs.SET:
        subject = vitviz.survey(sample_crops(), inspector, LAYERS)
    page, frame = open_cell(vitviz.show(view.slug, inspector, subject), DARK)
    assert frame.locator(".vv-error").is_hidden() and frame.locator(".vv-note").is_hidden()
    wide = "(one) => one.getBoundingClientRect().width"
    assert max(frame.evaluate(f"[...document.querySelectorAll('.vv canvas, .vv svg')].map({wide})")) > 60
    # wait: the first drawing may have another height
    page.wait_for_function(
        "() => { const frame = document.querySelector('iframe');"
        " return Math.abs(frame.offsetHeight - frame.contentDocument.documentElement.offsetHeight) < 8 }"
    )
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


def test_cell_follows_the_theme_of_the_notebook(open_cell, traced):
    page, frame = open_cell(vitviz.show("positions", traced[0]), LIGHT)
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    assert frame.evaluate(paper) == "rgb(255, 255, 255)"
    page.evaluate("document.body.style.cssText = 'background:#111;color:#ddd'")
    frame.wait_for_selector("html.dark")
    assert frame.evaluate(paper) == "rgb(20, 24, 30)"


def test_layer_slider_shows_attention_of_that_layer(open_cell, traced):
    inspector, trace = traced
    _, frame = open_cell(vitviz.show("explorer", inspector, trace, token=7))
    frame.locator("[data-name=layer] input").fill("5")
    frame.wait_for_selector(".vv[data-ready*='layer=5']")
    text = frame.locator(".vv").text_content()
    expected = trace.attention(4)[0, 7, 1:].sum().item()
    shown = float(re.search(r"On patches: (\d\.\d+)", text)[1])
    assert shown == pytest.approx(expected, abs=0.001)  # float16, three digits
    assert abs(expected - trace.attention(0)[0, 7, 1:].sum().item()) > 0.003, "the two layers do not differ"


def test_setting_without_stored_data_shows_error_and_keeps_figure(open_cell, traced):
    inspector, trace = traced
    _, frame = open_cell(
        vitviz.show("rollout", inspector, trace, live=["fusion"], language="ko", discard=0.5)
    )
    assert (
        "고정된 설정" in frame.locator("body").text_content()
        and not frame.locator("[data-name=discard]").count()
    )
    box = frame.locator(".vv canvas").first.bounding_box()
    frame.locator(".vv canvas").first.click(position={"x": box["width"] / 3, "y": box["height"] / 3})
    error = frame.locator(".vv-error")
    error.wait_for(state="visible")
    assert "vitviz.show" in error.text_content() and frame.locator(".vv canvas").first.is_visible()


def test_result_cards_pass_axe_contrast_in_light_and_dark(browser, traced, tmp_path):
    from axe_playwright_python.sync_playwright import Axe

    inspector, trace = traced
    results = (
        inspector, trace, vitviz.attention_distance(trace), vitviz.logit_attribution(inspector, trace, 0)
    )  # fmt: skip
    for around in (LIGHT, DARK):
        file = tmp_path / "cards.html"
        cards = "".join(result._repr_html_() for result in results)
        file.write_text(NOTEBOOK.format(frame=cards, **around), encoding="utf-8")
        page = browser.new_page()
        page.goto(file.as_uri())
        audit = Axe().run(page, options={"runOnly": ["color-contrast", "image-alt", "svg-img-alt"]})
        assert audit.violations_count == 0, audit.generate_report()
        page.close()
