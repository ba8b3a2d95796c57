"""The main page: views, uploads, controls, downloads and layout."""

import re
import time

import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import choose_sample, export, open_tab, ready, upload_image_set, visit_views
from tests.browser.helpers import is_painted, write_image
from vitviz.views import VIEWS, ViewContext
from vitviz.views.controls import DIFFERENCE


def wait_until(condition, page, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        page.wait_for_timeout(50)


@pytest.mark.visit
def test_every_view_draws_the_first_sample(open_page):
    page = open_page()
    expect(page.locator("#vitviz-facts .vv-answers li")).to_have_count(3)
    expect(page.locator("#vitviz-facts")).to_contain_text("ms on")
    for view in VIEWS:
        open_tab(page, view.title)
        ready(page, view.slug)
        wait_until(
            lambda view=view: is_painted(page, view.slug), page
        )  # Faithfulness draws its first method late


LOADING_TEXT = "() => getComputedStyle(document.body, '::before').content"


@pytest.mark.parametrize(("language", "said"), [("en", "Loading vitviz"), ("ko", "불러오는 중")])
def test_loading_text_is_shown_until_first_drawing(open_page, server, language, said):
    page, held = open_page(), []
    page.route("**/queue/join*", lambda route: held.append(route))  # held until the loading text is checked
    page.goto(f"{server.url}?lang={language}", wait_until="commit")
    page.wait_for_function("() => document.body")
    assert said in page.evaluate(LOADING_TEXT)
    page.unroute("**/queue/join*")
    for route in held:
        route.continue_()
    ready(page, "explorer")
    assert page.evaluate(LOADING_TEXT) == "none"


def test_idle_page_requests_few_animation_frames(open_page):
    page = open_page(color_scheme="light")  # options force a separate window
    page.add_init_script(
        """(() => { const own = window.requestAnimationFrame;
          window.frames_ = 0;
          window.requestAnimationFrame = (run) => (window.frames_++, own.call(window, run)); })()"""
    )
    page.reload()
    ready(page, "patches")

    def frames_requested(milliseconds: float = 1000) -> int:
        before = page.evaluate("() => window.frames_")
        page.wait_for_timeout(milliseconds)
        return page.evaluate("() => window.frames_") - before

    wait_until(lambda: frames_requested() < 5, page)  # of about sixty per second


def test_view_offers_expected_fields_and_reset(open_page):
    page = open_page()
    for view in visit_views(page, [view for view in VIEWS if view.controls]):
        fields = page.locator(f"#vitviz-{view.slug} .vv-field")
        offered = view.scope.offered(view.controls, ViewContext(dict))  # no strings needed
        always = [one for one in offered if one.label and one.name != DIFFERENCE.name]  # only after an edit
        expect(fields).to_have_count(len(always))
        page.locator(f"#vitviz-{view.slug} .vv-reset").click()
        ready(page, view.slug)


VISIBLE_CONTROLS = """(slug) => [...document.querySelectorAll(
    `#vitviz-${slug} :is(.vv-field, .vv-class, .vv-figure select)`)]
  .filter((node) => node.checkVisibility() && !node.parentNode.closest('.vv-field'))
  .map((node) => node.dataset.name ?? node.className)"""


def test_view_shows_at_most_four_controls(open_page):
    page = open_page("?sample=coffee&tab=patches&strokes=brush.mean_90.250.100.100.40.-60.80", wait=False)
    ready(page, "patches")
    page.wait_for_selector("#vitviz-page[data-edited]", state="attached")  # so that a difference exists
    for view in visit_views(page, VIEWS):
        shown = page.evaluate(VISIBLE_CONTROLS, view.slug)
        assert len(set(shown)) <= 4, (view.slug, shown)  # both class fields of Attribution count once
        assert view.slug != "rollout" or shown == ["query", "fusion", "residual", "difference"]
        folded = [control.name for control in view.controls if control.advanced]
        assert page.locator(f"#vitviz-{view.slug} .vv-advanced > summary").count() == bool(folded), view.slug


def test_link_opens_more_settings_and_closed_panel_stays_closed(open_page):
    page = open_page("?tab=rollout&discard=0.4&colormap=magma", wait=False)
    ready(page, "rollout")
    fold = page.locator("#vitviz-rollout .vv-advanced")
    expect(fold.locator("summary")).to_have_text("More settings (2 changed)")
    expect(fold.locator("[data-name=discard] input")).to_be_visible()
    page.locator("#vitviz-rollout [data-name=overlay] input[value=paper]").check(force=True)
    expect(fold.locator("[data-name=colormap]")).to_be_hidden()  # the brightness overlay has no colormap
    fold.locator("summary").click()
    before = ready(page, "rollout")
    choose_sample(page, 3)
    page.wait_for_selector(f"#vitviz-rollout [data-ready]:not([data-ready^='{before}'])")
    expect(fold.locator("summary")).to_have_text("More settings (2 changed)")
    expect(fold.locator("[data-name=discard] input")).to_be_hidden()


def test_upload_replaces_the_image(open_page, tmp_path):
    page = open_page()
    before = ready(page, "patches")
    page.set_input_files("#vitviz-upload input[type=file]", write_image(tmp_path / "mine.png"))
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-patches [data-ready]').dataset.ready.startsWith(key)",
        arg=before,
    )
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()
    page.set_input_files("#vitviz-upload input[type=file]", write_image(tmp_path / "second.png", (200, 300)))
    expect(page.locator("#vitviz-stage")).to_contain_text("200 × 300")


