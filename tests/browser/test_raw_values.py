"""The detector of raw values, on a page that shows each kind of raw value once."""

import pytest

from tests.browser import raw_values

MARGIN = '() => { document.body.append("margin −NaN"); }'
RAW_VALUE_SCRIPTS = [
    MARGIN,
    '() => { document.body.firstElementChild.firstChild.data = "null of 12"; }',
    '() => { document.body.firstElementChild.title = "NaN patches"; }',
    '() => { document.querySelector("input").setAttribute("aria-valuetext", "undefined"); }',
    '() => { document.querySelector("input").value = "[object Object]"; }',
    '() => { document.querySelector("canvas").getContext("2d").fillText("nan", 0, 0); }',
    '() => { document.body.firstElementChild.textContent = "common.complete"; }',
]


@pytest.fixture
def console_after(browser):
    page, said = browser.new_page(), []
    page.add_init_script(raw_values.SCRIPT)
    page.on("console", lambda message: said.append(message.text))
    page.goto("data:text/html,<body><p>Share of the answer</p><input><canvas></canvas>")
    yield lambda act: (page.evaluate(act), page.evaluate("() => 0"), said)[-1]
    page.close()


@pytest.mark.parametrize("act", RAW_VALUE_SCRIPTS)
def test_raw_values_are_reported_once_and_plain_text_is_not(console_after, act):
    assert (
        console_after('() => { document.body.append("announced; bananas, the null.csv, nan_to_num"); }') == []
    )
    assert len(console_after(act)) == 1
    console_after("() => document.body.replaceChildren()")
    assert (
        len(console_after('() => { document.body.append("a patch that was left out has no number: –"); }'))
        == 1
    )
