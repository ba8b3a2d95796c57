"""Plotly charts: pointer, keys, zoom, legend and linked highlighting, on a constructed chart."""

import json

import numpy as np
import pytest
from playwright.sync_api import expect

from vitviz.charts.chart import ReferenceLine, by_layer, to_json
from vitviz.server.api import modules
from vitviz.traces.localized_text import LocalizedText

VALUES = np.array([[20.0, 90.0], [110.0, 60.0], [45.0, 75.0]])
CHART = by_layer(
    VALUES, LocalizedText("distance"), "by <layer> & head", high=120.0, unit="px",
    levels=(ReferenceLine(50.0, "uniform"),),
)  # fmt: skip
DRAW = """async ([base, chart]) => {
  const of = (path) => import(new URL(base + path, document.baseURI).href);
  const { chart: make } = await of('frontend/plotly_chart.js');
  const { light, lighting } = await of('frontend/highlight.js');
  const { el } = await of('frontend/elements.js');
  const style = 'position:fixed;inset:0;z-index:9999;width:560px;background:white';
  const box = el('div', { class: 'vv', id: 'drawn', style });
  document.body.append(box);
  const told = { opened: null, said: '', failed: '' };
  const self = { zoom: 1, width: 520, tall: 320, passes: false, value: {}, name: 'drawn' };
  self.control = () => null;
  self.beside = () => [];
  self.colour = (name) => getComputedStyle(box).getPropertyValue(name).trim();
  self.say = (text) => (told.said = text);
  self.open = (view, settings) => (told.opened = [view, settings]);
  self.fail = (problem) => (told.failed = String(problem.stack));
  const drawn = make(self);
  box.append(drawn.node, el('button', { text: 'row', id: 'row', ...lighting('head.2.1') }));
  drawn.draw(chart);
  Object.assign(window, { told, light, view: self, drawn, chart });
}"""


@pytest.fixture
def page(open_page):
    page = open_page("?tab=patches", wait=False)
    page.wait_for_function("() => document.querySelector('.vv')")
    page.evaluate(DRAW, [modules.modules_base(), json.loads(json.dumps(to_json(CHART)))])
    page.wait_for_function("() => window.told.failed || document.querySelector('#drawn .js-line')")
    assert not callbacks(page)["failed"]
    expect(page.locator("#drawn .point")).to_have_count(VALUES.size)
    return page


def callbacks(page) -> dict:
    return page.evaluate("() => window.told")


def centre(page, key: str) -> tuple[float, float]:
    box = page.locator(f"#drawn .point[data-lit='{key}']").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_point_position_tooltip_and_click_match_data(page):
    heights = {(i, j): centre(page, f"head.{i + 1}.{j + 1}")[1] for i, j in np.ndindex(VALUES.shape)}
    slope, start = np.polyfit([VALUES[at] for at in heights], list(heights.values()), 1)
    for at, y in heights.items():
        assert abs(start + slope * VALUES[at] - y) < 0.2 and slope < 0, at
    page.mouse.move(*centre(page, "head.1.2"))
    lines = page.locator(".vv-tip.vv-on div")
    assert [one for one in lines.all_inner_texts() if one] == ["90 px", "Layer 1, head 2"]
    expect(page.locator("#drawn .point.vv-lit")).to_have_attribute("data-lit", "head.1.2")
    page.mouse.click(*centre(page, "head.1.2"))
    assert callbacks(page)["opened"] == ["explorer", {"layer": 1, "head": 2, "show": "head"}]
    expect(page.locator("#drawn .vv-h")).to_have_text("by <layer> & head")
    assert (
        page.locator("#drawn .vv-chart")
        .get_attribute("aria-label")
        .startswith("by <layer> & head. distance,")
    )
    assert not callbacks(page)["failed"]


def test_highlight_is_linked_between_point_and_row(page):
    page.locator("#row").hover()
    expect(page.locator("#drawn .point.vv-lit")).to_have_attribute("data-lit", "head.2.1")
    page.mouse.move(*centre(page, "head.2.1"))
    expect(page.locator("#row")).to_have_class("vv-lit")
    page.evaluate("() => drawn.draw(chart)")  # a redraw keeps the highlight
    expect(page.locator("#drawn .point.vv-lit")).to_have_attribute("data-lit", "head.2.1")


def test_arrow_keys_select_points_and_enter_opens_head(page):
    plot = page.locator("#drawn .vv-chart")
    plot.focus()
    for _ in range(3):
        plot.press("ArrowRight")
    assert callbacks(page)["said"] == "110 px, Layer 2, head 1"
    plot.press("Enter")
    assert callbacks(page)["opened"][1] == {"layer": 2, "head": 1, "show": "head"}
    plot.press("Escape")
    expect(page.locator(".vv-tip")).not_to_have_class("vv-tip vv-on")


def test_drag_zooms_and_double_click_resets(page):
    plot = page.locator("#drawn .vv-chart")
    box, before = plot.bounding_box(), centre(page, "head.2.1")
    (x, y), (right, low) = centre(page, "head.2.1"), centre(page, "head.2.2")
    page.mouse.move(x - 30, y - 15)
    page.mouse.down()
    page.mouse.move(right + 30, low + 15, steps=5)
    page.mouse.up()
    expect(plot).to_have_attribute("data-zoomed", "")
    assert centre(page, "head.2.2")[1] - centre(page, "head.2.1")[1] > 1.5 * (low - y)
    page.evaluate("() => drawn.draw(chart)")  # the next frame keeps the zoom
    page.wait_for_timeout(100)
    assert plot.get_attribute("data-zoomed") == ""
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(plot).not_to_have_attribute("data-zoomed", "")
    assert np.abs(np.subtract(centre(page, "head.2.1"), before)).max() < 0.5


def test_legend_hides_and_isolates_series(page):
    points, lines = page.locator("#drawn .point"), page.locator("#drawn .js-line")
    head = page.locator("#drawn button.vv-legend", has_text="one head")
    expect(page.locator("#drawn .vv-legends")).to_contain_text("uniform")
    head.click()
    expect(points).to_have_count(0)
    expect(head).to_have_attribute("aria-pressed", "false")
    page.wait_for_timeout(600)  # not a double click
    head.click()
    expect(points).to_have_count(VALUES.size)
    page.wait_for_timeout(600)
    head.dblclick()
    expect(lines).to_have_count(0)
    expect(points).to_have_count(VALUES.size)
    page.wait_for_timeout(600)
    head.dblclick()
    expect(lines).to_have_count(1)


def test_camera_frames_throttle_chart_drawing(page):
    drawings = page.evaluate(
        """async () => {
        const react = window.Plotly.react;
        let count = 0;
        window.Plotly.react = (...given) => (count++, react(...given));
        view.passes = true;
        const start = performance.now();
        for (let i = 0; performance.now() - start < 1000; i++) {
          drawn.draw(chart);
          await new Promise((done) => setTimeout(done, 20));
        }
        window.Plotly.react = react;
        return count;
    }"""
    )
    assert 1 <= drawings <= 4
