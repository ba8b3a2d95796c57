"""Tokens under the pointer: what is drawn is what the trace says, and nothing is asked of the server."""

import numpy as np
import pytest

import vitviz
from tests.e2e.conftest import open_tab, ready, sample
from tests.e2e.test_explorer import cell
from vitviz.samples import samples

VIEW = "[...window.vitviz.views].find((view) => view.name === 'tokens' && view.root.isConnected)"


@pytest.fixture(scope="module")
def trace():
    return vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("coffee"))


def test_hover_shows_the_similarity_without_any_request(open_page, trace):
    page = open_page("?sample=coffee")
    open_tab(page, "Tokens")
    ready(page, "tokens")
    requests, skip, count = [], trace.grid.prefix, trace.grid.tokens
    page.on("request", lambda request: requests.append(request.url))
    for patch in (3, trace.grid.cols + 1, trace.grid.patches - 1):
        page.mouse.move(*cell(page, trace, patch, "#vitviz-tokens .vv-heat"))
        page.wait_for_function(f"() => {VIEW}.query === {patch + skip}")
        line = (
            f"Array.from({VIEW}.data.cosines.values.subarray({(patch + skip) * count + skip},"
            f" {(patch + skip + 1) * count}))"
        )
        expected = vitviz.token_similarity(trace, 8, patch, centred=True).numpy().ravel()
        np.testing.assert_allclose(page.evaluate(line), expected, atol=1e-3)
    assert requests == []


# by patch: whether its frame is drawn, read at the middle of its upper edge; None where nothing is framed
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


def expected(trace, depth, k):
    """The patches whose norm is above median + k · MAD."""
    norms = trace.tokens[depth][trace.grid.prefix :].double().norm(dim=1).numpy()
    median = np.median(norms)
    return np.flatnonzero(norms > median + k * np.median(np.abs(norms - median))).tolist()


def framed(page, trace, view):
    """The patches that are framed in a view, once there are frames."""
    box = f"{VIEW.replace('tokens', view)}.ui.place" if view == "rollout" else "null"
    asked = f"({FRAMED})(['{view}', {trace.grid.rows}, {trace.grid.cols}, {box}])"
    page.wait_for_function(f"() => {asked} !== null")
    return np.flatnonzero(page.evaluate(asked)).tolist()


def test_outliers_are_marked_in_every_view_on_request_and_in_none_without(open_page, trace):
    cells = expected(trace, 6, 2.5)
    assert 1 <= len(cells) <= 40 and cells != expected(trace, 6, 5)
    page = open_page("?sample=coffee&tab=tokens&show=norms&depth=6&k=2.5", wait=False)
    ready(page, "tokens")
    assert framed(page, trace, "tokens") == cells
    tabs = {"Rollout": "rollout", "Attention": "explorer", "Evidence": "evidence"}
    for name, view in tabs.items():
        open_tab(page, name)
        ready(page, view)
        assert page.locator(f"#vitviz-{view} .vv-framed").first.is_hidden(), "nobody has asked for it"
    open_tab(page, "Tokens")
    page.evaluate(f"{VIEW}.set('mark', 'all')")
    for name, view in tabs.items():
        open_tab(page, name)
        assert framed(page, trace, view) == cells, view
        said = page.locator(f"#vitviz-{view} .vv-framed-said").first
        assert said.inner_text() == f"Framed: patches above the limit in Tokens, depth 6: {len(cells)}"
    open_tab(page, "Patches")
    page.locator("#vitviz-patches .vv-framed").wait_for(state="visible")
    other = vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("rocket"))
    open_tab(page, "Rollout")
    sample(page, [one.name for one in samples()].index("rocket"))
    page.wait_for_function(f"() => {VIEW.replace('tokens', 'rollout')}.value.picture.upload[0] === 640")
    page.wait_for_function(
        "(many) => document.querySelector('#vitviz-rollout .vv-framed-said').textContent.endsWith(many)",
        arg=f": {len(expected(other, 6, 2.5))}",
    )
    assert framed(page, other, "rollout") == expected(other, 6, 2.5) != cells
    open_tab(page, "Tokens")
    page.evaluate(f"{VIEW}.set('mark', 'on')")
    open_tab(page, "Rollout")
    page.locator("#vitviz-rollout .vv-framed").wait_for(state="hidden")
