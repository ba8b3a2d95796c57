"""The image editor: strokes change the prediction; undo, links, reload and history restore exact bytes."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import choose_sample, open_tab, ready
from tests.browser.helpers import SIZES, wait_for_history

PAINTED = "brush.mean_90.250.100.100.40.-60.80 move_300.150.80.60.-200.40"


def open_editor(page):
    """Open the editor and return its canvas when the image is drawn."""
    page.get_by_role("button", name="Edit image").click()
    canvas = page.locator(".vv-board canvas")
    page.wait_for_function("() => document.querySelector('.vv-board canvas').height > 150")
    return canvas


def drag(page, canvas, *path: tuple[float, float]) -> None:
    """Drag the mouse along a path in fractions of the canvas."""
    box = canvas.bounding_box()
    for i, (x, y) in enumerate(path):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5 if i else 1)
        if not i:
            page.mouse.down()
    page.mouse.up()


def predictions(page) -> list[str]:
    return page.locator("#vitviz-facts .vv-answers li").all_text_contents()


def image_bytes(page) -> str:
    """Return the bytes of the model's input and of the uploaded image."""
    return page.evaluate(
        """async () => {
          const key = document.querySelector('#vitviz-stage [data-ready]').dataset.ready.split('/')[0];
          const each = await Promise.all(['input', 'upload'].map((one) =>
            fetch(`gradio_api/vitviz/${key}/picture/${one}`).then((got) => got.arrayBuffer())));
          return each.map((one) => Array.from(new Uint8Array(one)).join()).join('|'); }"""
    )


def expect_same(page, answers: list[str], bytes_: str) -> None:
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_text(answers)
    assert image_bytes(page) == bytes_


def wait_for_strokes(page, condition: str) -> None:
    """Wait until the strokes fulfil a condition and the image is drawn with them."""
    page.wait_for_function(
        f"""() => {{ const stage = [...window.vitviz.views].find((one) => one.name === 'stage');
          const {{ strokes }} = document.querySelector('#vitviz-edits .vv-edits').dataset;
          return strokes !== undefined && ({condition})
            && stage.root.dataset.ready?.startsWith(`${{stage.value.key}}/`); }}"""
    )
    wait_for_history(page, f"((strokes) => {condition})(moment.strokes)")


