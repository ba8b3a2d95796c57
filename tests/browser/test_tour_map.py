"""The map of the tour: the model as a block diagram of each checkpoint, with the current step marked."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, copy_checkpoint, pick_checkpoint, ready
from tests.browser.helpers import SIZES, wait_for_step
from tests.views.helpers import NAMES as STEPS

MAP = "#vitviz-tour .vv-map"
TINY = {"img_size": 112, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 2}
MODELS = {  # name -> architecture, options, learned tokens in the map, text of the readout
    "distilled": ("deit_tiny_distilled_patch16_224", {}, ["cls", "dist"], "y: class, distillation"),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 4}, ["cls", "4 reg"], "y: class token"),
    "averaged": (
        "vit_tiny_patch16_224",
        {"class_token": False, "global_pool": "avg"},
        [],
        "y: mean of the patches",
    ),
}

# Blocks outside the window or their column, overlapping blocks, and blocks with truncated text.
OUTSIDE = """() => {
  const map = document.querySelector('#vitviz-tour .vv-map');
  const column = map.closest('.vv-controls').getBoundingClientRect();
  const blocks = [...map.querySelectorAll('.vv-block')];
  const low = Math.min(column.bottom, innerHeight) + 1;
  const told = [];
  for (const block of blocks) {
    const box = block.getBoundingClientRect();
    const free = box.width && box.top >= column.top - 1 && box.bottom <= low && box.left >= column.left - 1;
    if (!free || box.right > column.right + 1) told.push(`outside: ${block.textContent}`);
    if (block.scrollWidth > block.clientWidth + 1) told.push(`cut: ${block.textContent}`);
    for (const other of blocks) {
      const there = other.getBoundingClientRect();
      const apart = box.bottom <= there.top + 1 || there.bottom <= box.top + 1;
      const aside = box.right <= there.left + 1 || there.right <= box.left + 1;
      if (other !== block && !apart && !aside) told.push(`${block.textContent} on ${other.textContent}`);
    }
  }
  return told;
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start an app with small models whose tokens or readout differ from the paper."""
    import timm

    home = tmp_path_factory.mktemp("weights")
    copy_checkpoint(home / "vitviz-tiny")
    for name, (architecture, changes, _, _) in MODELS.items():
        options = {**TINY, "num_classes": 10, **changes}
        model = timm.create_model(architecture, pretrained=False, **options)
        timm.models.save_for_hf(model, home / name, model_args=options)
    with Server("--weights", str(home)) as running:
        yield running


def open_tour(open_page, path: str = "", *size: int):
    page = open_page(f"?tab=tour{path}", *size, wait=False)
    ready(page, "tour")
    return page


def block(page, step: str):
    return page.locator(f"{MAP} [data-to={step}]").last


def current_steps(page) -> set[str]:
    return {one.get_attribute("data-to") for one in page.locator(f"{MAP} [aria-current=step]").all()}


def test_map_block_opens_its_step_and_is_marked(open_page):
    page = open_tour(open_page)
    wait_for_step(page, "picture")
    for place, step in reversed(list(enumerate(STEPS, start=1))):
        block(page, step).click()
        wait_for_step(page, step)
        assert current_steps(page) == {step}
        title = page.locator("#vitviz-tour .vv-tour-title").inner_text()
        name = block(page, step).get_attribute("aria-label")
        assert name.startswith(f"Step {place}: {title}. ") and len(name) > len(f"Step {place}: {title}. ")
    page.locator(f"{MAP} [data-to=layers]").first.click()  # the MLP block belongs to the same step
    wait_for_step(page, "layers")


def test_tab_key_visits_map_blocks_in_step_order(open_page):
    page = open_tour(open_page)
    block(page, "picture").focus()
    reached = []
    for _ in STEPS:
        reached.append(page.evaluate("document.activeElement.dataset.to"))
        page.keyboard.press("Tab")
    assert list(dict.fromkeys(reached)) == STEPS[: len(set(reached))] and len(set(reached)) >= 11
    block(page, "embedding").focus()
    page.keyboard.press("Enter")
    wait_for_step(page, "embedding")
    page.keyboard.press("ArrowRight")
    wait_for_step(page, "token")


@pytest.mark.parametrize("language", ["en", "zh-CN", "ko"])
def test_map_is_visible_beside_the_step(open_page, language):
    page = open_tour(open_page, f"&step=2&lang={language}", *SIZES[0])
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(200)
        at = f"{width} x {height}"
        assert page.evaluate(OUTSIDE) == [], at
        step, plan = page.locator("#vitviz-tour .vv-figure").bounding_box(), page.locator(MAP).bounding_box()
        assert plan["x"] >= step["x"] + step["width"], at  # beside it
        plot = page.locator("#vitviz-tour .vv-tour-body .vv-plot").first.bounding_box()
        assert plot["y"] < step["y"] + 0.6 * step["height"], at
        assert page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 0, at


def test_map_is_folded_above_the_step_on_phone(open_page):
    page = open_tour(open_page, "", 390, 844)
    expect(page.locator(MAP)).to_be_hidden()
    expect(page.locator("#vitviz-tour .vv-dot").first).to_be_visible()
    page.locator("#vitviz-tour .vv-map-fold summary").click()
    expect(page.locator(MAP)).to_be_visible()
    boxes = [one.bounding_box() for one in page.locator(f"{MAP} .vv-block").all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["height"] >= 24 for box in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    block(page, "positions").click()
    wait_for_step(page, "positions")
    expect(page.locator(MAP)).to_be_visible()  # the map stays open


def test_two_checkpoints_have_separate_folded_maps(open_page):
    page = open_tour(open_page, "&second=distilled")
    page.locator("#vitviz-second-tour [data-ready]").wait_for()
    sides = [page.locator(f"#vitviz-{side}tour") for side in ("", "second-")]
    tops = [side.locator(".vv-tour-title").bounding_box()["y"] for side in sides]
    assert tops[0] == tops[1]
    for side, tokens in zip(sides, (["cls"], ["cls", "dist"]), strict=True):
        expect(side.locator(".vv-map")).to_be_hidden()
        side.locator(".vv-map-fold summary").click()
        assert side.locator(".vv-map .vv-learned").all_inner_texts() == tokens


def test_map_shows_tokens_and_readout_of_the_checkpoint(open_page):
    page = open_tour(open_page)
    for name, (_, _, tokens, read) in MODELS.items():
        pick_checkpoint(page, name)
        expect(block(page, "readout")).to_contain_text(read)
        shown = page.locator(f"{MAP} .vv-learned").all_inner_texts()
        assert shown == tokens, name
        assert page.evaluate(OUTSIDE) == [], name
    expect(block(page, "token")).to_have_class("vv-block vv-without")
