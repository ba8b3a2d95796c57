"""The chart of attention distances: dots stand at their values, and tooltips name their heads."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import ready

MARKS = """() => {
  const plot = document.querySelector('#vitviz-distance .vv-chart');
  const from = plot.getBoundingClientRect();
  const all = (what) => [...plot.querySelectorAll(what)];
  const place = (node) => {
    const { x, y, width, height } = node.getBoundingClientRect();
    return [x + width / 2 - from.x, y + height / 2 - from.y];
  };
  const ends = all('.shapelayer path').filter((line) => !line.style.strokeDasharray);
  return {
    dots: all('.point').map(place),
    lines: [...all('.ygrid'), ...ends].map((line) => place(line)[1]),
    texts: all('.xtick text, .ytick text').map((text) => [...place(text), text.textContent]),
  };
}"""


@pytest.fixture(scope="module")
def distances():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    return vitviz.analyses.distances(inspector.trace(vitviz.sample_image("coffee"))).distance.numpy()


def test_dots_and_tooltips_match_attention_distances(open_page, distances):
    page = open_page("?sample=coffee&tab=distance", 1440, 900, wait=False)
    ready(page, "distance")
    layers, heads = distances.shape
    expect(page.locator("#vitviz-distance .vv-chart .point")).to_have_count(layers * heads)
    marks = page.evaluate(MARKS)
    # derive the axes from the tick labels beside the grid lines and below the plot
    sides = [(y, float(text.replace("−", "-").rstrip(" px%"))) for x, y, text in marks["texts"]
             if re.fullmatch(r"[−\d.]+( px| %)?", text) and x < min(x for x, _ in marks["dots"])]  # fmt: skip
    lines = sorted(marks["lines"], reverse=True)
    levels = sorted(value for y, value in sides if any(abs(y - line) < 6 for line in lines))
    assert len(levels) == len(lines) >= 3
    slope, start = np.polyfit(lines, levels, 1)
    below = {int(text): x for x, y, text in marks["texts"] if text.isdigit() and y > max(lines) + 6}
    assert len(marks["dots"]) == distances.size and set(below) <= set(range(1, layers + 1))
    values = np.array([[start + slope * y] for _, y in marks["dots"]])[:, 0]
    columns = np.array([x for x, _ in marks["dots"]])
    for layer, x in below.items():
        layer_values = np.sort(values[np.abs(columns - x) < 1])
        np.testing.assert_allclose(layer_values, np.sort(distances[layer - 1]), atol=0.01 * distances.max())
    plot = page.locator("#vitviz-distance .vv-chart")
    box = plot.bounding_box()
    for layer, head in ((0, 0), (layers // 2, heads - 1), (layers - 1, 1)):
        value = distances[layer, head]
        isolated = np.abs(distances[layer] - value)[np.arange(heads) != head].min() > 0.02 * distances.max()
        x, y = below[layer + 1], (value - start) / slope
        page.mouse.move(box["x"] + x, box["y"] + y)
        tooltip = page.locator(".vv-tip").inner_text()
        assert not isolated or f"Layer {layer + 1}, head {head + 1}" in tooltip, tooltip
        assert (
            abs(float(re.search(r"[\d.]+", tooltip).group()) - value) < 0.02 * distances.max() or not isolated
        )
