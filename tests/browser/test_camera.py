"""The camera: what is drawn belongs to the frame that is shown, the lamp goes out, and nothing is kept that
nobody kept. The browser's camera is a file whose frames are grey by their number, with a bright patch.
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
def film(tmp_path_factory):
    return write_camera_video(tmp_path_factory.mktemp("camera") / "film.y4m")


@pytest.fixture(scope="module")
def cameras(browser, film):
    """Browsers with the film as their camera: one that allows it, one that has none."""
    file = f"--use-file-for-fake-video-capture={film}"
    engine = browser.browser_type
    launched = [
        engine.launch(executable_path=chromium(), args=[*FLAGS, *more])
        for more in ([CAMERA, file, "--use-fake-ui-for-media-stream"], [])
    ]
    yield launched
    for one in launched:
        one.close()


def lit(page) -> bool:
    """Whether the camera's lamp would be on."""
    return page.evaluate(
        "() => streams.some((one) => one.getTracks().some((track) => track.readyState === 'live'))"
    )


def start(page, frames: int = 3) -> None:
    page.get_by_role("button", name="Camera", exact=True).click()
    page.wait_for_function(ON.format(frames))
    assert lit(page)


def test_what_is_drawn_belongs_to_the_frame_that_is_shown(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    asked = []
    page.on("response", lambda got: asked.append(got) if "/live" in got.url else None)
    start(page)
    for view in ("Rollout", "Attention", "Representations", "Attribution"):
        open_tab(page, view)
        now = page.evaluate("() => Number(document.documentElement.dataset.camera.split(' ')[0])")
        page.wait_for_function(ON.format(now + 2))
        # all in view are of one frame at the moment when it counts as drawn
        seen = page.evaluate(
            f"""() => new Promise((resolve) => {{
              const root = document.documentElement;
              const watch = new MutationObserver(() => {{ watch.disconnect(); resolve(({FRAME})()); }});
              watch.observe(root, {{ attributes: true, attributeFilter: ['data-camera'] }}); }})"""
        )
        assert len(seen) >= 2 and len({key for _, *keys in seen for key in keys}) == 1, seen
    # the white patch of the frame that was sent for the picture's key is that of the picture in the page
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
    frame, drawn = (Image.open(io.BytesIO(base64.b64decode(one))).convert("L") for one in sent)
    assert frame.size == (SIDE, SIDE)
    places = [np.asarray(one.resize((14, 14), Image.Resampling.BOX), float) for one in (frame, drawn)]
    assert places[0].argmax() == places[1].argmax() and places[0].max() > 150
    assert all(got.headers["cache-control"] == "no-store" for got in asked)
    page.context.close()


def test_stopped_all_is_the_photograph_again_and_the_server_has_no_frame(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    photograph = ready(page, "rollout")
    before = page.locator("#vitviz-facts .vv-answers li").all_text_contents()
    entries = page.evaluate("() => history.length")
    start(page)
    key = page.evaluate("() => [...window.vitviz.views].find((one) => one.name === 'rollout').key")
    assert key != photograph
    expect(page.locator("#vitviz-stage .vv-text")).to_contain_text(re.compile(r"frames a second, \d+ ms old"))
    expect(page.locator("#vitviz-rollout .vv-foot").first).not_to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    assert not lit(page)
    assert ready(page, "rollout") == photograph
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_text(before)
    expect(page.get_by_role("button", name="Camera", exact=True)).to_be_focused()
    page.wait_for_function(
        """async (key) => (await fetch(`gradio_api/vitviz/${key}/picture/upload`)).status === 404""", arg=key
    )
    told = page.evaluate("() => [location.href, JSON.stringify(history.state), history.length]")
    assert key not in told[0] + told[1] and "sample=coffee" in told[0]
    assert told[2] == entries
    page.context.close()


def test_the_lamp_is_off_where_another_photograph_is_chosen_or_the_page_hidden(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    start(page)
    choose_sample(page, 1)  # the same once more
    page.wait_for_function("() => !('camera' in document.documentElement.dataset)")
    assert not lit(page)
    start(page)
    page.evaluate(
        """() => { Object.defineProperty(document, 'hidden', { value: true, configurable: true });
          document.dispatchEvent(new Event('visibilitychange')); }"""
    )
    assert not lit(page)
    page.evaluate("() => delete document.hidden")
    start(page)
    page.evaluate("() => history.pushState(history.state, '', location)")
    choose_sample(page, 0)
    page.wait_for_function("() => !('camera' in document.documentElement.dataset)")
    assert not lit(page)
    page.context.close()


def test_a_still_that_is_kept_becomes_the_photograph(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    photograph = ready(page, "rollout")
    start(page)
    page.get_by_role("button", name="Keep", exact=True).click()
    assert not lit(page)
    page.wait_for_function("() => !('camera' in document.documentElement.dataset)")
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-rollout [data-ready]').dataset.ready.startsWith(key)",
        arg=photograph,
    )
    expect(page.locator("#vitviz-stage .vv-text")).to_contain_text(f"{SIDE} × {SIDE} px, uncropped")
    page.context.close()


def test_what_is_set_and_taken_away_holds_for_the_frames(cameras, server):
    page = open_with_camera(cameras[0], server.url)
    start(page)
    page.evaluate("vitviz.send('ablate', { patches: [0, 1, 2] })")
    rollout = "[...window.vitviz.views].find((one) => one.name === 'rollout')"
    page.wait_for_function(f"() => {rollout}.value.missing.patches.length === 3")
    assert lit(page)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.context.close()


def test_without_a_camera_there_is_a_sentence(cameras, server):
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


def test_a_frame_restyles_what_changes_and_lays_out_the_page_twice_at_most(cameras, server):
    """By the browser's own count: a style that asks by `:has()` at the page's root restyles all of it, and a
    length that is read among changes lays out the page once more."""
    page = open_with_camera(cameras[0], server.url)
    start(page)

    def pass_by(frames: int) -> int:
        counted = "() => Number(document.documentElement.dataset.camera.split(' ')[0])"
        now = page.evaluate(counted)
        page.wait_for_function(ON.format(now + frames))
        return page.evaluate(counted) - now

    laid = {}
    for view in ("Rollout", "Attention", "Attribution"):
        open_tab(page, view)
        pass_by(3)
        cameras[0].start_tracing(page=page, categories=["devtools.timeline"])
        frames = pass_by(10)
        events = json.loads(cameras[0].stop_tracing())["traceEvents"]
        styled = [one["args"].get("elementCount", 0) for one in events if one["name"] == "UpdateLayoutTree"]
        assert len(styled) >= frames and max(styled) <= 150, f"{view}: {max(styled)} elements at once"
        laid[view] = sum(one["name"] == "Layout" for one in events) / frames
    # 1, 1 and 2, and now and then a scale that widens; read in the middle of drawing it was 3, 4 and 6
    assert all(laid.values()) and sum(laid.values()) < 8, laid
    page.context.close()