def test_invalid_upload_is_reported_and_image_kept(open_page, tmp_path):
    page = open_page()
    before = ready(page, "patches")
    bad = tmp_path / "<img src=x onerror=alert(1)>${1+1}.png"
    bad.write_text("this is no picture")
    page.set_input_files("#vitviz-upload input[type=file]", bad)
    expect(page.locator("#vitviz-notice .vv-notice")).to_contain_text(re.compile("picture|image", re.I))
    assert ready(page, "patches") == before
    assert is_painted(page, "patches")
    page.set_input_files("#vitviz-upload input[type=file]", write_image(tmp_path / "good.png"))
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()


def test_unknown_checkpoint_is_rejected_and_current_kept(open_page):
    page = open_page()
    before = ready(page, "patches")
    picker = page.locator("#vitviz-picker input")
    picker.fill("../../etc/passwd")
    picker.press("Enter")
    expect(page.locator("#vitviz-notice .vv-notice")).to_contain_text("passwd")
    expect(picker).to_have_value(re.compile("^vitviz-tiny"))
    assert ready(page, "patches") == before


def test_hover_sends_no_requests_and_click_shows_patch(open_page):
    page = open_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    canvas = page.locator("#vitviz-patches canvas").first
    page.evaluate("(canvas) => canvas.scrollIntoView({ block: 'center' })", canvas.element_handle())
    box = canvas.bounding_box()
    for step in range(1, 8):
        page.mouse.move(box["x"] + box["width"] * step / 9, box["y"] + box["height"] * step / 9)
    expect(page.locator("#vitviz-patches [data-cur]")).to_have_attribute("data-cur", re.compile(r"\d+"))
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#vitviz-patches")).to_contain_text(re.compile("norm", re.I))
    assert requests == []


def test_rollout_slider_requests_new_map_and_resets(open_page):
    page = open_page()
    open_tab(page, "Rollout")
    ready(page, "rollout")
    slider = page.locator("#vitviz-rollout [data-name=residual] input")
    with page.expect_response(re.compile("/rollout/map.*residual=0.8")):
        slider.fill("0.8")
    page.wait_for_function(
        "() => /residual=0.8/.test(document.querySelector('#vitviz-rollout [data-ready]').dataset.ready)"
    )
    page.locator("#vitviz-rollout .vv-reset").click()
    page.wait_for_function(
        "() => /residual=0.5/.test(document.querySelector('#vitviz-rollout [data-ready]').dataset.ready)"
    )


def test_rollout_png_and_npz_are_downloaded(open_page, tmp_path):
    import numpy as np

    page = open_page()
    open_tab(page, "Rollout")
    ready(page, "rollout")
    with page.expect_download() as numbers:
        export(page, "rollout", ".vv-npz")
    with np.load(numbers.value.path()) as file:
        assert (
            file["rollout"].ndim == 2
            and str(file["checkpoint"]) == "vitviz-tiny"
            and str(file["setting_fusion"]) == "mean"
        )
    with page.expect_download() as figure:
        export(page, "rollout", ".vv-png")
    assert figure.value.suggested_filename.endswith(".png")


@pytest.mark.parametrize("width, dark", [(390, True), (1440, False)])
def test_no_view_overflows_the_window(open_page, width, dark):
    page = open_page(width=width, height=844, dark=dark)
    for view in VIEWS:
        open_tab(page, view.title)
        ready(page, view.slug)
        overflow = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, f"{view.title} is {overflow} px too wide at {width} px"


