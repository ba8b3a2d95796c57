"""The Faithfulness view: curves method by method, ranking, stop, image sets and downloads."""

import csv
import io
import re

import numpy as np
from PIL import Image
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import export, open_tab, ready, upload_image_set
from tests.browser.held_requests import HeldRequests
from vitviz.views.trial import ORDER

MANY = 120  # images, so that a stop leaves some
LINES = """(all) => all.map((one) => {
  const rgb = (colour) => Object.assign(document.createElement('i').style, { color: colour }).color;
  const style = getComputedStyle(one.querySelector('.js-line'));
  const own = rgb(one.style.getPropertyValue('--vv-own'));
  return [one.dataset.lit, own, style.strokeDasharray, style.stroke];
})"""
FINISHED = "#vitviz-trial [data-tried]:not([data-tried=''])"


def hidden_width(view) -> int:
    """Return the width of the table that is out of view, in px."""
    return view.locator(".vv-wide-table:visible").last.evaluate("(one) => one.scrollWidth - one.clientWidth")


def test_curves_of_another_class_are_hidden_until_its_first_result(open_page):
    page = open_page("?sample=coffee&tab=trial", wait=False)
    curves = page.locator("#vitviz-trial .vv-curves")
    expect(curves).to_be_visible()
    held = HeldRequests(page, r"/trial/tried\?")
    page.locator("#vitviz-trial .vv-asked-class").select_option(index=1)
    expect(curves).to_be_hidden()
    expect(page.locator("#vitviz-trial")).to_contain_text("Curves appear here as methods are tested")
    held.release()
    expect(curves).to_be_visible()


def test_evaluation_runs_automatically_ranks_and_exports(open_page):
    page = open_page("?sample=coffee")
    held = HeldRequests(page, r"/trial/tried\?.*method=centre(&|$)")
    open_tab(page, "Faithfulness")
    ready(page, "trial")
    trying = page.locator("#vitviz-trial .vv-trying")
    expect(trying).to_have_text("1 of 15: Blob in the centre", timeout=60_000)
    assert page.locator(FINISHED).count() == 0
    later = HeldRequests(page, r"/trial/tried\?.*method=leave_one_out(&|$)")
    held.release()
    said = page.locator("#vitviz-trial .vv-verdict")
    counted = re.compile("After 14 of 15 maps, controls included: .+ random maps")
    expect(said).to_contain_text(counted, timeout=300_000)
    tested = page.locator("#vitviz-trial .vv-ranking tbody tr")
    order = tested.evaluate_all("(rows) => rows.map((row) => row.dataset.lit)")
    assert order == [name for name in ORDER if name in order] and len(order) == 14, (
        "rows move during the test"
    )
    assert all(re.search(r"\d %?$|\d$", text) for text in tested.locator("td:nth-child(4)").all_inner_texts())
    assert page.locator(FINISHED).count() == 0
    later.release()
    page.locator(FINISHED).wait_for(state="attached", timeout=300_000)
    expect(page.locator("#vitviz-trial .vv-verdict")).to_contain_text("ranks first")
    rows = page.locator("#vitviz-trial .vv-ranking tbody tr")
    assert rows.count() == 15
    best = rows.first.get_attribute("data-lit")
    view = page.locator("#vitviz-trial")
    assert hidden_width(view) <= 0, "a column of the table is out of view"
    below, foot = (
        view.locator(one).bounding_box() for one in (".vv-below", ".vv-ranking tbody tr >> nth=14")
    )
    assert foot["y"] + foot["height"] <= below["y"] + below["height"], (
        "the last row of the table is out of view"
    )
    lines = view.locator(".vv-curves .trace[data-lit]").evaluate_all(LINES)
    styles = {(own, dash) for _, own, dash, _ in lines}
    assert len(lines) == 30 and len(styles) == 15, "two methods look alike when highlighted"
    ranked = [rows.nth(place).get_attribute("data-lit") for place in range(15)]
    drawn = {name for name, own, _, stroke in lines if own == stroke}
    assert drawn == set(ranked[:3]) and len({stroke for _, _, _, stroke in lines}) == 4, (
        "not exactly the three best methods are coloured"
    )
    named = view.locator(".vv-end")
    assert named.count() >= 26
    assert view.locator(".vv-curves").evaluate(
        "(plot) => [...plot.querySelectorAll('.vv-end')].every((one) =>"
        " one.getBoundingClientRect().right <= one.ownerSVGElement.getBoundingClientRect().right)"
    ), "a name is cut off"
    rows.nth(3).hover()
    other = rows.nth(3).get_attribute("data-lit")
    line = view.locator(f".trace[data-lit={other}]").first
    expect(line).to_have_class(re.compile("vv-lit"))
    ((_, own, _, stroke),) = line.evaluate_all(LINES)
    assert own == stroke, "a highlighted line lacks its own colour"
    expect(view.locator(".vv-tried-map")).to_contain_text(rows.nth(3).locator("button").inner_text())
    named.first.hover()
    expect(view.locator("tr.vv-lit")).to_have_attribute("data-lit", named.first.get_attribute("data-lit"))
    fold = page.locator(".vv-set-fold")
    fold.click()
    page.wait_for_timeout(500)
    assert view.locator(".vv-curves").bounding_box()["height"] >= 220
    fold.click()
    rows.first.locator("button").click()
    expect(page.locator(f"#vitviz-trial .trace[data-lit={best}] .js-line").first).to_have_attribute(
        "style", re.compile(r"stroke-width: 3\.2")
    )
    plot = page.locator("#vitviz-trial .vv-curves .vv-chart").first
    plot.focus()
    plot.press("ArrowRight")
    plot.press("ArrowRight")
    expect(page.locator(".vv-tip.vv-on")).to_contain_text("10 % removed, most relevant first")
    for shown, what in (("maps", ".vv-trial-maps button"), ("agreement", "canvas")):
        page.locator(f"#vitviz-trial [data-name=show] input[value={shown}]").check(force=True)
        expect(page.locator(f"#vitviz-trial .vv-below {what}").locator("visible=true").first).to_be_visible()
    with page.expect_download(timeout=60_000) as taken:
        export(page, "trial", ".vv-take")
    table = list(csv.DictReader(io.StringIO(taken.value.path().read_text())))
    assert table[0]["method"] == best and len(table) == 15
    with page.expect_download(timeout=60_000) as taken:
        export(page, "trial", ".vv-npz")
    assert np.load(taken.value.path())["curves"].shape == (15, 2, 3, 11)
    page.set_viewport_size({"width": 1280, "height": 720})
    for asked in ("", "&lang=zh-CN", "&lang=ko", "&present=1", "&lang=ko&present=1"):
        page.goto(re.sub(r"\?.*", "", page.url) + f"?tab=trial&sample=coffee{asked}")
        page.locator(FINISHED).wait_for(state="attached", timeout=300_000)
        page.wait_for_timeout(500)
        below = view.locator(".vv-below").bounding_box()
        seen = [".vv-ranking tbody tr >> nth=14", *[".vv-tried-map canvas"] * ("present" in asked)]
        for one in (view.locator(name).bounding_box() for name in seen):
            assert one["y"] + one["height"] <= below["y"] + below["height"], asked
        assert hidden_width(view) <= 0, asked


