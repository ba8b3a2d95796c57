"""The drawing board: what is painted changes the answer, and undone, in a link, reloaded or gone back to it
is the same to the bit.
"""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import choose_sample, open_tab, ready
from tests.browser.helpers import SIZES, wait_for_history

PAINTED = "brush.mean_90.250.100.100.40.-60.80 move_300.150.80.60.-200.40"


def opened(page):
    """The board's canvas, once the photograph is drawn on it."""
    page.get_by_role("button", name="Edit image").click()
    canvas = page.locator(".vv-board canvas")
    page.wait_for_function("() => document.querySelector('.vv-board canvas').height > 150")
    return canvas


def drag(page, canvas, *path: tuple[float, float]) -> None:
    """With the mouse, in shares of the canvas."""
    box = canvas.bounding_box()
    for i, (x, y) in enumerate(path):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5 if i else 1)
        if not i:
            page.mouse.down()
    page.mouse.up()


def answer(page) -> list[str]:
    return page.locator("#vitviz-facts .vv-answers li").all_text_contents()


def seen(page) -> str:
    """The bytes of the model's input, and of the photograph, under the key in view."""
    return page.evaluate(
        """async () => {
          const key = document.querySelector('#vitviz-stage [data-ready]').dataset.ready.split('/')[0];
          const each = await Promise.all(['input', 'upload'].map((one) =>
            fetch(`gradio_api/vitviz/${key}/picture/${one}`).then((got) => got.arrayBuffer())));
          return each.map((one) => Array.from(new Uint8Array(one)).join()).join('|'); }"""
    )


def same(page, answers: list[str], bytes_: str) -> None:
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_text(answers)
    assert seen(page) == bytes_


def strokes(page, condition: str) -> None:
    """Waits until the strokes that the server has answered fulfil it, and the photograph is drawn so."""
    page.wait_for_function(
        f"""() => {{ const stage = [...window.vitviz.views].find((one) => one.name === 'stage');
          const {{ strokes }} = document.querySelector('#vitviz-edits .vv-edits').dataset;
          return strokes !== undefined && ({condition})
            && stage.root.dataset.ready?.startsWith(`${{stage.value.key}}/`); }}"""
    )
    wait_for_history(page, f"((strokes) => {condition})(moment.strokes)")


