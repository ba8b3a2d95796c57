"""The training slider: shared colour scales and axes, step label, speed and loop."""

import numpy as np
import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import ready
from tests.browser.held_requests import HeldRequests
from tests.browser.helpers import record_steps, wait_for_snapshot, wait_for_steps

STEPS = ("vitviz-tiny@0", "vitviz-tiny@3000", "vitviz-tiny")
SCALES = """(name) => [...document.querySelectorAll(`#vitviz-${name} .vv-bar-ticks`)]
  .filter((one) => one.offsetParent).map((one) => [...one.children].map((tick) => tick.textContent))"""
AXIS = """() => [...window.vitviz.views]
  .find((one) => one.name === 'distance' && one.root.isConnected).scale"""


def go_to_snapshot(page, name: str):
    """Move the training slider to a snapshot."""
    names = [frame.name for frame in vitviz.training_snapshots("vitviz-tiny")]
    page.locator("#vitviz-film input").fill(str(names.index(name)))
    wait_for_snapshot(page, name)


def rollouts(sample: str) -> list[np.ndarray]:
    photo = vitviz.sample_image(sample)
    return [vitviz.rollout(vitviz.load(name, device="cpu").trace(photo)).numpy() for name in STEPS]


@pytest.mark.parametrize(
    "query, view",
    [
        ("tab=rollout", "rollout"),
        ("tab=explorer&layer=3", "explorer"),
        ("tab=evidence&target=1", "evidence"),
        ("tab=positions", "positions"),
        ("tab=tokens&show=norms&depth=8", "tokens"),
        ("tab=tokens&show=similarity&mean=in&depth=4", "tokens"),
    ],
)
def test_colour_scale_only_widens_over_snapshots(open_page, query, view):
    page = open_page(f"?sample=coffee&{query}", wait=False)
    ready(page, view)
    scales = []
    for name in (*STEPS, *STEPS):
        go_to_snapshot(page, name)
        scales.append(page.evaluate(SCALES, view)[0])
    assert scales[3] == scales[4] == scales[5] == scales[2]
    assert len(scales[0]) > 1
    assert view != "positions" or scales[0] == scales[2]  # fixed in advance

    def end(text):
        return float(text.replace("−", "-"))

    widths = [end(scale[-1]) - end(scale[0]) for scale in scales]
    assert widths == sorted(widths)


def test_colour_scale_covers_rollouts_of_all_snapshots(open_page):
    maps = rollouts("coffee")
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    for name in STEPS:
        go_to_snapshot(page, name)
    low, *_, high = page.evaluate(SCALES, "rollout")[0]
    assert (low, high) == (f"{min(map(np.min, maps)):.3g}", f"{max(map(np.max, maps)):.3g}")


def test_chart_axis_is_shared_over_snapshots(open_page):
    page = open_page("?sample=coffee&tab=distance", wait=False)
    ready(page, "distance")
    axes = []
    for name in (*STEPS, *STEPS):
        go_to_snapshot(page, name)
        axes.append(page.evaluate(AXIS))
    assert axes[3] == axes[4] == axes[5] == axes[2] and axes[0] is not None


def test_two_checkpoints_share_colour_scale(open_page):
    page = open_page("?sample=coffee&tab=rollout&checkpoint=vitviz-tiny@0&second=vitviz-tiny", wait=False)
    ready(page, "rollout")
    ready(page, "second-rollout")
    maps = rollouts("coffee")
    ends = [f"{min(maps[0].min(), maps[2].min()):.3g}", f"{max(maps[0].max(), maps[2].max()):.3g}"]
    read = f"(name) => {{ const [all] = ({SCALES})(name); return [all[0], all.at(-1)]; }}"
    for name in ("rollout", "second-rollout"):
        page.wait_for_function(f"([name, ends]) => String(({read})(name)) === String(ends)", arg=[name, ends])


def test_step_label_changes_together_with_the_figure(open_page):
    page = open_page("?sample=coffee&tab=rollout&checkpoint=vitviz-tiny@0", wait=False)
    before = ready(page, "rollout")
    wait_for_snapshot(page, "vitviz-tiny@0")
    step, accuracy = page.locator(".vv-film-step"), page.locator(".vv-film-facts")
    accuracy_before = accuracy.inner_text()
    held = HeldRequests(page, r"/rollout/map\?")
    page.locator("#vitviz-film input").fill("5")
    held.wait()  # the handler is done; the data of the figure is held
    page.wait_for_timeout(300)
    assert ready(page, "rollout") == before
    assert step.inner_text() == "0" and accuracy.inner_text() == accuracy_before
    held.release()
    expect(step).to_have_text("1,000")
    assert ready(page, "rollout") != before and accuracy.inner_text() != accuracy_before


def test_training_playback_has_speeds_and_loop(open_page):
    page = open_page("?sample=coffee&tab=patches", wait=False)
    page.evaluate(
        "() => { const set = window.setTimeout; window.waits = [];"
        " window.setTimeout = (does, wait, ...more) => { window.waits.push(wait);"
        " return set(does, [900, 450, 225, 1800].includes(wait) ? 50 : wait, ...more); }; }"
    )
    ready(page, "patches")
    go_to_snapshot(page, "vitviz-tiny@30000")
    speed, loop = page.locator(".vv-film-speed"), page.locator(".vv-film-loop")
    for label, wait in (("1×", 900), ("2×", 450), ("4×", 225), ("½×", 1800)):
        expect(speed).to_have_text(label)
        assert speed.get_attribute("aria-label") == f"Speed {label}"
        page.evaluate("window.waits = []")
        page.get_by_role("button", name="Play the training").click()
        page.wait_for_function("(wait) => window.waits.includes(wait)", arg=wait)
        others = {900, 450, 225, 1800} - {wait}
        assert not others & set(page.evaluate("window.waits"))
        page.locator(".vv-film-play").click()
        go_to_snapshot(page, "vitviz-tiny@30000")
        speed.click()
    assert loop.get_attribute("aria-pressed") == "false"
    page.get_by_role("button", name="Play the training").click()
    wait_for_snapshot(page, "vitviz-tiny")
    expect(page.get_by_role("button", name="Play the training")).to_be_visible()  # playback has ended
    loop.click()
    expect(loop).to_have_attribute("aria-pressed", "true")
    go_to_snapshot(page, "vitviz-tiny@36000")
    record_steps(page)
    page.get_by_role("button", name="Play the training").click()
    wait_for_steps(page, "vitviz-tiny", "vitviz-tiny@0", "vitviz-tiny@30")
    page.locator(".vv-film-play").click()
