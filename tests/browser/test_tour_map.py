"""The tour's map: figure 1 of the paper as each checkpoint has it, lit where the visitor is."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Server, copy_checkpoint, pick_checkpoint, ready
from tests.browser.helpers import SIZES, wait_for_step
from tests.views.helpers import NAMES as STEPS

MAP = "#vitviz-tour .vv-map"
TINY = {"img_size": 112, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 2}
MODELS = {  # name -> architecture, what differs, the tokens in the map, what is read
    "distilled": ("deit_tiny_distilled_patch16_224", {}, ["cls", "dist"], "y: class, distillation"),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 4}, ["cls", "4 reg"], "y: class token"),
    "averaged": (
        "vit_tiny_patch16_224",
        {"class_token": False, "global_pool": "avg"},
        [],
        "y: mean of the patches",
    ),
}

# Blocks that are not inside of the window and of their column, lie on another one, or cut their text.
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
    """With small models whose sequence or readout is not the paper's."""
    import timm

    home = tmp_path_factory.mktemp("weights")
    copy_checkpoint(home / "vitviz-tiny")
    for name, (architecture, changes, _, _) in MODELS.items():
        options = {**TINY, "num_classes": 10, **changes}
        model = timm.create_model(architecture, pretrained=False, **options)
        timm.models.save_for_hf(model, home / name, model_args=options)
    with Server("--weights", str(home)) as running:
        yield running


def at_tour(open_page, path: str = "", *size: int):
    page = open_page(f"?tab=tour{path}", *size, wait=False)
    ready(page, "tour")
    return page


def block(page, step: str):
    return page.locator(f"{MAP} [data-to={step}]").last


def lit(page) -> set[str]:
    return {one.get_attribute("data-to") for one in page.locator(f"{MAP} [aria-current=step]").all()}


def test_every_block_leads_to_its_step_and_is_lit_there(open_page):
    page = at_tour(open_page)
    wait_for_step(page, "picture")
    for place, step in reversed(list(enumerate(STEPS, start=1))):
        block(page, step).click()
        wait_for_step(page, step)
        assert lit(page) == {step}
        title = page.locator("#vitviz-tour .vv-tour-title").inner_text()
        name = block(page, step).get_attribute("aria-label")
        assert name.startswith(f"Step {place}: {title}. ") and len(name) > len(f"Step {place}: {title}. ")
    page.locator(f"{MAP} [data-to=layers]").first.click()  # the MLP, which the same step explains
    wait_for_step(page, "layers")


def test_the_keyboard_reaches_the_blocks_in_the_order_of_the_steps(open_page):
    page = at_tour(open_page)
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
def test_the_map_is_in_view_whole_and_takes_nothing_from_the_step(open_page, language):
    page = at_tour(open_page, f"&step=2&lang={language}", *SIZES[0])
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


def test_on_a_phone_it_is_folded_over_the_step(open_page):
    page = at_tour(open_page, "", 390, 844)
    expect(page.locator(MAP)).to_be_hidden()
    expect(page.locator("#vitviz-tour .vv-dot").first).to_be_visible()
    page.locator("#vitviz-tour .vv-map-fold summary").click()
    expect(page.locator(MAP)).to_be_visible()
    boxes = [one.bounding_box() for one in page.locator(f"{MAP} .vv-block").all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["height"] >= 24 for box in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    block(page, "positions").click()
    wait_for_step(page, "positions")
    expect(page.locator(MAP)).to_be_visible()  # it stays open


def test_each_of_two_checkpoints_has_its_own_folded_over_its_step(open_page):
    page = at_tour(open_page, "&second=distilled")
    page.locator("#vitviz-second-tour [data-ready]").wait_for()
    sides = [page.locator(f"#vitviz-{side}tour") for side in ("", "second-")]
    tops = [side.locator(".vv-tour-title").bounding_box()["y"] for side in sides]
    assert tops[0] == tops[1]
    for side, tokens in zip(sides, (["cls"], ["cls", "dist"]), strict=True):
        expect(side.locator(".vv-map")).to_be_hidden()
        side.locator(".vv-map-fold summary").click()
        assert side.locator(".vv-map .vv-learned").all_inner_texts() == tokens


def test_it_draws_what_this_checkpoint_has(open_page):
    page = at_tour(open_page)
    for name, (_, _, tokens, read) in MODELS.items():
        pick_checkpoint(page, name)
        expect(block(page, "readout")).to_contain_text(read, timeout=20_000)
        shown = page.locator(f"{MAP} .vv-learned").all_inner_texts()
        assert shown == tokens, name
        assert page.evaluate(OUTSIDE) == [], name
    expect(block(page, "token")).to_have_class("vv-block vv-without")