def test_a_stroke_changes_the_answer_and_undone_all_is_as_it_was(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    wait_for_history(page, "moment.sample === 'coffee'")
    before, bytes_before = answer(page), seen(page)
    canvas = opened(page)
    drag(page, canvas, (0.3, 0.3), (0.7, 0.4), (0.4, 0.6), (0.6, 0.7))
    strokes(page, "/^brush.mean_48.[0-9.-]+$/.test(strokes)")
    page.wait_for_function("() => location.search.includes('strokes=brush.mean_48.')")
    expect(page.locator(".vv-board-answers")).to_contain_text("94.9 % → ")
    painted, bytes_painted = answer(page), seen(page)
    assert painted != before and bytes_painted != bytes_before
    drag(page, canvas, (0.1, 0.1))
    strokes(page, "strokes.split(' ').length === 2")
    page.keyboard.press("Control+z")
    strokes(page, "strokes.split(' ').length === 1")
    same(page, painted, bytes_painted)
    page.keyboard.press("Control+z")
    strokes(page, "!strokes")
    expect(page.locator("#vitviz-edits .vv-edit")).to_have_count(0)
    same(page, before, bytes_before)
    page.keyboard.press("Control+Shift+Z")
    strokes(page, "strokes.split(' ').length === 1")
    same(page, painted, bytes_painted)
    page.keyboard.press("Escape")
    expect(page.locator(".vv-board")).to_be_hidden()
    page.get_by_role("button", name="Restore: Edited image").click()
    strokes(page, "!strokes")
    same(page, before, bytes_before)


def test_a_piece_is_moved_and_the_whole_turned_and_brightened(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    canvas = opened(page)
    page.get_by_role("button", name="Move", exact=True).click()
    drag(page, canvas, (0.25, 0.25), (0.5, 0.5))
    drag(page, canvas, (0.4, 0.4), (0.6, 0.5))
    strokes(page, "strokes === 'move_150.100.150.100.120.40'")
    canvas.press("ArrowRight")
    canvas.press("Enter")
    strokes(page, "strokes.endsWith('move_270.140.150.100.1.0')")
    page.get_by_role("button", name="Flip horizontally").click()
    strokes(page, "strokes.endsWith('move_271.140.150.100.0.0.-150.100')")
    page.get_by_role("button", name="Smaller").click()
    strokes(page, "strokes.endsWith('move_271.140.150.100.15.10.120.80')")
    slider = page.get_by_role("slider", name="Rotation")
    slider.fill("30")
    strokes(page, "strokes.endsWith(' rotate_30')")
    page.get_by_role("slider", name="Brightness").fill("-20")
    strokes(page, "strokes.endsWith(' rotate_30 brightness_-20')")
    slider.fill("5")
    strokes(page, "strokes.endsWith(' rotate_5 brightness_-20')")
    page.get_by_role("button", name="Undo").click()
    strokes(page, "strokes.endsWith(' rotate_30 brightness_-20')")
    expect(slider).to_have_value("30")
    expect(page.locator(".vv-board label", has_text="Rotation")).to_contain_text("30°")
    page.get_by_role("combobox", name="Cut out").select_option("free")
    drag(page, canvas, (0.1, 0.1), (0.2, 0.1), (0.2, 0.3), (0.1, 0.1))
    drag(page, canvas, (0.18, 0.15), (0.28, 0.15))
    strokes(page, "/move_60.40.61.81.60.0.61.81.60.40.[0-9.-]+$/.test(strokes)")
    # onto another photograph, in shares of both; there it is moved without a hole, and lights begin anew
    was = answer(page), seen(page)
    count = page.evaluate("document.querySelector('.vv-edits').dataset.strokes.split(' ').length")
    onto = page.get_by_role("combobox", name="Paste onto another image")
    onto.select_option("chelsea")
    strokes(page, "/onto.chelsea_120.40.61.81.-29.-10.46.61.120.40.[0-9.-]+$/.test(strokes)")
    expect(page.locator("#vitviz-stage")).to_contain_text("451 × 300")
    expect(slider).to_have_value("0")
    expect(page.locator(".vv-board-answers")).to_contain_text("→")
    expect(canvas).to_have_attribute("aria-busy", "false")  # the other photograph is on the board
    canvas.press("ArrowRight")
    canvas.press("Enter")
    strokes(page, "/onto.chelsea_120.40.61.81.-28.-10.46.61.120.40.[0-9.-]+$/.test(strokes)")
    slider.fill("9")
    strokes(page, f"strokes.split(' ').length === {count + 2} && strokes.endsWith(' rotate_9')")
    for _ in range(3):
        page.get_by_role("button", name="Undo").click()
    strokes(page, f"strokes.split(' ').length === {count}")
    same(page, *was)


def test_keys_paint_and_cut(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    canvas = opened(page)
    for key in ("Shift+ArrowRight", "Enter", "Shift+ArrowDown", "ArrowLeft", "Enter"):
        canvas.press(key)
    strokes(page, "strokes === 'brush.mean_48.310.200.0.10'")
    page.get_by_role("button", name="Copy", exact=True).press("Enter")
    for key in ("Enter", "Shift+ArrowRight", "Shift+ArrowDown", " ", "Shift+ArrowUp", "Enter"):
        canvas.press(key)
    strokes(page, "strokes.endsWith(' copy_309.210.10.10.0.-10')")


def test_a_link_opens_the_same_and_so_do_a_reload_and_back(open_page):
    page = open_page(f"?sample=coffee&tab=rollout&strokes={PAINTED.replace(' ', '+')}", wait=False)
    ready(page, "rollout")
    strokes(page, f"strokes === '{PAINTED}'")
    painted, bytes_painted = answer(page), seen(page)
    canvas = opened(page)
    page.get_by_role("button", name="Eraser").click()
    drag(page, canvas, (0.4, 0.2), (0.6, 0.7))
    strokes(page, "strokes.includes(' erase_')")
    erased, bytes_erased = answer(page), seen(page)
    assert bytes_erased != bytes_painted
    page.wait_for_function("() => location.search.includes('erase_')")
    other = open_page(page.evaluate("location.search"), wait=False)
    ready(other, "rollout")
    strokes(other, "strokes.includes(' erase_')")
    same(other, erased, bytes_erased)
    other.reload()
    ready(other, "rollout")
    strokes(other, "strokes.includes(' erase_')")
    assert seen(other) == bytes_erased
    page.keyboard.press("Escape")
    page.go_back()
    strokes(page, f"strokes === '{PAINTED}'")
    same(page, painted, bytes_painted)
    page.go_forward()
    strokes(page, "strokes.includes(' erase_')")
    same(page, erased, bytes_erased)


def test_a_photograph_of_ones_own_is_painted_again_after_a_reload_and_another_one_is_clean(
    open_page, tmp_path
):
    from tests.browser.helpers import upload

    page = open_page("?tab=rollout", wait=False)
    ready(page, "rollout")
    upload(page, tmp_path / "mine.png")
    drag(page, opened(page), (0.3, 0.3), (0.7, 0.7))
    strokes(page, "strokes.startsWith('brush.mean_')")
    painted = seen(page)
    assert "strokes" not in page.evaluate("location.search"), "a link to a sample would be painted"
    page.reload()
    ready(page, "rollout")
    strokes(page, "strokes.startsWith('brush.mean_')")
    expect(page.locator("#vitviz-stage")).to_contain_text("300 × 200")
    assert seen(page) == painted
    choose_sample(page, 1)
    wait_for_history(page, "moment.sample && !moment.strokes")


def test_a_key_held_shows_the_original(open_page):
    page = open_page(f"?sample=coffee&tab=rollout&strokes={PAINTED.replace(' ', '+')}", wait=False)
    ready(page, "rollout")
    strokes(page, f"strokes === '{PAINTED}'")
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
    canvas = opened(page)
    page.wait_for_timeout(300)
    drawn = middle(canvas)
    box = page.get_by_role("button", name="Show original").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    until(canvas, drawn, False)
    page.mouse.up()
    until(canvas, drawn, True)


@pytest.mark.parametrize(("width", "height"), [*SIZES[:2], (390, 844)])
def test_nothing_moves_when_the_board_opens_or_a_stroke_ends(open_page, width, height):
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
    canvas = opened(page)
    page.wait_for_timeout(500)
    assert page.evaluate(boxes) == around
    inside = page.evaluate(parts)
    if width > 1000:
        board, right = (page.locator(one).bounding_box() for one in (".vv-board", "#vitviz-right"))
        assert board["x"] + board["width"] <= right["x"], "no figure is covered"
    for x, y, w, h in inside:
        assert 0 <= x and x + w <= width and 0 <= y and y + h <= height, "all of it is in view"
        assert width > 400 or (w >= 44 and h >= 44), "large enough for a finger"
    drag(page, canvas, (0.4, 0.4), (0.5, 0.5))
    strokes(page, "strokes.startsWith('brush')")
    expect(page.locator(".vv-board-answers")).to_contain_text("→")
    page.wait_for_timeout(500)
    assert page.evaluate(parts) == inside
    assert page.evaluate(boxes) == around


@pytest.mark.parametrize(
    ("language", "edit", "erase"), [("zh-CN", "编辑图片", "橡皮擦"), ("ko", "사진 고치기", "지우개")]
)
def test_the_board_speaks_the_pages_language(open_page, language, edit, erase):
    page = open_page(f"?sample=coffee&tab=rollout&lang={language}", wait=False)
    ready(page, "rollout")
    page.get_by_role("button", name=edit).click()
    expect(page.locator(".vv-board button", has_text=erase)).to_be_visible()


def test_a_finger_paints(open_page):
    page = open_page("?sample=coffee&tab=rollout", 390, 844, wait=False, has_touch=True)
    ready(page, "rollout")
    page.locator(".vv-edit-picture").tap()
    page.wait_for_function("() => document.querySelector('.vv-board canvas').height > 150")
    box = page.locator(".vv-board canvas").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    strokes(page, "strokes === 'brush.mean_48.300.200'")


def test_too_many_strokes_are_refused_and_stay_out(open_page):
    many = "+".join(["brush.mean_9.20.20"] * 100)
    page = open_page(f"?sample=coffee&tab=rollout&strokes={many}", wait=False)
    ready(page, "rollout")
    strokes(page, "strokes.split(' ').length === 100")
    drag(page, opened(page), (0.3, 0.3), (0.7, 0.7))
    expect(page.locator("#vitviz-notice .vv-notice-text")).to_contain_text("at most 100")
    expect(page.locator(".vv-board")).to_be_hidden()
    strokes(page, "strokes.split(' ').length === 100")
    open_tab(page, "Attention")
    ready(page, "explorer")