def test_undo_and_redo_restore_prediction_and_bytes(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    wait_for_history(page, "moment.sample === 'coffee'")
    before, bytes_before = predictions(page), image_bytes(page)
    canvas = open_editor(page)
    drag(page, canvas, (0.3, 0.3), (0.7, 0.4), (0.4, 0.6), (0.6, 0.7))
    wait_for_strokes(page, "/^brush.mean_48.[0-9.-]+$/.test(strokes)")
    page.wait_for_function("() => location.search.includes('strokes=brush.mean_48.')")
    expect(page.locator(".vv-board-answers")).to_contain_text("94.9 % → ")
    painted, bytes_painted = predictions(page), image_bytes(page)
    assert painted != before and bytes_painted != bytes_before
    drag(page, canvas, (0.1, 0.1))
    wait_for_strokes(page, "strokes.split(' ').length === 2")
    page.keyboard.press("Control+z")
    wait_for_strokes(page, "strokes.split(' ').length === 1")
    expect_same(page, painted, bytes_painted)
    page.keyboard.press("Control+z")
    wait_for_strokes(page, "!strokes")
    expect(page.locator("#vitviz-edits .vv-edit")).to_have_count(0)
    expect_same(page, before, bytes_before)
    page.keyboard.press("Control+Shift+Z")
    wait_for_strokes(page, "strokes.split(' ').length === 1")
    expect_same(page, painted, bytes_painted)
    page.keyboard.press("Escape")
    expect(page.locator(".vv-board")).to_be_hidden()
    page.get_by_role("button", name="Restore: Edited image").click()
    wait_for_strokes(page, "!strokes")
    expect_same(page, before, bytes_before)


def test_move_transform_lighting_and_paste_are_recorded_as_strokes(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    canvas = open_editor(page)
    page.get_by_role("button", name="Move", exact=True).click()
    drag(page, canvas, (0.25, 0.25), (0.5, 0.5))
    drag(page, canvas, (0.4, 0.4), (0.6, 0.5))
    wait_for_strokes(page, "strokes === 'move_150.100.150.100.120.40'")
    canvas.press("ArrowRight")
    canvas.press("Enter")
    wait_for_strokes(page, "strokes.endsWith('move_270.140.150.100.1.0')")
    page.get_by_role("button", name="Flip horizontally").click()
    wait_for_strokes(page, "strokes.endsWith('move_271.140.150.100.0.0.-150.100')")
    page.get_by_role("button", name="Smaller").click()
    wait_for_strokes(page, "strokes.endsWith('move_271.140.150.100.15.10.120.80')")
    slider = page.get_by_role("slider", name="Rotation")
    slider.fill("30")
    wait_for_strokes(page, "strokes.endsWith(' rotate_30')")
    page.get_by_role("slider", name="Brightness").fill("-20")
    wait_for_strokes(page, "strokes.endsWith(' rotate_30 brightness_-20')")
    slider.fill("5")
    wait_for_strokes(page, "strokes.endsWith(' rotate_5 brightness_-20')")
    page.get_by_role("button", name="Undo").click()
    wait_for_strokes(page, "strokes.endsWith(' rotate_30 brightness_-20')")
    expect(slider).to_have_value("30")
    expect(page.locator(".vv-board label", has_text="Rotation")).to_contain_text("30°")
    page.get_by_role("combobox", name="Cut out").select_option("free")
    drag(page, canvas, (0.1, 0.1), (0.2, 0.1), (0.2, 0.3), (0.1, 0.1))
    drag(page, canvas, (0.18, 0.15), (0.28, 0.15))
    wait_for_strokes(page, "/move_60.40.61.81.60.0.61.81.60.40.[0-9.-]+$/.test(strokes)")
    # pasting onto another image scales the piece and resets rotation and brightness
    was = predictions(page), image_bytes(page)
    count = page.evaluate("document.querySelector('.vv-edits').dataset.strokes.split(' ').length")
    onto = page.get_by_role("combobox", name="Paste onto another image")
    onto.select_option("chelsea")
    wait_for_strokes(page, "/onto.chelsea_120.40.61.81.-29.-10.46.61.120.40.[0-9.-]+$/.test(strokes)")
    expect(page.locator("#vitviz-stage")).to_contain_text("451 × 300")
    expect(slider).to_have_value("0")
    expect(page.locator(".vv-board-answers")).to_contain_text("→")
    expect(canvas).to_have_attribute("aria-busy", "false")  # the other image is drawn in the editor
    canvas.press("ArrowRight")
    canvas.press("Enter")
    wait_for_strokes(page, "/onto.chelsea_120.40.61.81.-28.-10.46.61.120.40.[0-9.-]+$/.test(strokes)")
    slider.fill("9")
    wait_for_strokes(page, f"strokes.split(' ').length === {count + 2} && strokes.endsWith(' rotate_9')")
    for _ in range(3):
        page.get_by_role("button", name="Undo").click()
    wait_for_strokes(page, f"strokes.split(' ').length === {count}")
    expect_same(page, *was)


def test_keyboard_paints_and_copies(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    canvas = open_editor(page)
    for key in ("Shift+ArrowRight", "Enter", "Shift+ArrowDown", "ArrowLeft", "Enter"):
        canvas.press(key)
    wait_for_strokes(page, "strokes === 'brush.mean_48.310.200.0.10'")
    page.get_by_role("button", name="Copy", exact=True).press("Enter")
    for key in ("Enter", "Shift+ArrowRight", "Shift+ArrowDown", " ", "Shift+ArrowUp", "Enter"):
        canvas.press(key)
    wait_for_strokes(page, "strokes.endsWith(' copy_309.210.10.10.0.-10')")


def test_link_reload_and_history_restore_strokes(open_page):
    page = open_page(f"?sample=coffee&tab=rollout&strokes={PAINTED.replace(' ', '+')}", wait=False)
    ready(page, "rollout")
    wait_for_strokes(page, f"strokes === '{PAINTED}'")
    painted, bytes_painted = predictions(page), image_bytes(page)
    canvas = open_editor(page)
    page.get_by_role("button", name="Eraser").click()
    drag(page, canvas, (0.4, 0.2), (0.6, 0.7))
    wait_for_strokes(page, "strokes.includes(' erase_')")
    erased, bytes_erased = predictions(page), image_bytes(page)
    assert bytes_erased != bytes_painted
    page.wait_for_function("() => location.search.includes('erase_')")
    other = open_page(page.evaluate("location.search"), wait=False)
    ready(other, "rollout")
    wait_for_strokes(other, "strokes.includes(' erase_')")
    expect_same(other, erased, bytes_erased)
    other.reload()
    ready(other, "rollout")
    wait_for_strokes(other, "strokes.includes(' erase_')")
    assert image_bytes(other) == bytes_erased
    page.keyboard.press("Escape")
    page.go_back()
    wait_for_strokes(page, f"strokes === '{PAINTED}'")
    expect_same(page, painted, bytes_painted)
    page.go_forward()
    wait_for_strokes(page, "strokes.includes(' erase_')")
    expect_same(page, erased, bytes_erased)


def test_uploaded_image_keeps_strokes_after_reload(open_page, tmp_path):
    from tests.browser.helpers import upload_image

    page = open_page("?tab=rollout", wait=False)
    ready(page, "rollout")
    upload_image(page, tmp_path / "mine.png")
    drag(page, open_editor(page), (0.3, 0.3), (0.7, 0.7))
    wait_for_strokes(page, "strokes.startsWith('brush.mean_')")
    painted = image_bytes(page)
    assert "strokes" not in page.evaluate("location.search"), "the link would paint a sample"
    page.reload()
    ready(page, "rollout")
    wait_for_strokes(page, "strokes.startsWith('brush.mean_')")
    expect(page.locator("#vitviz-stage")).to_contain_text("300 × 200")
    assert image_bytes(page) == painted
    choose_sample(page, 1)
    wait_for_history(page, "moment.sample && !moment.strokes")


def test_held_key_shows_the_original_image(open_page):
    page = open_page(f"?sample=coffee&tab=rollout&strokes={PAINTED.replace(' ', '+')}", wait=False)
    ready(page, "rollout")
    wait_for_strokes(page, f"strokes === '{PAINTED}'")
    stage = page.locator("#vitviz-stage canvas")

    def middle(canvas) -> list[int]:
        return canvas.evaluate(
            """(one) => [...one.getContext('2d')
              .getImageData(one.width * 0.5, one.height * 0.3, 1, 1).data].slice(0, 3)"""
        )

    def until(canvas, other: list[int], same: bool) -> None:
        page.wait_for_function(
            """([one, other, same]) => { const { data } = one.getContext('2d')
              .getImageData(one.width * 0.5, one.height * 0.3, 1, 1);
              return same === (String([...data].slice(0, 3)) === String(other)); }""",
            arg=[canvas.element_handle(), other, same],
        )

    painted = middle(stage)
    page.keyboard.down("o")
    until(stage, painted, False)
    page.keyboard.up("o")
    until(stage, painted, True)
    canvas = open_editor(page)
    page.wait_for_timeout(300)
    drawn = middle(canvas)
    box = page.get_by_role("button", name="Show original").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    until(canvas, drawn, False)
    page.mouse.up()
    until(canvas, drawn, True)


@pytest.mark.parametrize(("width", "height"), [*SIZES[:2], (390, 844)])
def test_editor_causes_no_layout_shift(open_page, width, height):
    page = open_page("?sample=coffee&tab=rollout", width, height, wait=False)
    ready(page, "rollout")
    boxes = """() => ['stage canvas', 'right', 'rollout canvas', 'facts .vv-answers']
      .map((one) => `#vitviz-${one}`)
      .map((one) => document.querySelector(one).getBoundingClientRect())
      .map(({ x, y, width, height }) => [x, y, width, height].map(Math.round))"""
    parts = """() => [...document.querySelectorAll('.vv-board :is(canvas, button, input, select)')]
      .filter((one) => one.checkVisibility())
      .map((one) => one.getBoundingClientRect())
      .map(({ x, y, width, height }) => [x, y, width, height].map(Math.round))"""
    around = page.evaluate(boxes)
    canvas = open_editor(page)
    page.wait_for_timeout(500)
    assert page.evaluate(boxes) == around
    inside = page.evaluate(parts)
    if width > 1000:
        board, right = (page.locator(one).bounding_box() for one in (".vv-board", "#vitviz-right"))
        assert board["x"] + board["width"] <= right["x"], "the editor covers a figure"
    for x, y, w, h in inside:
        assert 0 <= x and x + w <= width and 0 <= y and y + h <= height, "a control lies outside the window"
        assert width > 400 or (w >= 44 and h >= 44), "a touch target is too small"
    drag(page, canvas, (0.4, 0.4), (0.5, 0.5))
    wait_for_strokes(page, "strokes.startsWith('brush')")
    expect(page.locator(".vv-board-answers")).to_contain_text("→")
    page.wait_for_timeout(500)
    assert page.evaluate(parts) == inside
    assert page.evaluate(boxes) == around


@pytest.mark.parametrize(
    ("language", "edit", "erase"), [("zh-CN", "编辑图片", "橡皮擦"), ("ko", "이미지 편집", "지우개")]
)
def test_editor_is_translated(open_page, language, edit, erase):
    page = open_page(f"?sample=coffee&tab=rollout&lang={language}", wait=False)
    ready(page, "rollout")
    page.get_by_role("button", name=edit).click()
    expect(page.locator(".vv-board button", has_text=erase)).to_be_visible()


def test_tap_paints(open_page):
    page = open_page("?sample=coffee&tab=rollout", 390, 844, wait=False, has_touch=True)
    ready(page, "rollout")
    page.locator(".vv-edit-picture").tap()
    page.wait_for_function("() => document.querySelector('.vv-board canvas').height > 150")
    box = page.locator(".vv-board canvas").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait_for_strokes(page, "strokes === 'brush.mean_48.300.200'")


def test_more_than_100_strokes_are_rejected(open_page):
    many = "+".join(["brush.mean_9.20.20"] * 100)
    page = open_page(f"?sample=coffee&tab=rollout&strokes={many}", wait=False)
    ready(page, "rollout")
    wait_for_strokes(page, "strokes.split(' ').length === 100")
    drag(page, open_editor(page), (0.3, 0.3), (0.7, 0.7))
    expect(page.locator("#vitviz-notice .vv-notice-text")).to_contain_text("at most 100")
    expect(page.locator(".vv-board")).to_be_hidden()
    wait_for_strokes(page, "strokes.split(' ').length === 100")
    open_tab(page, "Attention")
    ready(page, "explorer")
