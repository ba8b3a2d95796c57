"""Evidence in the browser: a sum that balances, a head that is taken away, and chips that bring it back."""

import re

from playwright.sync_api import expect

from tests.e2e.conftest import open_tab, ready

BALANCE = re.compile(r"^(−?\d+\.\d{3}) of (−?\d+\.\d{3})$")


def balanced(page) -> float:
    text = page.locator("#vitviz-evidence .vv-balance").inner_text()
    total, logit = BALANCE.match(text).groups()
    assert total == logit, text
    return float(logit.replace("−", "-"))


def test_the_sum_balances_and_a_head_can_be_taken_away_and_put_back(open_page):
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    key = ready(page, "evidence")
    before = balanced(page)
    page.goto(page.url.split("?")[0] + "?sample=coffee&tab=evidence&chosen=5.2")
    ready(page, "evidence")
    expect(page.locator("#vitviz-evidence .vv-picked")).to_contain_text("everything else")
    page.locator("#vitviz-evidence .vv-away").click()
    edits = page.locator("#vitviz-edits .vv-edits")
    expect(edits).to_contain_text("Layer 5, head 2", timeout=20_000)
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-evidence [data-ready]').dataset.ready.startsWith(key)",
        arg=key,
    )
    ready(page, "evidence")
    expect(page.locator("#vitviz-facts .vv-before")).to_contain_text("espresso 94.9 %")
    without = balanced(page)
    assert abs(without - before) > 0.01, "the head was missed by nobody"
    open_tab(page, "Rollout")  # every view follows
    edited = ready(page, "rollout")
    page.wait_for_function("() => location.search.includes('without=heads')")
    page.locator("#vitviz-edits .vv-edit-all").click()
    expect(edits).to_be_hidden(timeout=20_000)
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-rollout [data-ready]').dataset.ready.startsWith(key)",
        arg=edited,
    )
    open_tab(page, "Evidence")
    ready(page, "evidence")
    assert balanced(page) == before


def test_two_visitors_with_different_edits_do_not_see_each_others(open_page):
    pages = [
        open_page(f"?sample=coffee&tab=evidence&without={text}", wait=False)
        for text in ("heads%3D5.2", "patches%3D104.105.106", "")
    ]
    found = []
    for page in pages:
        ready(page, "evidence")
        found.append(balanced(page))
    assert len(set(found)) == 3
    expect(pages[1].locator("#vitviz-edits .vv-edits")).to_contain_text("3 patches")
    expect(pages[2].locator("#vitviz-edits .vv-edits")).to_be_hidden()


def test_another_class_is_asked_by_its_name_and_one_against_another(open_page):
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    ready(page, "evidence")
    before = balanced(page)
    rather = page.locator("#vitviz-evidence .vv-class").nth(1)
    rather.fill("wooden spoon")
    rather.press("Enter")
    page.wait_for_function(
        "() => /target=\\d+-\\d+/.test(document.querySelector('#vitviz-evidence [data-ready]').dataset.ready)"
    )
    assert 0 < balanced(page) < before
