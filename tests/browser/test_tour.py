"""The guided tour: navigation, recomputable numbers, experiments and downloads."""

import math
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import export, open_tab, ready
from tests.browser.helpers import wait_for_step
from tests.views.helpers import NAMES as STEPS


def open_tour(page):
    open_tab(page, "Tour")
    ready(page, "tour")
    wait_for_step(page, "picture")


def go_to_step(page, number: int):
    """Go to a step by the map or, if the map is hidden, by the dots."""
    dot = page.locator("#vitviz-tour .vv-dot").nth(number - 1)
    block = page.locator(f"#vitviz-tour .vv-map [data-to={STEPS[number - 1]}]").last
    (dot if dot.is_visible() else block).click()
    wait_for_step(page, STEPS[number - 1])


def parse_number(text: str) -> float:
    mantissa, _, power = text.replace("−", "-").partition(" · 10")
    power = power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return float(mantissa) * 10 ** int(power or 0)


def table_cells(page, selector: str) -> list[list[str]]:
    return page.evaluate(
        "(s) => [...document.querySelectorAll(s + ' tbody tr')].map((row) => [...row.children].map((cell) =>"
        " cell.textContent))",
        selector,
    )


def test_text_and_figure_are_side_by_side_and_short_steps_need_no_scrolling(open_page):
    page = open_page("?sample=coffee&tab=tour", 1280, 720, wait=False)
    ready(page, "tour")
    tour = page.locator("#vitviz-tour .vv-tour")
    for number, name in enumerate(STEPS, start=1):
        go_to_step(page, number)
        said, body = (tour.locator(part).bounding_box() for part in (".vv-said", ".vv-tour-body"))
        assert said["x"] + said["width"] <= body["x"] and abs(said["y"] - body["y"]) < 80, name
        hidden = tour.locator(".vv-tour-body").evaluate("(body) => body.scrollHeight - body.clientHeight")
        assert hidden <= 0 or name in ("picture", "positions", "attention", "layers", "probabilities"), name


def test_next_and_back_visit_all_steps(open_page):
    page = open_page()
    open_tour(page)
    tour = page.locator("#vitviz-tour")
    expect(tour.locator(".vv-dot")).to_have_count(len(STEPS))
    expect(tour.locator(".vv-back")).to_be_disabled()
    titles = set()
    for position, name in enumerate(STEPS, start=1):
        wait_for_step(page, name)
        expect(tour.locator(".vv-count")).to_have_text(f"Step {position} of {len(STEPS)}")
        expect(tour.locator(".vv-dot[aria-current=step]")).to_have_count(1)
        for part in (".vv-said", ".vv-try", ".vv-shapes"):
            assert (
                re.search(r"\w", tour.locator(part).inner_text())
                and "{" not in tour.locator(part).inner_text()
            )
        titles.add(tour.locator(".vv-tour-title").inner_text())
        if position < len(STEPS):
            tour.locator(".vv-next").click()
    assert len(titles) == len(STEPS)
    expect(tour.locator(".vv-next")).to_be_disabled()
    expect(tour.locator(".vv-on")).to_be_hidden()
    tour.locator(".vv-back").click()
    wait_for_step(page, STEPS[-2])


def test_arrow_keys_change_step_or_patch_by_focus(open_page):
    page = open_page()
    open_tour(page)
    page.locator("#vitviz-tour .vv-next").focus()
    page.keyboard.press("ArrowRight")
    wait_for_step(page, "patches")
    page.keyboard.press("ArrowLeft")
    wait_for_step(page, "picture")
    go_to_step(page, 2)
    token = int(
        re.search(
            r"token=(\d+)", page.locator("#vitviz-tour [data-ready]").get_attribute("data-ready")
        ).group(1)
    )
    page.locator("#vitviz-tour .vv-tour-body canvas").first.focus()
    page.keyboard.press("ArrowRight")  # moves the patch; patch n is token n + 1, after the class token
    expect(page.locator("#vitviz-tour [data-cur]")).to_have_attribute("data-cur", str(token))
    page.keyboard.press("Enter")
    page.wait_for_function(
        "(token) => new RegExp(`token=${token}(&|$)`).test(document.querySelector('#vitviz-tour"
        " [data-ready]').dataset.ready)",
        arg=token + 1,
    )
    wait_for_step(page, "patches")


