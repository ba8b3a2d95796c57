"""A video on the page: the timeline goes over its frames, every view follows, and all ends where it began."""

import base64

from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready
from tests.server.helpers import COUNT, moving

DROP = """([name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  const dropped = { dataTransfer: transfer, bubbles: true, cancelable: true };
  document.querySelector('#vitviz-stage').dispatchEvent(new DragEvent('drop', dropped)); }"""
KEYS = """() => [...new Set([...window.vitviz.views].filter((one) =>
  one.name === 'stage' || (one.key && one.root.closest('.tabitem')?.checkVisibility()))
  .flatMap((one) => [one.root.dataset.ready?.split('/')[0], one.key]))]"""
AT = "(at) => document.documentElement.dataset.live === String(at)"


def drop(page, name: str, type: str, data: bytes) -> None:
    page.evaluate(DROP, [name, type, base64.b64encode(data).decode()])


def test_the_timeline_goes_over_a_video_and_every_view_follows(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    photograph = ready(page, "rollout")
    drop(page, "moving.gif", "image/gif", moving().read_bytes())
    page.wait_for_function(AT, arg=0)
    film, slider = page.locator("#vitviz-film"), page.locator("#vitviz-film input[type=range]")
    expect(film).to_contain_text(f"1 / {COUNT}")
    slider.evaluate("(one) => { one.value = 4; one.dispatchEvent(new Event('input')); }")
    page.wait_for_function(AT, arg=4)
    expect(film.locator(".vv-film-step")).to_have_text("0.40 s")
    keys = page.evaluate(KEYS)
    assert len(keys) == 1 and keys[0] != photograph
    open_tab(page, "Representations")  # which has not been seen yet
    page.wait_for_function(f"() => ({KEYS})().length === 1")
    film.get_by_role("button", name="Over time").click()
    film.get_by_role("button", name="From 0.00 s").click()
    slider.evaluate("(one) => { one.value = 6; one.dispatchEvent(new Event('input')); }")
    page.wait_for_function(AT, arg=6)
    film.get_by_role("button", name="To 0.80 s").click()
    film.get_by_role("button", name="Play the video").click()  # at its end, and so from its beginning
    page.wait_for_function(AT, arg=5)
    page.wait_for_function(AT, arg=6)
    expect(film.get_by_role("button", name="Play the video")).to_be_visible()
    page.locator("#vitviz-stage").get_by_role("button", name="Stop").click()
    open_tab(page, "Rollout")
    assert ready(page, "rollout") == photograph
    expect(film).to_contain_text("Training step")
    drop(page, "diary.mp4", "video/mp4", b"Dear diary")
    expect(page.locator("#vitviz-stage .vv-error")).to_contain_text("diary.mp4 is not a video")
    assert ready(page, "rollout") == photograph
