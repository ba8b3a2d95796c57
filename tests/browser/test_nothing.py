"""What the net below all tests of the page catches, as seen at a page that says each of it once."""

import pytest

from tests.browser import nothing

MARGIN = '() => { document.body.append("margin −NaN"); }'
CAUGHT = [
    MARGIN,
    '() => { document.body.firstElementChild.firstChild.data = "null of 12"; }',
    '() => { document.body.firstElementChild.title = "NaN patches"; }',
    '() => { document.querySelector("input").setAttribute("aria-valuetext", "undefined"); }',
    '() => { document.querySelector("input").value = "[object Object]"; }',
    '() => { document.querySelector("canvas").getContext("2d").fillText("nan", 0, 0); }',
    '() => { document.body.firstElementChild.textContent = "common.complete"; }',
]


@pytest.fixture
def said(browser):
    page, said = browser.new_page(), []
    page.add_init_script(nothing.SCRIPT)
    page.on("console", lambda message: said.append(message.text))
    page.goto("data:text/html,<body><p>Share of the answer</p><input><canvas></canvas>")
    yield lambda act: (page.evaluate(act), page.evaluate("() => 0"), said)[-1]
    page.close()


@pytest.mark.parametrize("act", CAUGHT)
def test_it_catches_what_no_one_should_read_though_it_goes_at_once(said, act):
    assert said('() => { document.body.append("announced; bananas, the null.csv, nan_to_num"); }') == []
    assert len(said(act)) == 1
    said("() => document.body.replaceChildren()")
    assert len(said('() => { document.body.append("a patch that was left out has no number: –"); }')) == 1