def test_attention_weight_is_recomputable_from_shown_numbers(open_page):
    import vitviz
    from vitviz.server.page.handlers import FIRST_SAMPLE
    from vitviz.traces import samples

    real = vitviz.load("vitviz-tiny", device="cpu").trace(samples.sample_image(FIRST_SAMPLE)).attention(0)[0]
    page = open_page()
    open_tour(page)
    go_to_step(page, 7)
    body = "#vitviz-tour .vv-tour-body"
    token = int(
        re.search(
            r"token=(\d+)", page.locator("#vitviz-tour [data-ready]").get_attribute("data-ready")
        ).group(1)
    )
    rows = table_cells(page, f"{body} .vv-table:not(.vv-dense)")
    assert 5 <= len(rows) <= 7 and rows[-1][0] == "Sum" and rows[-2][0].startswith("the other")
    total = parse_number(rows[-1][-2])
    picked = rows[0]
    key = int(picked[0].split()[1])  # patch 1 is token 1, after the class token
    page.get_by_text("All numbers of this product").click()
    expect(page.locator(f"{body} .vv-dense tbody tr")).to_have_count(64)
    parts = [[parse_number(value) for value in row[1:]] for row in table_cells(page, f"{body} .vv-dense")]
    product = sum(q * k for q, k, _ in parts)
    assert product == pytest.approx(parse_number(picked[1]), abs=1e-3)
    weight = math.exp(product / math.sqrt(64)) / total
    assert weight == pytest.approx(parse_number(picked[-1]), rel=1e-3)
    assert weight == pytest.approx(real[token, key].item(), rel=1e-3)
    assert key == real[token].argmax().item(), "the first row is not the strongest key"
    page.get_by_text("All keys of this row").click()
    expect(page.locator(f"{body} .vv-dense").last.locator("tbody tr")).to_have_count(len(real) + 1)
    others = table_cells(page, f"{body} details:last-of-type .vv-dense")[:-1]
    assert sum(parse_number(row[-2]) for row in others) == pytest.approx(total, rel=1e-4)


def test_layer_key_and_class_token_are_selectable(open_page):
    page = open_page()
    open_tour(page)
    go_to_step(page, 7)
    tour, mark = page.locator("#vitviz-tour"), "#vitviz-tour [data-ready]"
    before = tour.locator(".vv-line").inner_text()
    tour.locator("[data-name=layer] input").fill("5")
    page.wait_for_function(f"() => /layer=5(&|$)/.test(document.querySelector('{mark}').dataset.ready)")
    assert tour.locator(".vv-line").inner_text() != before
    tour.get_by_role("button", name="Class token", exact=True).click()
    expect(tour).to_contain_text("The query: Class token")
    tour.locator(".vv-table tbody tr").nth(1).click()
    page.wait_for_function(f"() => /keys=\\d+/.test(document.querySelector('{mark}').dataset.ready)")
    go_to_step(page, 8)
    expect(tour.locator(".vv-heads button")).to_have_count(3)
    expect(tour).to_contain_text("Layer 5: where each head attends")


def test_position_experiment_runs_and_reshuffles(open_page):
    page = open_page()
    open_tour(page)
    go_to_step(page, 6)
    tour = page.locator("#vitviz-tour")
    done = "() => document.querySelector('[data-experiment]').dataset.experiment"
    page.wait_for_function(done, timeout=60_000)
    expect(tour.locator(".vv-card")).to_have_count(4)
    answers = [card.locator(".vv-tops").inner_text() for card in tour.locator(".vv-card").all()]
    assert all(len(re.findall("%", text)) == 3 for text in answers)
    assert answers[0] != answers[1] and answers[0] != answers[2] and answers[2] == answers[3]
    expect(tour.locator(".vv-verdict")).to_contain_text(
        "Without Epos both orders give the same prediction, up to rounding"
    )
    pictures = (
        "() => [...document.querySelectorAll('#vitviz-tour .vv-card canvas')].map((canvas) =>"
        " canvas.toDataURL())"
    )
    first = page.evaluate(pictures)
    assert first[0] == first[2] and first[1] == first[3] and first[0] != first[1]
    state = page.evaluate(done)
    tour.locator(".vv-shuffle").click()
    page.wait_for_function(
        "(state) => { const now = document.querySelector('[data-experiment]').dataset.experiment; return now"
        " && now !== state; }",
        arg=state,
        timeout=60_000,
    )
    again = page.evaluate(pictures)
    assert again[0] == first[0] and again[1] != first[1]
    assert tour.locator(".vv-card").nth(0).locator(".vv-tops").inner_text() == answers[0], (
        "the prediction of the original has changed"
    )


def test_step_numbers_and_figure_are_downloaded(open_page):
    import numpy as np

    page = open_page()
    open_tour(page)
    go_to_step(page, 7)
    with page.expect_download() as numbers:
        export(page, "tour", ".vv-npz")
    with np.load(numbers.value.path()) as file:
        assert file["attention_row"].sum() == pytest.approx(1) and str(file["setting_step"]) == "7"
    with page.expect_download() as figure:
        export(page, "tour", ".vv-png")
    assert figure.value.suggested_filename == "vitviz-tour.png"


@pytest.mark.parametrize("width, dark", [(390, True), (1440, False)])
def test_no_step_overflows_the_window(open_page, width, dark):
    page = open_page(width=width, height=844, dark=dark)
    open_tour(page)
    for place in range(1, len(STEPS) + 1):
        go_to_step(page, place)
        overflow = page.evaluate(
            "() => Math.max(document.documentElement.scrollWidth - window.innerWidth,"
            " document.querySelector('#vitviz-tour .vv-tour').scrollWidth -"
            " document.querySelector('#vitviz-tour .vv-figure').clientWidth)"
        )
        assert overflow <= 0, f"step {place} is {overflow} px too wide at {width} px"
