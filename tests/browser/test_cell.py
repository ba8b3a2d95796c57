"""The canvas in a notebook's output cell: every view, in a browser without any network, light and dark."""

import re

import pytest

import vitviz
from vitviz.surveys import LAYERS, sample_crops
from vitviz.views import VIEWS, Needs

AROUND = """<!doctype html><meta charset="utf-8"><body style="background:{paper};color:{ink}">
<p>Cell [1]</p>{frame}</body>"""
LIGHT, DARK = dict(paper="#fff", ink="#1c2430"), dict(paper="#111", ink="#ddd")


@pytest.fixture(scope="module")
def looked():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    return inspector, inspector.trace(vitviz.sample_image("chelsea"))


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a cell in a notebook's page; fails where it asks for anything or complains."""
    pages, wrong = [], []

    def open_(cell, around=LIGHT):
        file = tmp_path / "notebook.html"
        file.write_text(AROUND.format(frame=cell._repr_html_(), **around), encoding="utf-8")
        page = browser.new_context(viewport={"width": 1000, "height": 800}, offline=True).new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda told: wrong.append(told.text) if told.type == "error" else None)
        page.on("request", lambda asked: wrong.append(asked.url) if asked.url.startswith("http") else None)
        pages.append(page)
        page.goto(file.as_uri())
        frame = page.frames[1]
        frame.wait_for_selector(".vv[data-ready]")
        return page, frame

    yield open_
    assert wrong == []
    for page in pages:
        page.context.close()


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_every_view_is_drawn(opened, looked, view):
    inspector, trace = looked
    of = None if view.needs is Needs.WEIGHTS else trace
    if view.needs is Needs.SET:
        of = vitviz.survey(sample_crops(), inspector, LAYERS)
    page, frame = opened(vitviz.show(view.slug, inspector, of), DARK)
    assert frame.locator(".vv-error").is_hidden() and frame.locator(".vv-note").is_hidden()
    wide = "(one) => one.getBoundingClientRect().width"
    assert max(frame.evaluate(f"[...document.querySelectorAll('.vv canvas, .vv svg')].map({wide})")) > 60
    # nothing is cut off; what is drawn first may be of another height than what stays
    page.wait_for_function(
        "() => { const frame = document.querySelector('iframe');"
        " return Math.abs(frame.offsetHeight - frame.contentDocument.documentElement.offsetHeight) < 8 }"
    )
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


def test_it_is_as_light_or_dark_as_what_is_around_it(opened, looked):
    page, frame = opened(vitviz.show("positions", looked[0]), LIGHT)
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    assert frame.evaluate(paper) == "rgb(255, 255, 255)"
    page.evaluate("document.body.style.cssText = 'background:#111;color:#ddd'")
    frame.wait_for_selector("html.dark")
    assert frame.evaluate(paper) == "rgb(20, 24, 30)"


def test_layers_can_be_changed_and_the_numbers_are_that_layers(opened, looked):
    inspector, trace = looked
    _, frame = opened(vitviz.show("explorer", inspector, trace, token=7))
    frame.locator("[data-name=layer] input").fill("5")
    frame.wait_for_selector(".vv[data-ready*='layer=5']")
    share = frame.locator(".vv").text_content()
    expected = trace.attention(4)[0, 7, 1:].sum().item()
    said = float(re.search(r"On patches: (\d\.\d+)", share)[1])
    assert said == pytest.approx(expected, abs=0.001)  # from float16, in three digits
    assert abs(expected - trace.attention(0)[0, 7, 1:].sum().item()) > 0.003, "layers that differ"


def test_what_is_not_held_is_said_and_takes_nothing_away(opened, looked):
    inspector, trace = looked
    _, frame = opened(vitviz.show("rollout", inspector, trace, live=["fusion"], language="ko", discard=0.5))
    assert (
        "고정된 설정" in frame.locator("body").text_content()
        and not frame.locator("[data-name=discard]").count()
    )
    box = frame.locator(".vv canvas").first.bounding_box()
    frame.locator(".vv canvas").first.click(position={"x": box["width"] / 3, "y": box["height"] / 3})
    error = frame.locator(".vv-error")
    error.wait_for(state="visible")
    assert "vitviz.show" in error.text_content() and frame.locator(".vv canvas").first.is_visible()


def test_cards_read_in_light_and_in_dark(browser, looked, tmp_path):
    """Every text of a card stands out from the page by 4.5 : 1, by axe."""
    from axe_playwright_python.sync_playwright import Axe

    inspector, trace = looked
    results = (
        inspector, trace, vitviz.attention_distance(trace), vitviz.logit_attribution(inspector, trace, 0)
    )  # fmt: skip
    for around in (LIGHT, DARK):
        file = tmp_path / "cards.html"
        cards = "".join(one._repr_html_() for one in results)
        file.write_text(AROUND.format(frame=cards, **around), encoding="utf-8")
        page = browser.new_page()
        page.goto(file.as_uri())
        found = Axe().run(page, options={"runOnly": ["color-contrast", "image-alt", "svg-img-alt"]})
        assert found.violations_count == 0, found.generate_report()
        page.close()
