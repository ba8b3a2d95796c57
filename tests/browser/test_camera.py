"""The camera: figures match the shown frame, the stream stops, and no frame is stored without *Keep*.

The browser's camera is a file of grey frames with one bright patch at the position of the frame's number.
"""

import base64
import io
import json
import re

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import FLAGS, choose_sample, chromium, open_tab, ready
from tests.browser.helpers import CAMERA, SIDE, open_with_camera, write_camera_video

FRAME = """() => { const each = [...window.vitviz.views].filter((one) =>
  one.name === 'stage' || (one.key && one.root.closest('.tabitem')?.checkVisibility()));
  return each.map((one) => [one.name, one.root.dataset.ready?.split('/')[0], one.key]); }"""
ON = "() => Number(document.documentElement.dataset.camera?.split(' ')[0]) > {}"


@pytest.fixture(scope="module")
def camera_video(tmp_path_factory):
    return write_camera_video(tmp_path_factory.mktemp("camera") / "film.y4m")


@pytest.fixture(scope="module")
def cameras(browser, camera_video):
    """Launch a browser with the video as its camera, and a browser without a camera."""
    file = f"--use-file-for-fake-video-capture={camera_video}"
    engine = browser.browser_type
    launched = [
        engine.launch(executable_path=chromium(), args=[*FLAGS, *more])
        for more in ([CAMERA, file, "--use-fake-ui-for-media-stream"], [])
    ]
    yield launched
    for one in launched:
        one.close()


def camera_is_live(page) -> bool:
    """Return whether a camera stream is live."""
    return page.evaluate(
        "() => streams.some((one) => one.getTracks().some((track) => track.readyState === 'live'))"
    )


def start(page, frames: int = 3) -> None:
    page.get_by_role("button", name="Camera", exact=True).click()
    page.wait_for_function(ON.format(frames))
    assert camera_is_live(page)


