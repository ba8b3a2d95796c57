"""Downloads: charts, the zip, averages, print figures and videos match the Python API."""

import re
import zipfile

import numpy as np
from PIL import Image
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import brightness_changes, centre_brightness, export, ready, upload_image_set
from tests.browser.held_requests import HeldRequests
from tests.export.reading import texts


def test_png_of_attribution_shows_its_head_grid_and_colour_scale(open_page, tmp_path):
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    ready(page, "evidence")
    with page.expect_download() as download:
        export(page, "evidence", ".vv-png")
    download.value.save_as(path := tmp_path / "attribution.png")
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    below = pixels[pixels.shape[0] // 2 :]  # the map is the upper half
    blue = (below[..., 2] - below[..., 0] > 100).any(axis=1)
    orange = (below[..., 0] - below[..., 2] > 100).any(axis=1)
    assert (blue & orange).any(), "no colour scale from blue to orange below the map"
    assert (orange & ~blue).any(), "no head grid or waterfall below the map"


def test_downloaded_html_chart_opens_offline(browser, server, open_page, tmp_path):
    page = open_page("?tab=distance", wait=False)
    ready(page, "distance")
    with page.expect_download() as download:
        export(page, "distance", "[data-name='figure.html']")
    download.value.save_as(path := tmp_path / "figure.html")
    context = browser.new_context(offline=True)
    try:
        alone, elsewhere = context.new_page(), []
        alone.on(
            "request",
            lambda request: (
                None if request.url.startswith(("file:", "data:", "blob:")) else elsewhere.append(request.url)
            ),
        )
        alone.goto(path.as_uri())
        expect(alone.locator("svg circle").first).to_be_visible()
        assert elsewhere == []
    finally:
        context.close()


def test_zip_contains_rollout_of_the_current_settings(open_page, tmp_path):
    page = open_page("?sample=rocket&tab=rollout&fusion=max", wait=False)
    ready(page, "rollout")
    page.locator("#vitviz-rollout [data-name=residual] input").fill("0.8")
    page.wait_for_function(
        "() => /residual=0.8/.test(document.querySelector('#vitviz-rollout [data-ready]').dataset.ready)"
    )
    with page.expect_download() as download:
        page.locator(".vv-everything").click()
    assert download.value.suggested_filename == "vitviz-tiny.zip"
    expect(page.locator(".vv-bubble")).to_contain_text("to your downloads")
    trace = vitviz.load("vitviz-tiny").trace(vitviz.sample_image("rocket"))
    with zipfile.ZipFile(download.value.path()) as archive:
        assert archive.testzip() is None
        rollout = np.load(archive.open("numbers/rollout.npz"))
        assert np.allclose(
            rollout["rollout"], vitviz.rollout(trace, fusion="max", residual=0.8).numpy(), rtol=1e-3
        )
        assert {
            "numbers/patches.npz",
            "distance-figure.html",
            "upload.jpg",
            "input.png",
            "rollout-overlay.png",
            "README.txt",
            "settings.json",
        } <= set(archive.namelist())


def test_zip_contains_the_average_of_an_image_set(open_page, tmp_path):
    page = open_page("?tab=distance&form=sorted", wait=False)
    single_key = ready(page, "distance")
    paths = []
    for name in ("chelsea", "rocket"):
        vitviz.sample_image(name).save(path := tmp_path / f"{name}.png")
        paths.append(path)
    upload_image_set(page, paths)
    page.locator(".vv-set .vv-go").click()
    expect(page.locator("#vitviz-distance .vv-h")).to_contain_text("mean of 2 images")
    assert ready(page, "distance") != single_key
    with page.expect_download() as download:
        page.locator(".vv-everything").click()
    inspector = vitviz.load("vitviz-tiny")
    expected = np.mean([vitviz.attention_distance(inspector.trace(path)).numpy() for path in paths], axis=0)
    with zipfile.ZipFile(download.value.path()) as archive:
        assert np.allclose(np.load(archive.open("numbers/distance.npz"))["distance"], expected, atol=1e-3)
    page.locator("#vitviz-distance .vv-reset").click()
    expect(page.get_by_label("By layer")).to_be_checked()
    page.locator(".vv-set-single").click()
    expect(page.locator("#vitviz-distance .vv-h")).to_contain_text("one image")
    assert ready(page, "distance") == single_key


def test_print_figure_and_caption_match_python_figure(open_page):
    page = open_page("?sample=rocket&tab=rollout&fusion=max", wait=False)
    ready(page, "rollout")
    export(page, "rollout", ".vv-print")
    dialog = page.get_by_role("dialog", name="Export the figure for print")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("Dots per inch")).to_be_hidden()
    box = dialog.get_by_label("Include detail")
    place = box.bounding_box()
    before = centre_brightness(box)
    box.check()
    assert brightness_changes(box, before), "the checked box looks unchanged"
    expect(dialog.get_by_role("status")).to_be_empty(timeout=60_000)  # the preview is drawn
    assert box.bounding_box() == place, "the status moves the form"
    box.uncheck()
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "vitviz-rollout_rocket_vitviz-tiny_fusion-max.svg"
    inspector, photo = vitviz.load("vitviz-tiny"), vitviz.sample_image("rocket")
    expected = vitviz.figure("rollout", inspector, inspector.trace(photo), picture=photo, fusion="max")
    svg = download.value.path().read_text(encoding="utf-8")
    assert texts(svg.encode()) == texts(expected.svg())
    expect(dialog).to_contain_text("Saved.")
    assert dialog.locator("img").evaluate("(one) => one.naturalWidth") > 100, "the preview is empty"
    caption = dialog.get_by_role("textbox", name="Caption", exact=True)
    assert caption.input_value() == expected.caption_as("txt", definition=False)
    assert caption.input_value().startswith("Rollout, vitviz-tiny: ")
    dialog.get_by_label("With settings, definition and source").check()
    expect(caption).to_have_value(re.compile("Image: Launch of a Falcon 9"))
    assert "alone: 0" not in caption.input_value() and not re.search(r"[\$]", caption.input_value())
    for form, formula in (("tex", r"$\tilde A_l = r I + (1-r) \bar A_l$"), ("md", r"$\tilde A_l = r I")):
        dialog.get_by_label("Form of the caption").select_option(form)
        expect(caption).to_have_value(re.compile(re.escape(formula)))
    dialog.get_by_label("Format").select_option("caption")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename.endswith(".md")
    assert download.value.path().read_text(encoding="utf-8") == caption.input_value()
    dialog.get_by_label("Format").select_option("png")
    dialog.get_by_label("Width in mm").fill("3")
    dialog.get_by_role("button", name="Download").click()
    expect(dialog).to_contain_text("expected 40 to 400 mm")
    dialog.get_by_label("Width in mm").fill("86")
    dialog.get_by_label("Dots per inch").select_option("150")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    with Image.open(download.value.path()) as picture:
        assert picture.width == round(86 / 25.4 * 150)


