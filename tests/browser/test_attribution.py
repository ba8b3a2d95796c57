"""The Attribution view: the sum balances, heads are ablated and restored, classes are compared."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import open_tab, ready

BALANCE = re.compile(r"^Contributions sum to (−?\d+\.\d{3}), the (logit|difference of logits)$")


def balance(page) -> float:
    text = page.locator("#vitviz-evidence .vv-balance").inner_text()
    assert BALANCE.match(text), text
    return float(BALANCE.match(text)[1].replace("−", "-"))


def test_sum_balances_before_and_after_head_ablation(open_page):
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    key = ready(page, "evidence")
    before = balance(page)
    page.goto(page.url.split("?")[0] + "?sample=coffee&tab=evidence&chosen=5.2")
    ready(page, "evidence")
    expect(page.locator("#vitviz-evidence .vv-picked")).to_contain_text("everything else")
    page.locator("#vitviz-evidence .vv-away").click()
    edits = page.locator("#vitviz-edits .vv-edits")
    expect(edits).to_contain_text("Layer 5, head 2")
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-evidence [data-ready]').dataset.ready.startsWith(key)",
        arg=key,
    )
    ready(page, "evidence")
    expect(page.locator("#vitviz-facts .vv-before").first).to_have_text("94.9 % → ")
    without = balance(page)
    assert abs(without - before) > 0.01, "the ablation has no effect"
    open_tab(page, "Rollout")  # other views apply the ablation too
    edited = ready(page, "rollout")
    page.wait_for_function("() => location.search.includes('without=heads')")
    page.locator("#vitviz-edits .vv-edit-all").click()
    expect(edits).to_be_hidden()
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-rollout [data-ready]').dataset.ready.startsWith(key)",
        arg=edited,
    )
    open_tab(page, "Attribution")
    ready(page, "evidence")
    assert balance(page) == before


# Centre of a cell on the page, and the number of dark pixels on its dashed edge.
CELL = """([row, col]) => {
  const canvas = [...document.querySelectorAll('#vitviz-evidence .vv-contributions canvas')]
    .find((one) => one.offsetWidth);
  const { x, y, width } = canvas.getBoundingClientRect();
  const context = canvas.getContext('2d');
  const { layers, heads } = [...vitviz.views].find((one) => one.name === 'evidence').value;
  const scale = canvas.width / width;
  const coloured = (px, py) => {
    const [red, green, blue, alpha] = context.getImageData(px * scale, py * scale, 1, 1).data;
    return alpha ? [red, green, blue] : null;
  };
  const left = 46, cell = (width - left - 4) / layers;
  let bottom = 8;
  while (coloured(left + cell / 2, bottom)) bottom += 1;
  const tall = (bottom - 8) / heads;
  const edge = Array.from({ length: Math.floor(cell) - 4 }, (_, i) =>
    coloured(left + col * cell + 2 + i, 8 + row * tall + 1.5).reduce((sum, one) => sum + one));
  const dark = edge.filter((sum) => sum < 330).length;
  return { x: x + left + (col + 0.5) * cell, y: y + 8 + (row + 0.5) * tall, dark, of: edge.length };
}"""


def test_clicked_head_is_ablated_and_restored(open_page):
    page = open_page("?sample=coffee&tab=evidence", 1280, 720, wait=False)
    key = ready(page, "evidence").split("/")[0]
    view, tip = page.locator("#vitviz-evidence"), page.locator(".vv-tip")
    map_ = view.locator(".vv-figure .vv-plot").bounding_box()
    assert map_["width"] * map_["height"] >= 0.35 * 1280 * 720
    expect(view.locator(".vv-changed")).to_be_empty()
    cell = page.evaluate(CELL, [1, 4])
    page.mouse.click(cell["x"], cell["y"])
    row = view.locator(".vv-change-row")
    expect(row).to_contain_text("Layer 5, head 2: +1.34")
    box = row.bounding_box()
    assert cell["y"] < box["y"] and box["y"] + box["height"] < 660, "the button is in view, below the grid"
    row.get_by_role("button", name="Ablate").click()
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-evidence [data-ready]').dataset.ready.startsWith(key)",
        arg=key,
    )
    changed = view.locator(".vv-changed")
    expect(changed).to_have_text("espresso: 94.9 % → 86.3 % (logit 9.70 → 8.51)")
    expect(page.locator("#vitviz-facts .vv-answers li").first).to_contain_text("94.9 % → 86.3 %")
    assert changed.bounding_box()["y"] + changed.bounding_box()["height"] < 660
    page.mouse.move(cell["x"], cell["y"] + 4)
    expect(tip).to_contain_text("Ablated")
    page.mouse.move(4, 4)
    row.get_by_role("button", name="Clear selection").click()  # its outline would hide the dashes
    page.wait_for_function(
        "() => !/chosen=5/.test(document.querySelector('[data-view=evidence]').dataset.ready)"
    )
    marked, other = page.evaluate(CELL, [1, 4]), page.evaluate(CELL, [2, 4])
    assert 0.3 * marked["of"] < marked["dark"] < 0.9 * marked["of"], "a dashed frame"
    assert other["dark"] == 0
    row.get_by_role("button", name="Restore").click()
    expect(changed).to_be_empty()
    expect(page.locator("#vitviz-edits .vv-edits")).to_be_hidden()
    whole = page.evaluate(CELL, [1, 4])
    assert whole["dark"] in (0, whole["of"]), "one colour"


def test_restoring_one_head_keeps_other_removed_parts(open_page):
    page = open_page("?sample=coffee&tab=evidence&without=heads%3D5.2_3.1&chosen=5.2", wait=False)
    ready(page, "evidence")
    page.locator("#vitviz-evidence .vv-change-row").get_by_role("button", name="Restore").click()
    edits = page.locator("#vitviz-edits .vv-edits")
    expect(edits).not_to_contain_text("Layer 5, head 2")
    expect(edits).to_contain_text("Layer 3, head 1")


def test_edits_of_one_visitor_do_not_affect_others(open_page):
    pages = [
        open_page(f"?sample=coffee&tab=evidence&without={text}", wait=False)
        for text in ("heads%3D5.2", "patches%3D104.105.106", "")
    ]
    logits = []
    for page in pages:
        ready(page, "evidence")
        logits.append(balance(page))
    assert len(set(logits)) == 3
    expect(pages[1].locator("#vitviz-edits .vv-edits")).to_contain_text("3 patches")
    expect(pages[2].locator("#vitviz-edits .vv-edits")).to_be_hidden()


def test_class_field_accepts_names_and_compares_two_classes(open_page):
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    ready(page, "evidence")
    before = balance(page)
    second_class = page.locator("#vitviz-evidence .vv-class").nth(1)
    unknown = page.locator("#vitviz-evidence .vv-unknown")
    place = page.locator("#vitviz-evidence .vv-heat").bounding_box()
    second_class.fill("wooden spon")
    second_class.press("Enter")
    expect(unknown).to_have_text("No class named wooden spon among 200. Closest names:wooden spoon")
    second_class.fill("lynx")
    second_class.press("Enter")
    expect(unknown).to_contain_text("No class named lynx among 200. Most likely here:espresso")
    assert page.locator("#vitviz-evidence .vv-heat").bounding_box() == place
    second_class.fill("Wooden Spoon")
    second_class.press("Enter")
    page.wait_for_function(
        "() => /target=\\d+-\\d+/.test(document.querySelector('#vitviz-evidence [data-ready]').dataset.ready)"
    )
    assert 0 < balance(page) < before
    expect(unknown).to_be_hidden()
    for field in page.locator("#vitviz-evidence .vv-class").all():
        assert field.evaluate("(one) => one.scrollWidth <= one.clientWidth"), "a class name is cut off"
    view = page.locator("#vitviz-evidence")
    expect(view.locator(".vv-balance")).to_contain_text("difference of logits")
    expect(view).to_contain_text("Direct attribution, from the start to the difference of logits")
    expect(view).to_contain_text("Contribution to the difference of logits")
    expect(view).to_contain_text(re.compile(r"Contribution of every head, colour scale ±\d"))
    parts = view.locator(".vv-lines").inner_text()
    assert re.match(r"= −?\d+\.\d\d patches [+−] \d+\.\d\d the class token [+−] \d", parts), parts
    numbers = [
        float(one)
        for one in re.findall(r"[+-]?\d+\.\d\d", re.sub(r"([+−]) ", r"\1", parts).replace("−", "-"))
    ]
    assert abs(sum(numbers) - balance(page)) < 0.03, parts


def test_redraw_keeps_typed_class_name(open_page):
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    ready(page, "evidence")
    field = page.locator("#vitviz-evidence .vv-class").first
    field.fill("cand")
    page.evaluate("[...vitviz.views].find((one) => one.name === 'evidence').draw()")
    expect(field).to_have_value("cand")
    field.press("Escape")
    expect(field).to_have_value("espresso")
    field.fill("candle")
    field.press("Enter")
    expect(page.locator("#vitviz-evidence .vv-balance")).not_to_contain_text("9.704 of")
    expect(field).to_have_value("candle")


def test_path_graph_tooltips_and_edge_ablation_of_a_head(open_page):
    page = open_page("?sample=coffee&tab=evidence&show=paths&paths=9", wait=False)
    ready(page, "evidence")
    view = page.locator("#vitviz-evidence")
    expect(view).to_contain_text("The 9 largest paths to the output")
    expect(view).to_contain_text("They are proven to be the largest: no other path exceeds")
    plot = view.locator(".vv-below .vv-chart:visible")
    plot.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".vv-tip")).to_contain_text(
        re.compile(r"^[+−]\d\.\d\d.*from .* to Layer \d, head \d")
    )
    head = view.locator(".vv-below circle.vv-dotted:visible").last
    box = head.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("() => /show=writers/.test(location.search) && /trail=/.test(location.search)")
    expect(view).to_contain_text("upstream sources")
    view.get_by_role("button", name="Check by edge ablation").click()
    view.get_by_role("button", name="Begin").locator("visible=true").click()
    panel = view.locator(".vv-alone:visible")
    expect(panel).to_have_attribute("data-done", "all", timeout=60_000)
    expect(panel).to_contain_text(
        re.compile(r"Correlation of contribution and drop: −?\d\.\d\d\. All \d+ edges")
    )
    panel.locator(".vv-chart").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".vv-tip")).to_contain_text(re.compile("drop when ablated .*direct contribution"))
    page.keyboard.press("Enter")
    page.wait_for_function("() => /writer=/.test(location.search)")
    expect(view.locator(".vv-chart .vv-chosen")).to_have_count(1)
    panel.get_by_label("Edge into").select_option("query")  # another setting clears the results
    expect(panel).to_have_attribute("data-done", "0")
