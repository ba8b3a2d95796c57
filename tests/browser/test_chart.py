"""The browser's chart against numbers of its own: a dot stands where its number is, and says what it is."""

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


def test_every_dot_stands_at_its_number_and_its_tooltip_names_its_head(open_page, distances):
    page = open_page("?sample=coffee&tab=distance", 1440, 900, wait=False)
    ready(page, "distance")
    layers, heads = distances.shape
    expect(page.locator("#vitviz-distance .vv-chart .point")).to_have_count(layers * heads)
    found = page.evaluate(MARKS)
    # the axes, from the ticks alone: what stands beside a grid line, and below the plot
    sides = [(y, float(text.replace("−", "-").rstrip(" px%"))) for x, y, text in found["texts"]
             if re.fullmatch(r"[−\d.]+( px| %)?", text) and x < min(x for x, _ in found["dots"])]  # fmt: skip
    lines = sorted(found["lines"], reverse=True)
    levels = sorted(value for y, value in sides if any(abs(y - line) < 6 for line in lines))
    assert len(levels) == len(lines) >= 3
    slope, start = np.polyfit(lines, levels, 1)
    below = {int(text): x for x, y, text in found["texts"] if text.isdigit() and y > max(lines) + 6}
    assert len(found["dots"]) == distances.size and set(below) <= set(range(1, layers + 1))
    seen = np.array([[start + slope * y] for _, y in found["dots"]])[:, 0]
    columns = np.array([x for x, _ in found["dots"]])
    for layer, x in below.items():
        mine = np.sort(seen[np.abs(columns - x) < 1])
        np.testing.assert_allclose(mine, np.sort(distances[layer - 1]), atol=0.01 * distances.max())
    plot = page.locator("#vitviz-distance .vv-chart")
    box = plot.bounding_box()
    for layer, head in ((0, 0), (layers // 2, heads - 1), (layers - 1, 1)):
        value = distances[layer, head]
        alone = np.abs(distances[layer] - value)[np.arange(heads) != head].min() > 0.02 * distances.max()
        x, y = below[layer + 1], (value - start) / slope
        page.mouse.move(box["x"] + x, box["y"] + y)
        told = page.locator(".vv-tip").inner_text()
        assert not alone or f"Layer {layer + 1}, head {head + 1}" in told, told
        assert abs(float(re.search(r"[\d.]+", told).group()) - value) < 0.02 * distances.max() or not alone