def test_map_of_highlighted_row_survives_a_redraw(open_page):
    page = open_page("?sample=rocket&size=64")
    held = HeldRequests(page, r"/trial/agreement")
    open_tab(page, "Faithfulness")
    page.locator(FINISHED).wait_for(state="attached", timeout=300_000)
    view = page.locator("#vitviz-trial")
    row = view.locator(".vv-ranking tbody tr").nth(3)
    row.dispatch_event("pointerenter")  # without a mouse, whose position would be evaluated again
    name = row.locator("button").inner_text()
    expect(view.locator(".vv-tried-map")).to_contain_text(name)
    before = row.element_handle()
    held.release()
    page.wait_for_function("(one) => !one.isConnected", arg=before)
    expect(view.locator("tr.vv-lit")).to_contain_text(name)
    assert name in view.locator(".vv-tried-map").inner_text()


def test_evaluation_stops_and_continues(open_page):
    page = open_page("?sample=rocket&size=64&lang=ko", width=390, height=844)
    held = HeldRequests(page, r"/trial/tried\?.*method=gradient_rollout(&|$)")
    open_tab(page, "충실도")
    ready(page, "trial")
    go = page.locator("#vitviz-trial .vv-go")
    expect(go).to_have_text("멈추기")
    page.locator("#vitviz-trial .trace[data-lit=centre]").first.wait_for(state="attached", timeout=60_000)
    go.click()
    expect(go).to_have_text("계속")
    held.release()
    known = page.locator("#vitviz-trial .vv-ranking tbody tr").count()
    assert 2 <= known < 15 and page.locator(FINISHED).count() == 0
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, "the page overflows the phone"
    go.click()
    page.locator(FINISHED).wait_for(state="attached", timeout=300_000)


