"""Settings that a weights file does not state: the form, the mark on every view and the saved config."""

import json
import re

import pytest
from playwright.sync_api import expect
from safetensors.torch import load_file, save_file

from tests.browser.conftest import (
    Server,
    brightness_changes,
    centre_brightness,
    copy_checkpoint,
    pick_checkpoint,
)
from tests.browser.held_requests import HeldRequests
from tests.engine.small_models import save_model, small_vit
from tests.shared import shared_file

NOT_ASSUMED = "^(?!.*assumed)"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    copy_checkpoint(folder / "vitviz-tiny")
    save_file(
        load_file(shared_file("weights/deit_tiny_patch16_224.safetensors")), folder / "mine.safetensors"
    )
    save_model(small_vit(embed_dim=96, num_heads=6, num_classes=10), folder / "cifar.safetensors")
    return folder


@pytest.fixture(scope="module")
def server(weights):
    with Server("--weights", str(weights), "--device", "cpu") as server:
        yield server


def wait_for_mark(page, wanted: str):
    """Wait until the mark on the Patches view matches."""
    read = "getComputedStyle(document.querySelector('.vv[data-view=patches]'), '::before').content"
    page.wait_for_function(f"(wanted) => new RegExp(wanted).test({read})", arg=wanted, timeout=60_000)


def test_assumed_settings_are_corrected_confirmed_and_saved(open_page, weights):
    page = open_page()
    form = page.locator(".vv-assumed")
    expect(form).to_be_hidden()
    wait_for_mark(page, NOT_ASSUMED)
    pick_checkpoint(page, "mine.safetensors")
    expect(form).to_contain_text("Not stated in the file")
    expect(form.locator("fieldset").first).to_contain_text(
        "%", timeout=60_000
    )  # each choice shows its prediction
    wait_for_mark(page, "assumed: .*Mean and deviation.*Crop")
    other = centre_brightness(form.locator("input:not(:checked)").first)
    assert brightness_changes(form.locator("input:checked").first, other), (
        "the checked option looks like the unchecked one"
    )
    form.get_by_label("0.5 ± 0.5").click()
    expect(page.locator("#vitviz-facts [data-checkpoint]")).to_have_attribute(
        "data-checkpoint", "mine.safetensors?mean=0.5,0.5,0.5&std=0.5,0.5,0.5", timeout=60_000
    )
    wait_for_mark(page, "assumed: (?!.*Mean and deviation).*Crop")
    form.get_by_role("button", name="Confirm these values").click()
    expect(form).to_contain_text("Settings given for this file", timeout=60_000)
    wait_for_mark(page, NOT_ASSUMED)
    form.get_by_role("button", name="Save next to the file").click()
    expect(page.locator("#vitviz-facts [data-checkpoint]")).to_have_attribute(
        "data-checkpoint", "mine.safetensors", timeout=60_000
    )
    expect(form).to_be_hidden(timeout=60_000)
    config = json.loads((weights / "mine.config.json").read_text())
    assert config["pretrained_cfg"]["mean"] == [0.5, 0.5, 0.5] and config["model_args"]["num_heads"] == 3


def test_two_quick_choices_are_both_applied(open_page):
    page = open_page()
    form, facts = page.locator(".vv-assumed"), page.locator("#vitviz-facts [data-checkpoint]")
    pick_checkpoint(page, "cifar.safetensors")
    choices = {
        name: form.locator("fieldset").filter(has_text=name).locator("input") for name in ("Heads", "Mean")
    }
    expect(choices["Heads"]).to_have_count(4, timeout=60_000)
    held = HeldRequests(page, "/queue/join")
    choices["Heads"].nth(1).click()
    held.wait()
    choices["Mean"].nth(2).click()
    held.release()
    expected = re.compile(r"^cifar\.safetensors\?heads=6&mean=[^&]+&std=[^&]+$")
    expect(facts).to_have_attribute("data-checkpoint", expected, timeout=60_000)


def test_heads_and_class_names_are_entered_for_a_bare_file(open_page, weights, tmp_path):
    page = open_page()
    form, facts = page.locator(".vv-assumed"), page.locator("#vitviz-facts [data-checkpoint]")
    pick_checkpoint(page, "cifar.safetensors")
    heads = form.locator("fieldset").filter(has_text="Heads")
    expect(heads.locator("label")).to_have_count(4, timeout=60_000)
    expect(heads.locator("label").nth(1)).to_contain_text("%", timeout=60_000)
    box = form.get_by_label("Names of the classes")
    box.fill("\n".join(f"thing {i}" for i in range(9)))
    expect(form).to_contain_text("9 of 10 names")
    element = box.element_handle()
    heads.locator("input").nth(1).click()  # `check` would look for the removed input
    expect(facts).to_have_attribute("data-checkpoint", "cifar.safetensors?heads=6", timeout=60_000)
    expect(box).to_have_value(re.compile("^thing 0\n"))  # the typed names are kept
    assert element.evaluate("(box) => box.isConnected"), "the text box was replaced"
    form.get_by_role("button", name="Save next to the file").click()
    expect(page.locator("#vitviz-notice")).to_contain_text("10 classes, but 9 names", timeout=60_000)
    assert not (weights / "cifar.config.json").exists()
    names = tmp_path / "names.txt"
    names.write_text("".join(f"thing {i}\n" for i in range(10)))
    form.get_by_label("File with one name per line").set_input_files(names)
    expect(form).to_contain_text("10 of 10 names")
    form.get_by_role("button", name="Save next to the file").click()
    expect(facts).to_have_attribute("data-checkpoint", "cifar.safetensors", timeout=60_000)
    expect(page.locator("#vitviz-facts")).to_contain_text("thing")
    config = json.loads((weights / "cifar.config.json").read_text())
    assert config["pretrained_cfg"]["label_names"][9] == "thing 9" and config["model_args"]["num_heads"] == 6
