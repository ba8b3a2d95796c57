"""Maps on trial in the browser: curves one after the other, a verdict, a stop, and what is taken home."""

import csv
import io
import re

import numpy as np
from playwright.sync_api import expect

from tests.e2e.conftest import open_tab, ready

WHOLE = "#vitviz-trial [data-tried]:not([data-tried=''])"


def held(page, method):
    """The questions about one method, which wait until they are let go on: a fast machine's trial is over
    before a test can look at it.
    """
    questions = []
    page.route(
        re.compile(rf"/trial/tried\?.*method={method}(&|$)"), lambda question: questions.append(question)
    )
    return questions


def test_a_trial_runs_by_itself_says_its_verdict_and_is_taken_home(open_page):
    page = open_page("?sample=coffee")
    questions = held(page, "centre")
    open_tab(page, "Trial")
    ready(page, "trial")
    trying = page.locator("#vitviz-trial .vv-trying")
    expect(trying).to_have_text("1 of 15: Blob in the centre", timeout=60_000)
    assert page.locator(WHOLE).count() == 0
    for question in questions:
        question.continue_()
    page.locator(WHOLE).wait_for(state="attached", timeout=120_000)
    expect(page.locator("#vitviz-trial .vv-verdict")).to_contain_text("On this picture")
    rows = page.locator("#vitviz-trial .vv-ranking tbody tr")
    assert rows.count() == 15
    best = rows.first.get_attribute("data-method")
    rows.first.locator("button").click()
    expect(page.locator(f"#vitviz-trial polyline[data-method={best}]").first).to_have_attribute(
        "stroke-width", "3.2"
    )
    plot = page.locator("#vitviz-trial .vv-curves")
    plot.focus()
    plot.press("ArrowRight")
    plot.press("ArrowRight")
    expect(page.locator(".vv-tip.vv-on")).to_contain_text("10 % removed, most relevant first")
    for shown, what in (("maps", ".vv-trial-maps button"), ("agreement", "canvas")):
        page.locator(f"#vitviz-trial [data-name=show] input[value={shown}]").check(force=True)
        expect(page.locator(f"#vitviz-trial .vv-below {what}").locator("visible=true").first).to_be_visible()
    with page.expect_download(timeout=60_000) as taken:
        page.locator("#vitviz-trial .vv-take").click()
    table = list(csv.DictReader(io.StringIO(taken.value.path().read_text())))
    assert table[0]["method"] == best and len(table) == 15
    with page.expect_download(timeout=60_000) as taken:
        page.locator("#vitviz-trial .vv-npz").click()
    assert np.load(taken.value.path())["curves"].shape == (15, 2, 3, 11)


def test_it_can_be_stopped_and_goes_on_where_it_was(open_page):
    page = open_page("?sample=rocket&lang=ko", width=390, height=844)
    held(page, "gradient_rollout")
    open_tab(page, "시험")
    ready(page, "trial")
    go = page.locator("#vitviz-trial .vv-go")
    expect(go).to_have_text("멈추기")
    page.locator("#vitviz-trial polyline[data-method=centre]").first.wait_for(
        state="attached", timeout=60_000
    )
    go.click()
    expect(go).to_have_text("계속")
    page.unroute_all()
    known = page.locator("#vitviz-trial .vv-ranking tbody tr").count()
    assert 2 <= known < 15 and page.locator(WHOLE).count() == 0
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, "nothing juts out of a phone's window"
    go.click()
    page.locator(WHOLE).wait_for(state="attached", timeout=120_000)
