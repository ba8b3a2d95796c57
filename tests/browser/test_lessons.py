"""Lessons: the downloaded zip, dropped onto a page, restores image, view and settings."""

import json
import re
import zipfile

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, open_tab, ready
from tests.browser.helpers import download_all, drawn_settings, drop_file, wait_for_query, write_image

EDITS = "heads=2.3"
LESSON_QUERY = (
    f"?checkpoint=vitviz-tiny@30&second=vitviz-tiny&size=96x96&tab=rollout&fusion=max&without={EDITS}"
)


def expect_notice(page, said: str) -> None:
    expect(page.locator("#vitviz-notice .vv-notice-text")).to_contain_text(said)


@pytest.fixture(scope="module")
def lesson(browser, server, tmp_path_factory):
    """Create a zip with an uploaded image, two checkpoints, a size, a view, settings and an ablation."""
    folder = tmp_path_factory.mktemp("lesson")
    page = browser.new_page()
    page.goto(server.url + LESSON_QUERY)
    ready(page, "rollout")
    page.set_input_files("#vitviz-upload input[type=file]", write_image(folder / "mine.png"))
    expect(page.locator("#vitviz-stage")).to_contain_text("300 × 200")
    ready(page, "rollout")
    page.locator("#vitviz-rollout [data-name=residual] input").fill("0.8")
    page.wait_for_function("() => location.search.includes('residual=0.8')")
    open_tab(page, "Attention")
    ready(page, "explorer")
    page.locator("#vitviz-explorer canvas.vv-heat").first.focus()
    page.keyboard.press("]")
    wait_for_query(page, tab="explorer", head="2")
    path = download_all(page, folder / "vitviz-lesson.zip")
    page.close()
    return path


def expect_restored(page) -> None:
    """Check that the whole lesson is restored."""
    expect(page.locator("#vitviz-stage")).to_contain_text("300 × 200")
    expect(page.locator("#vitviz-picker input")).to_have_value(re.compile("^vitviz-tiny@30"))
    expect(page.locator("#vitviz-facts [data-checkpoint='vitviz-tiny@30']")).to_be_attached()
    expect(page.locator("#vitviz-second-facts [data-checkpoint='vitviz-tiny']")).to_be_attached()
    expect(page.locator("#vitviz-tab-explorer")).to_be_visible()
    wait_for_query(
        page, checkpoint="vitviz-tiny@30", second="vitviz-tiny", size="96x96", sample=None, tab="explorer",
        without=EDITS, head="2",
    )  # fmt: skip
    assert drawn_settings(page, "explorer")["head"] == ["2"]
    open_tab(page, "Rollout")
    page.wait_for_function(
        "() => /fusion=max/.test(document.querySelector('#vitviz-rollout [data-ready]')?.dataset.ready)"
    )
    assert drawn_settings(page, "rollout")["residual"] == ["0.8"] and drawn_settings(page, "rollout")[
        "fusion"
    ] == ["max"]


@pytest.mark.parametrize("onto", ["#vitviz-stage .vv", "#vitviz-upload", "#vitviz-rollout"])
def test_dropped_zip_restores_the_lesson(open_page, lesson, onto):
    page = open_page("?tab=rollout&fusion=min&discard=0.5", wait=False)
    ready(page, "rollout")
    drop_file(page, lesson, onto)
    expect_restored(page)
    assert drawn_settings(page, "rollout")["discard"] == ["0"], "a setting from before the lesson is kept"
    expect(page.locator("#vitviz-notice .vv-notice")).to_be_hidden()


def test_upload_button_accepts_lessons_and_images(open_page, lesson, tmp_path):
    page = open_page(width=390, height=844)
    field = "#vitviz-upload input[type=file]"
    page.locator("#vitviz-upload button").first.dispatch_event("click")
    assert ".zip" in page.locator(field).get_attribute("accept")
    page.set_input_files(field, lesson)
    expect_restored(page)
    page.set_input_files(field, write_image(tmp_path / "other.png", (200, 300)))
    expect(page.locator("#vitviz-stage")).to_contain_text("200 × 300")
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def rewrite_lesson(lesson, path, change):
    """Write a copy of a lesson with changed settings."""
    with zipfile.ZipFile(lesson) as old, zipfile.ZipFile(path, "w") as new:
        settings = json.loads(old.read("settings.json"))
        change(settings)
        new.writestr("settings.json", json.dumps(settings))
        new.writestr("upload.jpg", old.read("upload.jpg"))
    return path


