"""Pasted images are opened; text fields keep what is pasted into them."""

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


def png_bytes(width: int = 200) -> list[int]:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((width, 120)).save(file, "PNG")
    return list(file.getvalue())


@pytest.mark.parametrize("width", [390, 1440])
def test_image_is_pasted_anywhere_on_the_page(open_page, width):
    page = open_page(width=width, height=844)
    open_tab(page, "Rollout")
    ready(page, "rollout")
    for i, onto in enumerate(("body", "#vitviz-rollout canvas", "#vitviz-film", ".vv-copy")):
        page.evaluate(PASTE, [png_bytes(200 + i), "image/png", onto])
        expect(page.locator("#vitviz-stage")).to_contain_text(f"{200 + i} × 120")


def test_ctrl_v_pastes_an_image(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    page.evaluate(
        """async (data) => {
            const blob = new Blob([Uint8Array.from(data)], { type: 'image/png' });
            await navigator.clipboard.write([new ClipboardItem({ 'image/png': blob })]);
        }""",
        png_bytes(),
    )
    page.keyboard.press("Control+v")
    expect(page.locator("#vitviz-stage")).to_contain_text("200 × 120")


def test_paste_into_a_field_or_of_text_opens_no_image(open_page):
    page, uploads = open_page(permissions=["clipboard-read", "clipboard-write"]), []
    page.on("request", lambda request: uploads.append(request.url) if "/upload?" in request.url else None)
    page.evaluate(PASTE, [png_bytes(), "image/png", "#vitviz-picker input"])
    page.evaluate(PASTE, [list(b"Dear diary"), "text/plain", "body"])
    page.evaluate("navigator.clipboard.writeText('typed')")
    field = page.locator("#vitviz-picker input")
    field.focus()
    page.keyboard.press("Control+v")
    expect(field).to_have_value("typed")
    page.evaluate(PASTE, [png_bytes(), "image/png", "body"])
    expect(page.locator("#vitviz-stage")).to_contain_text("200 × 120")
    assert len(uploads) == 1, "other than one paste was uploaded"
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()
