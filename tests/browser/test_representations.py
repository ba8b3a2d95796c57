"""The Representations view: figures match the trace, and hovering sends no requests."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import choose_sample, open_tab, ready
from tests.browser.helpers import patch_centre
from vitviz.traces.samples import samples

VIEW = "[...window.vitviz.views].find((view) => view.name === 'tokens' && view.root.isConnected)"


@pytest.fixture(scope="module")
def trace():
    return vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("coffee"))


def test_hover_shows_similarity_without_requests(open_page, trace):
    page = open_page("?sample=coffee&tab=tokens&show=similarity", wait=False)
    ready(page, "tokens")
    requests, skip, count = [], trace.grid.prefix, trace.grid.tokens
    page.on("request", lambda request: requests.append(request.url))
    for patch in (3, trace.grid.cols + 1, trace.grid.patches - 1):
        page.mouse.move(*patch_centre(page, trace, patch, "#vitviz-tokens .vv-heat"))
        page.wait_for_function(f"() => {VIEW}.query === {patch + skip}")
        line = (
            f"Array.from({VIEW}.data.cosines.values.subarray({(patch + skip) * count + skip},"
            f" {(patch + skip + 1) * count}))"
        )
        expected = vitviz.token_similarity(trace, 8, patch, centred=True).numpy().ravel()
        np.testing.assert_allclose(page.evaluate(line), expected, atol=1e-3)
    assert requests == []


# by patch: whether its frame is drawn, at the middle of the upper edge; None without frames
FRAMED = """([view, rows, cols, box]) => {
  const sheet = document.querySelector(`#vitviz-${view} .vv-framed`);
  if (!sheet || sheet.hidden || !sheet.width) return null;
  const ratio = sheet.width / sheet.getBoundingClientRect().width;
  const place = box || { x: 0, y: 0, width: sheet.width / ratio, height: sheet.height / ratio };
  const context = sheet.getContext('2d');
  return Array.from({ length: rows * cols }, (_, i) => {
    const x = place.x + (((i % cols) + 0.5) * place.width) / cols;
    const y = place.y + (Math.floor(i / cols) * place.height) / rows + 2;
    const [r, g, b, a] = context.getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data;
    return a > 200 && r > g + 40 && g > b;
  });
}"""


def expected_outliers(trace, depth, k):
    """Return the patches whose norm exceeds median + k · MAD."""
    norms = trace.tokens[depth][trace.grid.prefix :].double().norm(dim=1).numpy()
    median = np.median(norms)
    return np.flatnonzero(norms > median + k * np.median(np.abs(norms - median))).tolist()


def framed_patches(page, trace, view):
    """Return the framed patches of a view, once there are frames."""
    box = f"{VIEW.replace('tokens', view)}.ui.place" if view == "rollout" else "null"
    asked = f"({FRAMED})(['{view}', {trace.grid.rows}, {trace.grid.cols}, {box}])"
    page.wait_for_function(f"() => {asked} !== null")
    return np.flatnonzero(page.evaluate(asked)).tolist()


def test_outliers_are_framed_in_all_views_only_on_request(open_page, trace):
    cells = expected_outliers(trace, 6, 2.5)
    assert 1 <= len(cells) <= 40 and cells != expected_outliers(trace, 6, 5)
    page = open_page("?sample=coffee&tab=tokens&show=norms&depth=6&k=2.5", wait=False)
    ready(page, "tokens")
    assert framed_patches(page, trace, "tokens") == cells
    tabs = {"Rollout": "rollout", "Attention": "explorer", "Attribution": "evidence"}
    for name, view in tabs.items():
        open_tab(page, name)
        ready(page, view)
        assert page.locator(f"#vitviz-{view} .vv-framed").first.is_hidden(), (
            "frames are shown without request"
        )
    open_tab(page, "Representations")
    page.evaluate(f"{VIEW}.set('mark', 'all')")
    for name, view in tabs.items():
        open_tab(page, name)
        assert framed_patches(page, trace, view) == cells, view
        said = page.locator(f"#vitviz-{view} .vv-framed-said").first
        assert (
            said.inner_text() == f"Framed: patches above the limit in Representations, depth 6: {len(cells)}"
        )
    open_tab(page, "Patches")
    page.locator("#vitviz-patches .vv-framed").wait_for(state="visible")
    other = vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("rocket"))
    open_tab(page, "Rollout")
    choose_sample(page, [one.name for one in samples()].index("rocket"))
    page.wait_for_function(f"() => {VIEW.replace('tokens', 'rollout')}.value.picture.upload[0] === 640")
    page.wait_for_function(
        "(many) => document.querySelector('#vitviz-rollout .vv-framed-said').textContent.endsWith(many)",
        arg=f": {len(expected_outliers(other, 6, 2.5))}",
    )
    assert framed_patches(page, other, "rollout") == expected_outliers(other, 6, 2.5) != cells
    open_tab(page, "Representations")
    page.evaluate(f"{VIEW}.set('mark', 'on')")
    open_tab(page, "Rollout")
    page.locator("#vitviz-rollout .vv-framed").wait_for(state="hidden")


def test_default_shows_principal_components_and_explains_colours(open_page, trace):
    page = open_page("?sample=coffee&tab=tokens", wait=False)
    ready(page, "tokens")
    expect(page.locator("#vitviz-tokens .vv-figure .vv-h").first).to_have_text(
        "Principal components · depth 8, raw"
    )
    text = page.locator("#vitviz-tokens .vv-figure .vv-text").first
    expect(text).to_contain_text("Patches of similar colour have similar values")
    expect(text).to_contain_text("A colour has no fixed meaning across images or depths.")
    page.evaluate(f"{VIEW}.set('basis', 'all')")
    expect(text).to_contain_text("A colour has no fixed meaning across images. ")
    tints = page.evaluate(f"Array.from({VIEW}.data.tints.values.subarray(8 * 588))")
    assert np.abs(np.array(page.evaluate(CELLS)).ravel() - tints).max() <= 2


SECOND = "#vitviz-tokens .vv-away .vv-heat"


def hover_second(page, trace, patch):
    page.mouse.move(*patch_centre(page, trace, patch, SECOND))


def test_similarity_is_shown_between_patches_of_two_images(open_page, trace):
    page = open_page("?sample=coffee&tab=tokens&show=similarity&depth=6", wait=False)
    ready(page, "tokens")
    page.get_by_label("Second image").first.select_option("chelsea")
    page.wait_for_function(f"() => {VIEW}.data.across?.values.length === 196 * 196")
    other = vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("chelsea"))
    page.locator(SECOND).scroll_into_view_if_needed()
    requests, title = [], page.locator("#vitviz-tokens .vv-figure .vv-h").first
    page.on("request", lambda request: requests.append(request.url))
    for patch in (40, 150):
        hover_second(page, trace, patch)
        expect(title).to_contain_text(f"Similarity to Patch {patch + 1} of the second image")
        expected = vitviz.token_similarity(trace, 6, patch, centred=True, of=other).numpy().ravel()
        column = f"(_, i) => {VIEW}.data.across.values[i * 196 + {patch}]"
        drawn = page.evaluate(f"Array.from({{ length: 196 }}, {column})")
        np.testing.assert_allclose(drawn, expected, atol=1e-3)
        colours = page.evaluate(CELLS)  # larger values are drawn redder
        warm = np.array(colours)[:, 0].astype(float) - np.array(colours)[:, 2]
        assert np.corrcoef(warm, expected)[0, 1] > 0.97
    page.mouse.move(*patch_centre(page, trace, 30, "#vitviz-tokens .vv-figure .vv-heat"))
    expect(title).to_contain_text("Similarity to Patch 31 ")
    line = vitviz.token_similarity(other, 6, 30, centred=True, of=trace).numpy()
    row, col = np.unravel_index(line.argmax(), line.shape)
    text = page.locator("#vitviz-tokens .vv-away .vv-text").first
    expect(text).to_contain_text(f"Most similar: Patch {line.argmax() + 1}, row {row + 1}, column {col + 1}")
    assert requests == [], "hovering sends requests"
    hover_second(page, trace, 40)
    page.mouse.down()
    page.mouse.up()
    expect(page).to_have_url(re.compile("other=chelsea.*partner=40"))
    page.mouse.move(*patch_centre(page, trace, 30, "#vitviz-tokens .vv-figure .vv-heat"))
    expect(title).to_contain_text("Patch 41 of the second image")  # the selection is kept
    page.mouse.down()
    page.mouse.up()
    expect(title).to_contain_text("Similarity to Patch 31 ")


# red, green and blue of each of 14 x 14 patches of the map itself
CELLS = """() => {
  const canvas = document.querySelector('#vitviz-tokens .vv-figure .vv-heat');
  const data = canvas.getContext('2d').getImageData(0, 0, 14, 14).data;
  return Array.from({ length: 196 }, (_, i) => Array.from(data.subarray(4 * i, 4 * i + 3)));
}"""


def test_two_images_share_the_colours_of_one_basis(open_page):
    page = open_page(
        "?sample=coffee&tab=tokens&show=components&basis=photo&other=chelsea&depth=6", wait=False
    )
    ready(page, "tokens")
    own = np.array(page.evaluate(CELLS))
    second = np.array(page.evaluate(CELLS.replace(".vv-figure .vv-heat", ".vv-away .vv-heat")))
    page.close()
    page = open_page(
        "?sample=chelsea&tab=tokens&show=components&basis=photo&other=coffee&depth=6", wait=False
    )
    ready(page, "tokens")
    for mine, theirs in ((own, page.evaluate(CELLS.replace(".vv-figure .vv-heat", ".vv-away .vv-heat"))),
                         (second, page.evaluate(CELLS))):  # fmt: skip
        assert np.abs(mine - np.array(theirs)).max() <= 2, (
            "the colour of a patch depends on the order of the images"
        )


def test_basis_of_two_checkpoints_requires_a_second(open_page):
    query = "?sample=coffee&tab=tokens&show=components&basis=beside"
    page = open_page(f"{query}&lang=ko", wait=False)
    expect(page.locator("#vitviz-tokens .vv-error")).to_contain_text("둘째 체크포인트가 없습니다")
    page.close()
    page = open_page(
        "?sample=coffee&second=vitviz-tiny@300&tab=tokens&show=components&basis=beside", wait=False
    )
    ready(page, "tokens")
    ready(page, "second-tokens")
    assert page.locator(".vv-error:visible").count() == 0


def test_previous_image_is_second_image_and_not_in_link(open_page):
    page = open_page("?sample=coffee&tab=tokens&show=similarity&depth=6", wait=False)
    first = ready(page, "tokens")
    coffee = page.evaluate(f"{VIEW}.value.upload")
    choose_sample(page, [one.name for one in samples()].index("rocket"))
    page.wait_for_function(
        "(old) => !document.querySelector('#vitviz-tokens [data-ready]').dataset.ready.startsWith(old)",
        arg=first,
    )
    choice = page.get_by_label("Second image").first
    choice.select_option(label="Previous image")
    page.wait_for_function(f"() => {VIEW}.data.across?.values.length === 196 * 196")
    assert page.evaluate(f"{VIEW}.settings.other") == coffee
    page.evaluate(f"{VIEW}.set('depth', 5)")
    expect(page).to_have_url(re.compile("depth=5"))
    assert "other" not in page.url and coffee not in page.url