def test_image_set_is_ranked_with_standard_errors(open_page, tmp_path):
    page, files = open_page("?tab=trial&sample=coffee&size=64", wait=False), []
    # do not wait for the evaluation of the single image
    held = HeldRequests(page, r"/trial/tried\?.*method=centre(&|$)")
    ready(page, "trial")
    for name in ("chelsea", "rocket"):
        vitviz.sample_image(name).save(path := tmp_path / f"{name}.png")
        files.append(path)
    upload_image_set(page, files)
    page.locator(".vv-set-way select").select_option("black")
    page.locator(".vv-set .vv-go").click()
    view = page.locator("#vitviz-trial")
    expect(view.locator(".vv-trying")).to_have_text("Based on a set of 2 images.", timeout=300_000)
    expect(view.locator(".vv-verdict")).to_contain_text("Over 2 images")
    rows = view.locator(".vv-ranking tbody tr:visible")
    expect(rows).to_have_count(13)
    assert rows.first.locator("td").first.inner_text() == "1"
    assert re.search(r"\d ± \d", rows.first.inner_text())
    expect(view.locator(".vv-standing .point")).to_have_count(13)
    assert hidden_width(view) <= 0, "a column of the table is out of view"
    expect(view.locator("[data-name=patches_as] input[value=black]")).to_be_checked()
    expect(view.locator(".vv-curves")).to_be_hidden()
    before = rows.first.inner_text()
    view.locator("[data-name=score] input[value=logit]").check(force=True)
    expect(view.locator(".vv-ranking th:visible").nth(2)).to_have_text("Most first ↓")
    assert rows.first.inner_text() != before
    with page.expect_download(timeout=60_000) as taken:
        export(page, "trial", ".vv-take")
    table = list(csv.DictReader(io.StringIO(taken.value.path().read_text())))
    assert len(table) == 13 and {row["pictures"] for row in table} == {"2"}
    assert {row["patches_as"] for row in table} == {"black"}
    page.locator(".vv-set-single").click()
    expect(view.locator(".vv-curves")).to_be_visible()
    expect(view.locator(".vv-standing")).to_be_hidden()
    assert len(held), "the single image was not evaluated meanwhile"


def test_late_prediction_leaves_a_running_evaluation_its_stop_button(open_page, tmp_path):
    page, files, joins = open_page("?tab=trial&sample=coffee&size=64", wait=False), [], []
    HeldRequests(page, r"/trial/tried\?.*method=centre(&|$)")
    ready(page, "trial")
    for number in range(3):
        Image.new("RGB", (60, 80), (20 * number, 90, 160)).save(path := tmp_path / f"{number}.png")
        files.append(path)
    page.locator("#vitviz-set-files input[type=file]").set_input_files(files)
    fold, go = page.locator(".vv-set-fold"), page.locator(".vv-set .vv-go")
    expect(fold).to_contain_text("3 uploaded")
    page.route(re.compile("/queue/join"), lambda route: joins.append(route))
    fold.click()  # asks for the predictions
    while not joins:
        page.wait_for_timeout(20)
    go.click()
    expect(go).to_have_text("Stop")
    joins[0].continue_()
    expect(page.locator(".vv-set-pictures li").last).to_contain_text("%")  # the last prediction
    assert go.inner_text() == "Stop", "the button starts a second evaluation"
    page.unroute(re.compile("/queue/join"))
    while len(joins) < 2:
        page.wait_for_timeout(20)
    joins[1].continue_()
    told = page.locator("#vitviz-trial .vv-trying")
    expect(told).to_have_text("Based on a set of 3 images.", timeout=300_000)
    expect(go).to_have_text("Average", timeout=60_000)


def test_stopped_set_evaluation_keeps_finished_images(open_page, tmp_path):
    page, files = open_page("?tab=trial&sample=coffee&size=64", wait=False), []
    HeldRequests(page, r"/trial/tried\?.*method=centre(&|$)")
    ready(page, "trial")
    for number in range(MANY):
        pixels = np.random.default_rng(number).integers(0, 255, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path := tmp_path / f"{number}.png")
        files.append(path)
    view = page.locator("#vitviz-trial")
    upload_image_set(page, files)
    page.locator(".vv-set .vv-go").click()
    stop = page.locator(".vv-set .vv-go")
    some = re.compile(r"Based on a set of \d+ images\.")
    expect(view.locator(".vv-trying")).to_have_text(some, timeout=300_000)
    stop.click()
    expect(stop).to_have_text("Average", timeout=300_000)  # after the current image
    page.wait_for_timeout(3000)  # pending responses have arrived
    status = view.locator(".vv-trying").inner_text()
    count = int(re.search(r"\d+", status)[0])
    assert 2 <= count < MANY, "the evaluation did not stop early"
    expect(view.locator(".vv-ranking tbody tr:visible")).to_have_count(13)
    with page.expect_download(timeout=60_000) as taken:
        export(page, "trial", ".vv-take")
    table = list(csv.DictReader(io.StringIO(taken.value.path().read_text())))
    assert {row["pictures"] for row in table} == {str(count)}, "figure and table use different images"
    page.wait_for_timeout(3000)
    assert view.locator(".vv-trying").inner_text() == status, "the evaluation continued after the stop"
