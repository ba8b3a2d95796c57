"""The sample images, the description of the model and the list of its classes."""

from playwright.sync_api import expect

from tests.browser.conftest import ready
from tests.browser.helpers import upload_image, wait_for_query


def tiles(page):
    return page.locator("#vitviz-samples .thumbnail-item")


def test_sample_row_starts_with_correctly_predicted_sample(open_page):
    page = open_page()
    expect(tiles(page)).to_have_text(["espresso", "cat"])
    expect(tiles(page).first).to_have_attribute("aria-pressed", "true")
    page.locator(".vv-more-samples").click()
    expect(tiles(page)).to_have_text(["espresso", "cat", "astronaut", "rocket"])


def test_known_mistake_opens_its_attribution(open_page):
    page = open_page()
    page.locator("#vitviz-samples").get_by_role("button", name="known mistake").click()
    ready(page, "evidence")
    wait_for_query(page, sample="chelsea", tab="evidence")
    expect(page.locator("#vitviz-facts .vv-truth")).to_contain_text("the prediction is wrong")


def test_upload_clears_the_selected_sample(open_page, tmp_path):
    page = open_page()
    upload_image(page, tmp_path / "mine.png")
    expect(page.locator("#vitviz-samples [aria-pressed=true]")).to_have_count(0)


def test_non_image_file_is_rejected_until_next_upload(open_page, tmp_path):
    page = open_page()
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.4")
    page.locator("#vitviz-upload input[type=file]").set_input_files(tmp_path / "paper.pdf")
    notice = page.locator("#vitviz-notice .vv-notice-text")
    expect(notice).to_contain_text("The file paper.pdf is neither an image nor a video")
    expect(page.locator(".toast-body")).to_have_count(0)
    upload_image(page, tmp_path / "mine.png")
    expect(notice).to_be_hidden()


def test_model_accuracy_is_shown_and_classes_are_searchable(open_page):
    page = open_page()
    classes = page.locator("#vitviz-facts .vv-classes")
    expect(classes.locator("summary")).to_have_text("200 classes, 49.9 % of validation images right")
    classes.locator("summary").click()
    expect(classes.locator("li")).to_have_count(200)
    classes.locator("input").fill("ESPR")
    expect(classes.locator("li")).to_have_text(["espresso"])


def test_model_without_records_shows_class_count_only(open_page):
    page = open_page("?checkpoint=vitviz-positions-1d-1", wait=False)
    ready(page, "patches")
    expect(page.locator("#vitviz-facts .vv-classes summary")).to_have_text("200 classes")
