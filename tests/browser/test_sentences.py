"""Sentences as classes: input, attribution, maps, links and error messages."""

import re
from urllib.parse import quote

import pytest
import torch
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import Server, export, ready
from tests.engine.contrastive import write_towers

CAT, DOG, ODD = "a photo of a cat", "a dog", "50 % tea | قطة & 🐈"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_towers(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def server(weights):
    with Server("--weights", str(weights), "--device", "cpu") as server:
        yield server


def predictions(page) -> dict[str, str]:
    """Return the sentences of the prediction with their probabilities."""
    rows = page.locator("#vitviz-facts .vv-answers li").all_inner_texts()
    return dict(re.split(r"\n+", row.strip())[:2] for row in rows)


def test_sentences_are_classified_attributed_and_linked(open_page, weights):
    page = open_page("?checkpoint=my-clip&sample=chelsea&tab=evidence", 1280, 720, wait=False)
    field = page.get_by_label("Sentences as classes, one per line")
    button = page.get_by_role("button", name="Classify", exact=True)
    expect(button).to_be_disabled()
    page.locator("#vitviz-stage").scroll_into_view_if_needed()
    field.fill(f"{CAT}\n\n  {DOG}\n{ODD}\n{DOG}")
    button.click()
    ready(page, "evidence")
    expect(field).to_have_value(f"{CAT}\n{DOG}\n{ODD}")
    expect(button).to_be_disabled()
    inspector = vitviz.load("my-clip", folder=weights, device="cpu")
    inspector = inspector.with_classes(vitviz.text(inspector, [CAT, DOG, ODD]))
    top = inspector.trace(vitviz.sample_image("chelsea")).top(3)
    expected = {label: f"{100 * share:.1f} %" for label, share in top}
    assert predictions(page) == expected
    why, rather = page.locator("#vitviz-evidence .vv-class").all()
    expect(why).to_have_value(top[0][0])  # the Attribution view uses the sentences
    rather.fill(DOG if top[0][0] != DOG else CAT)
    rather.press("Enter")
    expect(page.locator("#vitviz-evidence .vv-balance")).to_contain_text("difference of logits")
    export(page, "evidence", ".vv-print")
    caption = page.get_by_role("dialog").get_by_role("textbox", name="Caption", exact=True)
    expect(caption).to_have_value(re.compile(rf"my-clip\?text={CAT}\|{DOG}\|"), timeout=60_000)
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.wait_for_url(re.compile(r"text%3D.*target="))
    other = open_page(page.url.removeprefix(page.url.split("?")[0]), wait=False)
    ready(other, "evidence")
    assert predictions(other) == expected
    expect(other.get_by_label("Sentences as classes, one per line")).to_have_value(f"{CAT}\n{DOG}\n{ODD}")
    expect(other.locator("#vitviz-evidence .vv-balance")).to_contain_text("difference of logits")
    check_sentence_map(other, inspector)


def check_sentence_map(page, asked):
    """Check the likeliest sentence of each patch in legend, map and tooltip at two thresholds."""
    scores = vitviz.patch_scores(asked, vitviz.sample_image("chelsea")).flatten(1).T.tolist()
    cosines = [[(one - asked.classes.bias) / asked.classes.scale for one in patch] for patch in scores]
    page.locator("select[aria-label='Panel']:visible").select_option("sentences")
    entries = page.locator("#vitviz-evidence .vv-likeliest li")
    expect(entries).to_have_count(4)
    assert entries.locator("span:first-of-type").all_inner_texts()[:3] == [CAT, DOG, ODD]
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    for least in (-1.0, round(sorted(map(max, cosines))[8], 2)):
        page.get_by_label("Minimum cosine").fill(str(least))
        best = [one.index(max(one)) if max(one) >= least else 3 for one in cosines]
        said = [f"{100 * best.count(place) / 16:.4g}"[:4] for place in range(4)]
        for place, share in enumerate(said):
            expect(entries.nth(place).locator("span").last).to_have_text(re.compile(rf"^{share[:3]}"))
        drawn = page.locator("#vitviz-evidence .vv-heat").first.evaluate(
            "one => [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]"
        )
        colours = ["#e69f00", "#56b4e9", "#009e73"]
        assert [drawn[4 * cell + 3] for cell in range(16)] == [255 * (one < 3) for one in best]
        for cell, place in enumerate(best):
            red = bytes(drawn[4 * cell : 4 * cell + 3]).hex()
            assert place == 3 or f"#{red}" == colours[place]
    page.locator("#vitviz-evidence .vv-heat").first.hover(position={"x": 9, "y": 9})  # within a patch
    expect(page.locator(".vv-tip")).to_contain_text((CAT, DOG, ODD)[cosines[0].index(max(cosines[0]))])
    assert not [one for one in requests if "/evidence/" in one]


def test_siglip_margin_is_the_difference_of_logits(open_page, weights):
    name = "my-siglip?text=the cat|a dog"
    trace = vitviz.load(name, folder=weights, device="cpu").trace(vitviz.sample_image("chelsea"))
    scale, bias = trace.classes.scale, trace.classes.bias
    page = open_page(f"?checkpoint={quote(name)}&sample=chelsea&tab=evidence", wait=False)
    ready(page, "evidence")
    expect(page.locator("#vitviz-evidence .vv-class").first).not_to_have_value("")
    balance, one = page.locator("#vitviz-evidence .vv-lines"), trace.logits.max().item()
    sign = "−" if bias < 0 else "+"
    expected = f"= {scale:.3g} × cosine {(one - bias) / scale:.4f} {sign} {abs(bias):.2f}".replace("-", "−")
    expect(balance).to_have_text(re.compile(f"^{re.escape(expected)} = "))
    for number, sentence in enumerate(("the cat", "a dog")):
        field = page.locator("#vitviz-evidence .vv-class").nth(number)
        field.fill(sentence)
        field.press("Enter")
    margin = f"{trace.logits[0] - trace.logits[1]:.2f}".replace("-", "−")
    expect(page.locator("#vitviz-facts .vv-margin")).to_contain_text(f"the cat rather than a dog: {margin}")
    expect(page.locator("#vitviz-facts")).to_contain_text("need not sum to 1")
    apart = f"{(trace.logits[0] - trace.logits[1]) / scale:.4f}".replace("-", "−")
    expect(balance).to_have_text(re.compile(f" × difference of cosines {apart} = "))


def test_sentence_equal_to_a_page_term_is_not_translated(open_page):
    page = open_page(
        f"?checkpoint={quote('my-clip?text=Tokens|a dog')}&sample=chelsea&tab=evidence&lang=ko", wait=False
    )
    ready(page, "evidence")
    assert set(predictions(page)) == {"Tokens", "a dog"}
    names = page.locator("#vitviz-evidence .vv-class").first
    names.fill("Tokens")
    names.press("Enter")
    expect(names).to_have_value("Tokens")
    assert "예측" in page.locator("#vitviz-facts").inner_text()  # the page itself is translated


def test_invalid_sentences_are_rejected_and_vectors_replace_them(open_page, tmp_path):
    page = open_page("?checkpoint=my-clip%3Ftext%3Da+cat%7Ca+dog&sample=chelsea")
    before = predictions(page)
    field = page.get_by_label("Sentences as classes, one per line")
    for wrong, message in (
        ("\n".join(map(str, range(101))), "up to 100"),
        ("so many words " * 12, "Shorten it"),
    ):
        field.fill(wrong)
        field.press("Control+Enter")
        expect(page.locator("#vitviz-notice")).to_contain_text(message)
        assert predictions(page) == before and field.input_value() == wrong
    page.get_by_label("Prompt template").fill("no place for it")
    field.fill("a cat")
    page.get_by_role("button", name="Classify", exact=True).click()
    expect(page.locator("#vitviz-notice")).to_contain_text("expected texts with {}")
    field.fill("")
    page.get_by_label("Prompt template").fill("")
    page.get_by_role("button", name="Classify", exact=True).click()  # back to the model's projection
    expect(page.locator("#vitviz-facts")).to_contain_text("no classifier")
    page.go_back()
    expect(field).to_have_value("a cat\na dog")
    assert predictions(page) == before
    classes = vitviz.Classes(["my own", "قطة"], torch.eye(24)[:2])
    classes.save(tmp_path / "mine.npz")
    page.get_by_label("Vectors as classes (file)").set_input_files(tmp_path / "mine.npz")
    expect(page.locator(".vv-sentences")).to_contain_text("The classes are 2 vectors.")
    assert set(predictions(page)) == set(classes.labels) and field.input_value() == ""
    page.get_by_role("button", name="Remove vectors").click()
    expect(page.locator("#vitviz-facts")).to_contain_text("no classifier")


def test_sentence_field_is_hidden_for_image_models(open_page):
    page = open_page(width=390, height=844)
    expect(page.locator(".vv-sentences")).to_be_hidden()
