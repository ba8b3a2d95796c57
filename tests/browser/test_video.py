"""Videos: the timeline covers the frames, every view follows, and stopping restores the image."""

import base64

from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready
from tests.server.helpers import FRAME_COUNT, moving_gif

DROP_SCRIPT = """([name, type, data]) => {
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
    page.evaluate(DROP_SCRIPT, [name, type, base64.b64encode(data).decode()])


def test_video_timeline_drives_views_and_stop_restores_image(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    image_key = ready(page, "rollout")
    drop(page, "moving.gif", "image/gif", moving_gif().read_bytes())
    page.wait_for_function(AT, arg=0)
    timeline, slider = page.locator("#vitviz-film"), page.locator("#vitviz-film input[type=range]")
    expect(timeline).to_contain_text(f"1 / {FRAME_COUNT}")
    slider.evaluate("(one) => { one.value = 4; one.dispatchEvent(new Event('input')); }")
    page.wait_for_function(AT, arg=4)
    expect(timeline.locator(".vv-film-step")).to_have_text("0.40 s")
    keys = page.evaluate(KEYS)
    assert len(keys) == 1 and keys[0] != image_key
    open_tab(page, "Representations")  # not opened before
    page.wait_for_function(f"() => ({KEYS})().length === 1")
    timeline.get_by_role("button", name="Over time").click()
    timeline.get_by_role("button", name="From 0.00 s").click()
    slider.evaluate("(one) => { one.value = 6; one.dispatchEvent(new Event('input')); }")
    page.wait_for_function(AT, arg=6)
    timeline.get_by_role("button", name="To 0.80 s").click()
    timeline.get_by_role("button", name="Play the video").click()  # at the end: restarts
    page.wait_for_function(AT, arg=5)
    page.wait_for_function(AT, arg=6)
    expect(timeline.get_by_role("button", name="Play the video")).to_be_visible()
    page.locator("#vitviz-stage").get_by_role("button", name="Stop").click()
    open_tab(page, "Rollout")
    assert ready(page, "rollout") == image_key
    expect(timeline).to_contain_text("Training step")
    drop(page, "diary.mp4", "video/mp4", b"Dear diary")
    expect(page.locator("#vitviz-stage .vv-error")).to_contain_text("diary.mp4 is not a video")
    assert ready(page, "rollout") == image_key
