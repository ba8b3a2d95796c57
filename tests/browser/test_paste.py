"""A picture pasted anywhere on the page is looked at; in a text field the field has it."""

import io

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready

PASTE = """([data, kind, onto]) => {
  const held = new DataTransfer();
  held.items.add(new File([Uint8Array.from(data)], 'pasted', { type: kind }));
  const options = { clipboardData: held, bubbles: true, cancelable: true };
  document.querySelector(onto).dispatchEvent(new ClipboardEvent('paste', options));
}"""


def picture(width: int = 200) -> list[int]:
    held = io.BytesIO()
    Image.linear_gradient("L").resize((width, 120)).save(held, "PNG")
    return list(held.getvalue())


@pytest.mark.parametrize("width", [390, 1440])
def test_it_works_anywhere_on_the_page(open_page, width):
    page = open_page(width=width, height=844)
    open_tab(page, "Rollout")
    ready(page, "rollout")
    for i, onto in enumerate(("body", "#vitviz-rollout canvas", "#vitviz-film", ".vv-copy")):
        page.evaluate(PASTE, [picture(200 + i), "image/png", onto])
        expect(page.locator("#vitviz-stage")).to_contain_text(f"{200 + i} × 120")


def test_by_the_keys_of_the_browser(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    page.evaluate(
        """async (data) => {
            const blob = new Blob([Uint8Array.from(data)], { type: 'image/png' });
            await navigator.clipboard.write([new ClipboardItem({ 'image/png': blob })]);
        }""",
        picture(),
    )
    page.keyboard.press("Control+v")
    expect(page.locator("#vitviz-stage")).to_contain_text("200 × 120")


def test_a_field_keeps_what_is_pasted_into_it_and_no_text_is_a_picture(open_page):
    page, sent = open_page(permissions=["clipboard-read", "clipboard-write"]), []
    page.on("request", lambda asked: sent.append(asked.url) if "/upload?" in asked.url else None)
    page.evaluate(PASTE, [picture(), "image/png", "#vitviz-picker input"])
    page.evaluate(PASTE, [list(b"Dear diary"), "text/plain", "body"])
    page.evaluate("navigator.clipboard.writeText('typed')")
    field = page.locator("#vitviz-picker input")
    field.focus()
    page.keyboard.press("Control+v")
    expect(field).to_have_value("typed")
    page.evaluate(PASTE, [picture(), "image/png", "body"])
    expect(page.locator("#vitviz-stage")).to_contain_text("200 × 120")
    assert len(sent) == 1, "of all that was pasted one was a picture for the page"
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()