def test_video_export_matches_python_video(open_page):
    page = open_page("?sample=rocket&tab=rollout&fusion=max", wait=False)
    ready(page, "rollout")
    export(page, "rollout", ".vv-filmed")
    dialog = page.get_by_role("dialog", name="Export the figure as a video")
    expect(dialog).to_contain_text(f"{len(vitviz.training_snapshots('vitviz-tiny'))} frames")
    dialog.get_by_label("Video over").select_option("layers")
    expect(dialog).to_contain_text("8 frames")
    dialog.get_by_label("Format").select_option("gif")
    dialog.get_by_label("Width in pixels").select_option("640")
    dialog.get_by_label("Seconds per frame").select_option("0.4")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "vitviz-rollout_vitviz-tiny_fusion-max_over-layers.gif"
    expect(dialog).to_have_count(0)
    inspector, photo = vitviz.load("vitviz-tiny"), vitviz.sample_image("rocket")
    expected = vitviz.animation("rollout", inspector, photo, over="layers", fusion="max")
    with Image.open(download.value.path()) as video:
        assert (video.width, video.n_frames) == (640, 8)
        for number in range(8):
            video.seek(number)
            assert video.info["duration"] == (400 if number < 7 else 1200)
            shown = np.asarray(video.convert("RGB"), float)
            assert np.abs(shown - expected.picture(number, 640)).mean() < 4


def test_video_dialog_shows_progress_and_closing_cancels(open_page):
    page = open_page("?sample=rocket&tab=filters", wait=False)
    ready(page, "filters")
    export(page, "filters", ".vv-filmed")
    dialog = page.get_by_role("dialog", name="Export the figure as a video")
    dialog.get_by_label("Video over").select_option("layers")
    expect(dialog).to_contain_text("has no video over the layers")
    expect(dialog.get_by_role("button", name="Download")).to_be_disabled()
    dialog.get_by_label("Video over").select_option("training")
    page.route(
        re.compile("film.progress"), lambda route: route.fulfill(json={"done": 9, "of": 36}, status=200)
    )
    held = HeldRequests(page, r"/filters/film\.mp4")
    dialog.get_by_role("button", name="Download").click()
    held.wait()
    expect(dialog).to_contain_text("Drawing … 25 %")
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    page.wait_for_timeout(100)
    assert any("film.mp4" in url for url in failed)
    held.release()
