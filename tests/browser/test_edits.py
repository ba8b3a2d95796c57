"""Removed heads and patches: quick edits, rejected edits, restoring and the display in every view."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready
from tests.browser.held_requests import HeldRequests
from tests.browser.helpers import SIZES, wait_for_history


def remove_heads(page, *heads: str) -> None:
    """Remove heads as a view does."""
    page.evaluate("(heads) => vitviz.send('ablate', { heads })", heads)


def chips(page):
    return page.locator("#vitviz-edits .vv-edit > span")


def test_heads_removed_during_a_request_are_all_applied(open_page):
    page = open_page("?sample=coffee")
    held = HeldRequests(page, "/queue/join")
    remove_heads(page, "2.1")
    held.wait()
    remove_heads(page, "5.2")
    remove_heads(page, "7.3")
    held.release()
    expect(chips(page)).to_have_text(["Layer 2, head 1", "Layer 5, head 2", "Layer 7, head 3"])
    wait_for_history(page, "moment.without === 'heads=2.1_5.2_7.3'")


def test_edits_between_two_responses_are_all_applied(open_page):
    page = open_page("?sample=coffee")
    first, second = HeldRequests(page, "/queue/join"), []
    remove_heads(page, "2.1")
    first.wait()
    remove_heads(page, "5.2")
    page.route("**/queue/join*", lambda route: second.append(route))
    first.release()
    expect(chips(page)).to_have_text(["Layer 2, head 1"])
    while not second:
        page.wait_for_timeout(20)
    remove_heads(page, "7.3")
    page.locator("#vitviz-edits button", has_text="×").first.click()  # restore the first head
    page.unroute("**/queue/join*")
    second[0].continue_()
    expect(chips(page)).to_have_text(["Layer 5, head 2", "Layer 7, head 3"])
    wait_for_history(page, "moment.without === 'heads=5.2_7.3'")


def test_rejected_edit_is_not_sent_again(open_page):
    page = open_page("?sample=coffee")
    remove_heads(page, "99.1")
    expect(page.locator("#vitviz-notice .vv-notice-text")).to_contain_text("has layers")
    remove_heads(page, "2.1")
    expect(chips(page)).to_have_text(["Layer 2, head 1"])
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()
    wait_for_history(page, "moment.without === 'heads=2.1'")


def test_note_of_unavailable_view_is_not_truncated(open_page):
    page = open_page("?sample=coffee&tab=tour&without=patches%3D3", *SIZES[0], wait=False)
    note = page.locator("#vitviz-tour .vv-note")
    expect(note).to_contain_text("because patches have been dropped from the sequence. Restore them")
    for width, height in (*SIZES, (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        shown, needed = note.evaluate("(note) => [note.clientHeight, note.scrollHeight]")
        assert shown >= needed > 40, f"{width} x {height}: the note is cut off"
        tall = page.evaluate("document.documentElement.scrollHeight")
        assert note.bounding_box()["y"] + shown <= tall, f"{width} x {height}"


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_removal_mode_menu_fits_the_column(open_page, width, height):
    page = open_page("?sample=coffee&tab=rollout&without=patches%3D3.4", width, height, wait=False)
    ready(page, "rollout")
    choice = page.locator("#vitviz-edits select")
    choice.wait_for()
    column, box = page.locator("#vitviz-left .vv-edits").bounding_box(), choice.bounding_box()
    assert box["x"] + box["width"] <= min(width, column["x"] + column["width"]) + 0.5
    room = choice.evaluate(
        """(list) => { const pen = document.createElement('canvas').getContext('2d');
        pen.font = getComputedStyle(list).font;
        return list.clientWidth - pen.measureText(list.selectedOptions[0].text).width; }"""
    )
    assert room > 20, "the selected option is cut off"


def test_head_wall_uses_nearest_patch_if_query_was_dropped(open_page):
    """In lecture mode the wall is drawn repeatedly. No drawing may use zeros of the dropped patch."""
    gone = "?sample=coffee&tab=explorer&present=1&without=patches%3D90.91.104.105"
    page = open_page(gone, 1280, 720, wait=False)
    ready(page, "explorer")
    expect(page.locator("#vitviz-explorer .vv-below")).to_contain_text("Patch 107")
    colours = page.locator("#vitviz-explorer .vv-below canvas").first.evaluate(
        """(wall) => new Set(new Uint32Array(wall.getContext('2d')
          .getImageData(0, 0, wall.width, wall.height).data.buffer)).size"""
    )
    assert colours > 300  # text alone has 212


def brightness_range(page, view: str, patch: int) -> float:
    """Return the difference of the brightest and the darkest pixel of a patch under the map."""
    return page.evaluate(
        """([view, patch]) => { const sheet = document.querySelector(`#vitviz-${view} .vv-plot canvas`);
        const [w, h] = [sheet.width / 14, sheet.height / 14];
        const { data } = sheet.getContext('2d').getImageData((patch % 14) * w + 3,
          Math.floor(patch / 14) * h + 3, w - 6, h - 6);
        const greens = data.filter((_, i) => i % 4 === 1);
        return Math.max(...greens) - Math.min(...greens); }""",
        [view, patch],
    )


def test_dropped_patches_are_hatched_and_painted_patches_uniform(open_page):
    page = open_page("?sample=chelsea&tab=explorer&without=patches%3D62.63.76.77", wait=False)
    dropped = ready(page, "explorer")
    expect(page.locator("#vitviz-explorer .vv-framed")).to_be_visible()
    assert brightness_range(page, "explorer", 62) > 60, "the patch is not hatched"
    open_tab(page, "Patches")
    ready(page, "patches")
    expect(page.locator("#vitviz-patches")).to_contain_text("14 × 14 − 4 removed = 192 patches")
    expect(page.locator("#vitviz-patches")).to_contain_text("= 193 tokens")
    open_tab(page, "Perturbations")  # needs the full model: painting would be refused, too
    expect(page.locator("#vitviz-experiment .vv-note")).to_contain_text("needs the full model")
    paint = page.get_by_role("button", name="Paint over them instead").locator("visible=true")
    expect(paint).to_have_count(0)
    open_tab(page, "Tour")
    paint.click()
    page.wait_for_function("() => location.search.includes('patches_as')")
    ready(page, "tour", 60_000)
    open_tab(page, "Attention")
    drawn = "(key) => !document.querySelector('#vitviz-explorer [data-ready]').dataset.ready.startsWith(key)"
    page.wait_for_function(drawn, arg=dropped)
    ready(page, "explorer")
    assert brightness_range(page, "explorer", 62) < 12 < brightness_range(page, "explorer", 60), (
        "the patch is not painted in one colour"
    )


def test_restore_button_keeps_image_edits(open_page):
    painted = "brush.mean_90.250.100.100.40.-60.80"
    page = open_page(f"?sample=coffee&tab=experiment&without=patches%3D62&strokes={painted}", wait=False)
    for name in ("Tour", "Faithfulness", "Perturbations"):
        open_tab(page, name)
        expect(page.locator(".vv-note >> visible=true").get_by_role("button", name="Restore")).to_be_visible()
    page.get_by_role("button", name="Restore", exact=True).locator("visible=true").click()
    expect(page.locator("#vitviz-experiment .vv-chart")).to_be_visible()
    expect(page.locator("#vitviz-edits .vv-edits")).to_contain_text("Edited image")
    expect(page.locator("#vitviz-edits .vv-edits")).not_to_contain_text("Patch 63")


@pytest.mark.parametrize(("language", "one", "two"), [
    ("en", "Patch 4", "2 patches"), ("zh-CN", "图像块 4", "2 个图像块"), ("ko", "패치 4", "패치 2개"),
])  # fmt: skip
def test_chip_names_one_patch_and_counts_several(open_page, language, one, two):
    for gone, said in (("3", one), ("3.9", two)):
        page = open_page(f"?sample=coffee&without=patches%3D{gone}&lang={language}", wait=False)
        expect(chips(page)).to_have_text([said], timeout=30_000)
        page.close()


def test_dropped_patch_has_no_embedding_norm(open_page):
    page = open_page("?sample=coffee&tab=patches&without=patches%3D105", wait=False)
    ready(page, "patches")
    expect(page.locator("#vitviz-patches")).to_contain_text("removed: not part of the model’s input")
    expect(page.locator("#vitviz-patches .vv-norms")).to_be_hidden()
    page.evaluate("vitviz.send('reset-edits')")
    expect(page.locator("#vitviz-patches .vv-norms")).to_be_visible()
