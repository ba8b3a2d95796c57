"""What is taken away quickly, one thing after the other: nothing of it is lost on the way."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready
from tests.browser.held import HeldRequests
from tests.browser.helpers import SIZES, wait_for_history


def take(page, *heads: str) -> None:
    """Takes heads away, as a view does."""
    page.evaluate("(heads) => vitviz.send('ablate', { heads })", heads)


def chips(page):
    return page.locator("#vitviz-edits .vv-edit > span")


def test_heads_that_are_taken_away_while_another_is_under_way_are_all_gone(open_page):
    page = open_page("?sample=coffee")
    held = HeldRequests(page, "/queue/join")
    take(page, "2.1")
    held.wait()
    take(page, "5.2")
    take(page, "7.3")
    held.release()
    expect(chips(page)).to_have_text(["Layer 2, head 1", "Layer 5, head 2", "Layer 7, head 3"])
    wait_for_history(page, "moment.without === 'heads=2.1_5.2_7.3'")


def test_one_more_counts_after_the_first_has_been_answered_and_the_second_not_yet(open_page):
    page = open_page("?sample=coffee")
    first, second = HeldRequests(page, "/queue/join"), []
    take(page, "2.1")
    first.wait()
    take(page, "5.2")
    page.route("**/queue/join*", lambda route: second.append(route))
    first.release()
    expect(chips(page)).to_have_text(["Layer 2, head 1"])
    while not second:
        page.wait_for_timeout(20)
    take(page, "7.3")
    page.locator("#vitviz-edits button", has_text="×").first.click()  # and the first is put back
    page.unroute("**/queue/join*")
    second[0].continue_()
    expect(chips(page)).to_have_text(["Layer 5, head 2", "Layer 7, head 3"])
    wait_for_history(page, "moment.without === 'heads=5.2_7.3'")


def test_what_is_refused_is_not_asked_for_again(open_page):
    page = open_page("?sample=coffee")
    take(page, "99.1")
    expect(page.locator("#vitviz-notice .vv-notice-text")).to_contain_text("has layers")
    take(page, "2.1")
    expect(chips(page)).to_have_text(["Layer 2, head 1"])
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()
    wait_for_history(page, "moment.without === 'heads=2.1'")


def test_a_view_that_does_not_apply_says_why_in_full(open_page):
    page = open_page("?sample=coffee&tab=experiment&without=patches%3D3", *SIZES[0], wait=False)
    note = page.locator("#vitviz-experiment .vv-note")
    expect(note).to_contain_text("because patches have been dropped from the sequence. Restore them")
    for width, height in (*SIZES, (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        shown, needed = note.evaluate("(note) => [note.clientHeight, note.scrollHeight]")
        assert shown >= needed > 40, f"{width} x {height}: the sentence is whole, in more than a line"
        tall = page.evaluate("document.documentElement.scrollHeight")
        assert note.bounding_box()["y"] + shown <= tall, f"{width} x {height}"


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_how_parts_were_taken_away_is_chosen_within_the_column(open_page, width, height):
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
    assert room > 20, "what is chosen is whole, beside the arrow"


def test_where_the_asked_patch_was_left_out_the_wall_is_of_the_nearest(open_page):
    """On a projector it is drawn more than once until it fits: none of these has the other patch's zeros."""
    gone = "?sample=coffee&tab=explorer&present=1&without=patches%3D90.91.104.105"
    page = open_page(gone, 1280, 720, wait=False)
    ready(page, "explorer")
    expect(page.locator("#vitviz-explorer .vv-below")).to_contain_text("Patch 107")
    colours = page.locator("#vitviz-explorer .vv-below canvas").first.evaluate(
        """(wall) => new Set(new Uint32Array(wall.getContext('2d')
          .getImageData(0, 0, wall.width, wall.height).data.buffer)).size"""
    )
    assert colours > 300  # of words alone there are 212


def spread_of(page, view: str, patch: int) -> float:
    """How far the brightest pixel of a patch, as it is drawn under the map, lies from its darkest."""
    return page.evaluate(
        """([view, patch]) => { const sheet = document.querySelector(`#vitviz-${view} .vv-plot canvas`);
        const [w, h] = [sheet.width / 14, sheet.height / 14];
        const { data } = sheet.getContext('2d').getImageData((patch % 14) * w + 3,
          Math.floor(patch / 14) * h + 3, w - 6, h - 6);
        const greens = data.filter((_, i) => i % 4 === 1);
        return Math.max(...greens) - Math.min(...greens); }""",
        [view, patch],
    )


def test_what_was_taken_away_is_seen_in_every_view_and_painting_brings_the_others_back(open_page):
    page = open_page("?sample=chelsea&tab=explorer&without=patches%3D62.63.76.77", wait=False)
    ready(page, "explorer")
    expect(page.locator("#vitviz-explorer .vv-framed")).to_be_visible()
    assert spread_of(page, "explorer", 62) > 60, "hatched"
    open_tab(page, "Patches")
    ready(page, "patches")
    expect(page.locator("#vitviz-patches")).to_contain_text("196 − 4 removed")
    expect(page.locator("#vitviz-patches")).to_contain_text("= 193 tokens")
    open_tab(page, "Perturbations")
    page.get_by_role("button", name="Paint over them instead").locator("visible=true").click()
    page.wait_for_function("() => location.search.includes('patches_as')")
    ready(page, "experiment", 60_000)
    open_tab(page, "Attention")
    ready(page, "explorer")
    assert spread_of(page, "explorer", 62) < 12 < spread_of(page, "explorer", 60), "painted in one colour"


def test_a_view_that_needs_the_whole_model_offers_to_restore_it_and_keeps_the_painting(open_page):
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
def test_one_patch_that_was_taken_away_goes_by_its_name(open_page, language, one, two):
    for gone, said in (("3", one), ("3.9", two)):
        page = open_page(f"?sample=coffee&without=patches%3D{gone}&lang={language}", wait=False)
        expect(chips(page)).to_have_text([said], timeout=30_000)
        page.close()