def test_figures_and_image_show_the_same_camera_frame(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    responses = []
    page.on("response", lambda response: responses.append(response) if "/live" in response.url else None)
    start(page)
    for view in ("Rollout", "Attention", "Representations", "Attribution"):
        open_tab(page, view)
        now = page.evaluate("() => Number(document.documentElement.dataset.camera.split(' ')[0])")
        page.wait_for_function(ON.format(now + 2))
        # all visible views have the same key when the frame counts as drawn
        keys_by_view = page.evaluate(
            f"""() => new Promise((resolve) => {{
              const root = document.documentElement;
              const watch = new MutationObserver(() => {{ watch.disconnect(); resolve(({FRAME})()); }});
              watch.observe(root, {{ attributes: true, attributeFilter: ['data-camera'] }}); }})"""
        )
        assert len(keys_by_view) >= 2 and len({key for _, *keys in keys_by_view for key in keys}) == 1, (
            keys_by_view
        )
    # the white patch has the same position in the sent frame and in the shown image
    page.evaluate(
        """() => { const real = window.fetch; window.frames_ = {};
          window.fetch = async (url, how) => {
            const got = await real(url, how);
            if (how?.body && String(url).endsWith('/live'))
            {
              const bytes = await got.clone().arrayBuffer(), length = new DataView(bytes).getUint32(0, true);
              const { key } = JSON.parse(new TextDecoder().decode(bytes.slice(4, 4 + length)));
              window.frames_[key] = JSON.parse(how.body).frame;
            }
            return got; }; }"""
    )
    sent = page.evaluate(
        """() => new Promise((resolve) => {
          const stage = [...window.vitviz.views].find((one) => one.name === 'stage');
          new MutationObserver((_, watch) => { const frame = window.frames_[stage.key]; if (!frame) return;
            watch.disconnect();
            resolve([frame, stage.ui.canvas.toDataURL().split(',')[1]]); })
            .observe(document.documentElement, { attributes: true, attributeFilter: ['data-camera'] }); })"""
    )
    frame, drawn = (Image.open(io.BytesIO(base64.b64decode(image))).convert("L") for image in sent)
    assert frame.size == (SIDE, SIDE)
    places = [np.asarray(image.resize((14, 14), Image.Resampling.BOX), float) for image in (frame, drawn)]
    assert places[0].argmax() == places[1].argmax() and places[0].max() > 150
    assert all(response.headers["cache-control"] == "no-store" for response in responses)
    page.context.close()


def test_stop_restores_image_and_deletes_frames_on_server(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    image_key = ready(page, "rollout")
    before = page.locator("#vitviz-facts .vv-answers li").all_text_contents()
    entries = page.evaluate("() => history.length")
    start(page)
    key = page.evaluate("() => [...window.vitviz.views].find((one) => one.name === 'rollout').key")
    assert key != image_key
    expect(page.locator("#vitviz-stage .vv-text")).to_contain_text(re.compile(r"frames a second, \d+ ms old"))
    expect(page.locator("#vitviz-rollout .vv-foot").first).not_to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    assert not camera_is_live(page)
    assert ready(page, "rollout") == image_key
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_text(before)
    expect(page.get_by_role("button", name="Camera", exact=True)).to_be_focused()
    page.wait_for_function(
        """async (key) => (await fetch(`gradio_api/vitviz/${key}/picture/upload`)).status === 404""", arg=key
    )
    address = page.evaluate("() => [location.href, JSON.stringify(history.state), history.length]")
    assert key not in address[0] + address[1] and "sample=coffee" in address[0]
    assert address[2] == entries
    page.context.close()


def test_camera_stops_on_new_image_or_hidden_page(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    start(page)
    choose_sample(page, 1)  # another sample
    page.wait_for_function("() => !('camera' in document.documentElement.dataset)")
    assert not camera_is_live(page)
    start(page)
    page.evaluate(
        """() => { Object.defineProperty(document, 'hidden', { value: true, configurable: true });
          document.dispatchEvent(new Event('visibilitychange')); }"""
    )
    assert not camera_is_live(page)
    page.evaluate("() => delete document.hidden")
    start(page)
    page.evaluate("() => history.pushState(history.state, '', location)")
    choose_sample(page, 0)
    page.wait_for_function("() => !('camera' in document.documentElement.dataset)")
    assert not camera_is_live(page)
    page.context.close()


def test_keep_turns_the_frame_into_the_image(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    image_key = ready(page, "rollout")
    start(page)
    page.get_by_role("button", name="Keep", exact=True).click()
    assert not camera_is_live(page)
    page.wait_for_function("() => !('camera' in document.documentElement.dataset)")
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-rollout [data-ready]').dataset.ready.startsWith(key)",
        arg=image_key,
    )
    expect(page.locator("#vitviz-stage .vv-text")).to_contain_text(f"{SIDE} × {SIDE} px, uncropped")
    page.context.close()


def test_removed_patches_apply_to_camera_frames(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    start(page)
    page.evaluate("vitviz.send('ablate', { patches: [0, 1, 2] })")
    rollout = "[...window.vitviz.views].find((one) => one.name === 'rollout')"
    page.wait_for_function(f"() => {rollout}.value.missing.patches.length === 3")
    assert camera_is_live(page)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.context.close()


def test_missing_camera_and_insecure_page_show_an_error(cameras, server):
    page = open_with_camera(cameras[1], server.url)
    page.get_by_role("button", name="Camera", exact=True).click()
    expect(page.locator("#vitviz-stage .vv-error")).to_have_text(
        re.compile("There is no camera on this device|Camera access was denied")
    )
    expect(page.get_by_role("button", name="Camera", exact=True)).to_be_visible()
    page.evaluate("() => { Object.defineProperty(window, 'isSecureContext', { value: false }); }")
    page.get_by_role("button", name="Camera", exact=True).click()
    expect(page.locator("#vitviz-stage .vv-error")).to_contain_text("only over https")
    page.context.close()


def test_camera_frame_causes_few_restyles_and_layouts(cameras, server):
    """Count restyles and layouts in the browser's trace.

    `:has()` at the root restyles the whole page; reading a length forces a layout.
    """
    page = open_with_camera(cameras[0], server.url)
    start(page)

    def wait_for_frames(frames: int) -> int:
        counted = "() => Number(document.documentElement.dataset.camera.split(' ')[0])"
        now = page.evaluate(counted)
        page.wait_for_function(ON.format(now + frames))
        return page.evaluate(counted) - now

    layouts = {}
    for view in ("Rollout", "Attention", "Attribution"):
        open_tab(page, view)
        wait_for_frames(3)
        cameras[0].start_tracing(page=page, categories=["devtools.timeline"])
        frames = wait_for_frames(10)
        events = json.loads(cameras[0].stop_tracing())["traceEvents"]
        styled = [
            event["args"].get("elementCount", 0) for event in events if event["name"] == "UpdateLayoutTree"
        ]
        assert len(styled) >= frames and max(styled) <= 150, f"{view}: {max(styled)} elements at once"
        layouts[view] = sum(event["name"] == "Layout" for event in events) / frames
    # usually 1, 1 and 2, plus a widening scale; with lengths read while drawing 3, 4 and 6
    assert all(layouts.values()) and sum(layouts.values()) < 8, layouts
    page.context.close()
