"""The two walkthroughs of docs/walks.md, performed as written, with the same number of actions."""

import re
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import ready

WALKS = (Path(__file__).parents[2] / "docs/walks.md").read_text(encoding="utf-8").split("\n## ")[1:]
VALUES = "() => [...[...vitviz.views].find((one) => one.name === 'evidence').data.map.values]"


def action_count(walk: str) -> int:
    """Return the number of actions in the text of a walkthrough."""
    return len(re.findall(r"^\d\. ", walk, re.MULTILINE))


def choose_class(page, which: int, name: str):
    """Type a class name into one of the two class fields."""
    field = page.locator("#vitviz-evidence .vv-class").nth(which)
    field.fill(name)
    field.press("Enter")


def test_walk_ablates_patches_that_favour_tabby(open_page):
    page, view = open_page(), "#vitviz-evidence"
    page.locator("#vitviz-samples").get_by_role("button", name="cat", exact=True).click()  # 1
    page.locator("#vitviz-groups").get_by_role("button", name="Why?").click()  # 2
    ready(page, "evidence")
    expect(page.locator("#vitviz-facts .vv-truth")).to_contain_text("cat")
    choose_class(page, 0, "tabby")  # 3
    choose_class(page, 1, "Egyptian cat")  # 4
    expect(page.locator(f"{view} .vv-balance")).to_contain_text("difference of logits")
    expect(page.locator("#vitviz-facts .vv-margin")).to_contain_text("tabby rather than Egyptian cat")
    values = np.array(page.evaluate(VALUES)).reshape(14, 14)
    sums = [[values[row : row + 3, column : column + 3].sum() for column in range(12)] for row in range(12)]
    row, column = np.unravel_index(np.argmax(sums), (12, 12))  # the 3 x 3 patches with the largest sum
    box = page.locator(f"{view} .vv-heat").first.bounding_box()
    step = box["width"] / 14
    page.mouse.move(box["x"] + (column + 0.5) * step, box["y"] + (row + 0.5) * step)  # 5
    page.mouse.down()
    page.mouse.move(box["x"] + (column + 2.5) * step, box["y"] + (row + 2.5) * step, steps=4)
    page.mouse.up()
    expect(page.locator(f"{view} .vv-picked")).to_contain_text("9 patches: +")
    page.get_by_role("button", name="Ablate").first.click()  # 6
    margin = page.locator("#vitviz-facts .vv-margin")
    expect(margin).to_contain_text("→")
    expect(margin).to_be_in_viewport(ratio=1)
    assert page.locator("#vitviz-facts .vv-answer-ghost").count() >= 3
    before, after = (
        float(text.replace("−", "-")) for text in re.findall(r"[−+]?\d+\.\d\d", margin.inner_text())
    )
    assert after < before, "the removed patches did not favour tabby"
    expect(page.locator("#vitviz-facts .vv-undo")).to_be_visible()
    assert action_count(WALKS[0]) == 6


def test_walk_exports_figure_and_copies_caption(open_page, tmp_path):
    image_path = tmp_path / "my-cup.png"
    Image.effect_noise((320, 240), 90).convert("RGB").save(image_path)
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    page.locator("#vitviz-upload input[type=file]").set_input_files(image_path)  # 1
    expect(page.locator("#vitviz-stage canvas")).to_have_attribute("aria-label", re.compile("320 × 240"))
    page.locator("#vitviz-groups").get_by_role("button", name="Why?").click()  # 2
    ready(page, "evidence")
    page.locator("#vitviz-evidence").get_by_role("button", name="Export").click()  # 3
    page.get_by_role("menuitem", name="Figure and caption").click()  # 4
    caption = page.locator(".vv-print-caption")
    page.wait_for_function("() => document.querySelector('.vv-print-caption').value")
    expect(page.locator(".vv-print-preview")).to_have_js_property("complete", True)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download and copy caption").click()  # 5
    assert download.value.suggested_filename.endswith(".svg")
    expect(page.locator(".vv-print-dialog [role=status]")).to_have_text("Saved.")
    assert page.evaluate("navigator.clipboard.readText()") == caption.input_value() != ""
    assert action_count(WALKS[1]) == 5