def test_invalid_lesson_is_rejected_and_page_kept(open_page, lesson, tmp_path):
    page = open_page("?sample=rocket&tab=rollout&fusion=max", wait=False)
    key, settings = ready(page, "rollout"), drawn_settings(page, "rollout")
    (other := tmp_path / "other.zip").write_bytes(b"")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("<img src=x onerror=alert(1)>.txt", "x")
    (cut := tmp_path / "cut.zip").write_bytes(lesson.read_bytes()[:-900])
    lacking = rewrite_lesson(
        lesson,
        tmp_path / "lacking.zip",
        lambda settings_file: settings_file["lesson"].update(checkpoint="of-another-site"),
    )
    beside = rewrite_lesson(
        lesson,
        tmp_path / "beside.zip",
        lambda settings_file: settings_file["lesson"].update(second="elsewhere"),
    )
    for path, said in (
        (other, "This zip is not a lesson"),
        (cut, "damaged"),
        (lacking, "There is no checkpoint 'of-another-site'"),
        (beside, "There is no checkpoint 'elsewhere'"),
    ):
        drop_file(page, path)
        expect_notice(page, said)
        assert ready(page, "rollout") == key and drawn_settings(page, "rollout") == settings
        expect(page.locator("#vitviz-picker input")).to_have_value(re.compile("^vitviz-tiny ·"))
        page.locator("#vitviz-notice button").click()
    drop_file(page, lesson)
    expect_restored(page)


def test_large_zip_is_uploaded_without_unread_parts(open_page, lesson, tmp_path):
    page = open_page()
    (large := tmp_path / "large.zip").write_bytes(lesson.read_bytes())
    with zipfile.ZipFile(large, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr("numbers/large.npz", bytes(25 * 2**20))
    drop_file(page, large)
    expect_restored(page)


@pytest.mark.parametrize(("locale", "said"), [("zh-CN", "这个 zip 不是课例"), ("ko-KR", "수업이 아닙니다")])
def test_rejected_lesson_is_reported_in_page_language(open_page, tmp_path, locale, said):
    page = open_page(locale=locale, width=390, height=844)
    with zipfile.ZipFile(path := tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    drop_file(page, path)
    expect_notice(page, said)
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_lessons_folder_is_offered_on_the_page(open_page, browser, lesson, tmp_path):
    expect(open_page().locator("#vitviz-lessons")).to_be_hidden()
    (tmp_path / "1 What a head sees.zip").write_bytes(lesson.read_bytes())
    (tmp_path / "2 <img src=x onerror=alert(1)>.zip").write_bytes(b"no lesson")
    with Server("--device", "cpu", "--lessons", str(tmp_path)) as other:
        page = browser.new_page(viewport={"width": 390, "height": 844}, locale="ko-KR")
        page.goto(other.url + "?tab=patches")
        ready(page, "patches")
        expect(page.locator("#vitviz-lessons h2")).to_have_text("수업")
        expect(page.locator("#vitviz-lessons button")).to_have_count(2)
        page.locator("#vitviz-facts .vv-unfold").click()  # shows the image sources
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        page.locator("#vitviz-lessons button").last.click()
        expect_notice(page, "손상되었거나")
        page.locator("#vitviz-lessons button", has_text="What a head sees").click()
        expect(page.locator("#vitviz-stage")).to_contain_text("300 × 200")
        page.wait_for_function("() => /head=2/.test(location.search)")
        expect(page.locator("#vitviz-tab-explorer")).to_be_visible()
        assert drawn_settings(page, "explorer")["head"] == ["2"]
        (tmp_path / "1 What a head sees.zip").unlink()
        page.locator("#vitviz-lessons button", has_text="What a head sees").click()
        expect_notice(page, "더 이상 서버에 없습니다")
        expect(page.locator("#vitviz-stage")).to_contain_text("300 × 200")
        page.close()