@pytest.mark.parametrize(
    "address",
    [
        "?tab=rollout&alone=3&sample=astronaut",
        "?tab=rollout&sample=chelsea",
        "?tab=explorer&sample=chelsea",
        "?tab=positions",
    ],
)
def test_colour_bar_labels_do_not_overlap(open_page, address):
    page = open_page(address, wait=False)
    ready(page, address.partition("tab=")[2].partition("&")[0])
    bars = page.locator(".vv-bar-ticks:visible").evaluate_all(
        "(bars) => bars.map((bar) => [...bar.children].map((one) => one.getBoundingClientRect()).map(({ left,"
        " right }) => [left, right]))"
    )
    assert bars and all(len(labels) >= 2 for labels in bars)
    for labels in bars:
        assert all(right + 3 < left for (_, right), (left, _) in zip(labels, labels[1:], strict=False)), (
            labels
        )


HALF_TRANSPARENT = """(panel) => [...document.querySelectorAll(`#vitviz-${panel} canvas`)].map((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let half = 0;
    for (let i = 3; i < data.length; i += 4) half += data[i] > 0 && data[i] < 255 ? 1 : 0;
    return half / (data.length / 4);
})"""


def test_redrawn_view_is_as_opaque_as_before(open_page):
    page = open_page()
    slider = page.locator("#vitviz-film input")
    for panel in (view.slug for view in visit_views(page, VIEWS)):
        key, fresh = ready(page, panel), page.evaluate(HALF_TRANSPARENT, panel)
        for press in ("ArrowLeft", "ArrowRight"):
            slider.press(press)
            page.wait_for_function(
                "([panel, key]) => !document.querySelector(`#vitviz-${panel}"
                " [data-ready]`).dataset.ready.startsWith(key)",
                arg=[panel, key],
            )
            key = ready(page, panel)
        page.wait_for_timeout(200)
        assert page.evaluate(HALF_TRANSPARENT, panel) == pytest.approx(fresh, abs=0.01), panel


def test_error_notice_is_scrolled_into_view(open_page):
    page = open_page(height=500)
    page.get_by_text("Comparison and input size").click()
    size = page.locator("#vitviz-size input")
    size.scroll_into_view_if_needed()
    size.fill("100")
    size.press("Enter")
    notice = page.locator("#vitviz-notice .vv-notice")
    expect(notice).to_be_in_viewport(ratio=0.9)
    # the sticky prediction does not cover the notice
    assert notice.evaluate("""(node) => {
      const { left, top, width, height } = node.getBoundingClientRect();
      return [8, height / 2].every(
        (down) => node.contains(document.elementFromPoint(left + width / 2, top + down)),
      );
    }""")


def test_image_set_is_shared_by_all_averaging_views(open_page, tmp_path):
    page = open_page("?tab=distance", wait=False)
    ready(page, "distance")
    fold, go = page.locator(".vv-set-fold"), page.locator(".vv-set .vv-go")
    for number in range(12):
        vitviz.sample_image("coffee").rotate(7 * number).save(tmp_path / f"{number}.png")
    expect(fold).to_contain_text("Image set · this figure shows one image")
    upload_image_set(page, sorted(tmp_path.glob("*.png")))
    pictures = page.locator(".vv-set-pictures li")
    expect(pictures).to_have_count(12)
    expect(pictures.first).to_have_text(re.compile(r"espresso \d+\s%"))
    expect(page.locator(".vv-set-pictures")).not_to_contain_text("…")
    expect(fold).to_contain_text("this figure shows one image")
    go.click()
    expect(go).to_have_text("Stop")
    expect(fold).to_contain_text("this figure uses 12 of them", timeout=60_000)
    expect(go).to_have_text("Average", timeout=60_000)
    expect(page.locator("#vitviz-distance .yerror")).to_have_count(24)
    open_tab(page, "Similarity")
    ready(page, "compared")
    expect(fold).to_have_text("Image set · 12 uploaded · this figure uses the samples")
    expect(pictures).to_have_count(12)
    page.locator(".vv-set").get_by_text("Use the samples", exact=True).click()
    expect(fold).to_contain_text("20 crops of the samples")
    expect(pictures).to_have_count(20)
    open_tab(page, "Rollout")
    expect(fold).to_be_hidden()
