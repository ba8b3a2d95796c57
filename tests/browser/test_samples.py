"""The samples on the page, what the model is, and the list of its classes."""

from playwright.sync_api import expect

from tests.browser.conftest import ready
from tests.browser.helpers import upload_image, wait_for_query


def tiles(page):
    return page.locator("#vitviz-samples .thumbnail-item")


def test_the_row_begins_with_the_sample_that_the_model_names_right(open_page):
    page = open_page()
    expect(tiles(page)).to_have_text(["espresso", "cat"])
    expect(tiles(page).first).to_have_attribute("aria-pressed", "true")
    page.locator(".vv-more-samples").click()
    expect(tiles(page)).to_have_text(["espresso", "cat", "astronaut", "rocket"])


def test_a_known_mistake_leads_to_its_explanation(open_page):
    page = open_page()
    page.locator("#vitviz-samples").get_by_role("button", name="known mistake").click()
    ready(page, "evidence")
    wait_for_query(page, sample="chelsea", tab="evidence")
    expect(page.locator("#vitviz-facts .vv-truth")).to_contain_text("the prediction is wrong")


def test_no_sample_is_marked_after_an_upload(open_page, tmp_path):
    page = open_page()
    upload_image(page, tmp_path / "mine.png")
    expect(page.locator("#vitviz-samples [aria-pressed=true]")).to_have_count(0)


def test_a_file_that_is_no_image_is_refused_in_our_words_until_the_next_upload(open_page, tmp_path):
    page = open_page()
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.4")
    page.locator("#vitviz-upload input[type=file]").set_input_files(tmp_path / "paper.pdf")
    notice = page.locator("#vitviz-notice .vv-notice-text")
    expect(notice).to_contain_text("The file paper.pdf is neither an image nor a video")
    expect(page.locator(".toast-body")).to_have_count(0)
    upload_image(page, tmp_path / "mine.png")
    expect(notice).to_be_hidden()


def test_the_model_is_described_from_its_own_records_and_its_classes_can_be_searched(open_page):
    page = open_page()
    classes = page.locator("#vitviz-facts .vv-classes")
    expect(classes.locator("summary")).to_have_text("200 classes, 49.9 % of validation images right")
    classes.locator("summary").click()
    expect(classes.locator("li")).to_have_count(200)
    classes.locator("input").fill("ESPR")
    expect(classes.locator("li")).to_have_text(["espresso"])


def test_a_model_without_a_record_has_only_its_number_of_classes(open_page):
    page = open_page("?checkpoint=vitviz-positions-1d-1", wait=False)
    ready(page, "patches")
    expect(page.locator("#vitviz-facts .vv-classes summary")).to_have_text("200 classes")
