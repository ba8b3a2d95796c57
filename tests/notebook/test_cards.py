"""Notebook cards of results: their HTML and the pixels of their images."""

import re
from dataclasses import replace

import numpy as np
import pytest

import vitviz
from tests.notebook.helpers import Reader
from vitviz.charts.colormaps import TABLES
from vitviz.notebook import html

# public names that give no card: errors, constants, plain tensors, what is no picture of a model
WITHOUT_CARD = {"METHODS", "AssumedWarning", "VitvizError", "keep_freed_memory", "sample_image", "edit_image"}
WITHOUT_CARD |= {"patch_scores"}


@pytest.mark.long
def test_every_public_name_has_a_card_or_is_exempt(results):
    """A new public name needs a card or an entry in the list of exceptions."""
    assert set(results) | WITHOUT_CARD >= set(vitviz.__all__) - {"animation", "figure", "video"}


@pytest.mark.parametrize(
    "name",
    sorted(set(vitviz.__all__) - WITHOUT_CARD - {"animation", "figure", "show", "video"}),
    ids=lambda name: name,
)
def test_card_is_valid_html_without_external_requests(results, name):
    text = results[name]._repr_html_()
    page = Reader(text)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert all(
        value.startswith("data:image/png;base64,") for key, value in page.given if key in ("src", "href")
    )
    assert not re.search(r"url\(|@import|https?:", text) and not [
        one for one, _ in page.given if one[:2] == "on"
    ]
    assert "figcaption" in page.tags and re.search(r"[A-Za-z]{4}", page.said.partition("}")[2] or page.said)
    alone = re.sub(r"#3580c0|rgb\(128 128 128 / .35\)", "", re.search("<style>(.*?)</style>", text, re.S)[1])
    assert not re.search(r"#[0-9a-f]{3,6}|\b(white|black)\b|background: (?!none)", alone), (
        "a colour for one page alone"
    )


def numbers(pixels, low, high, colours):
    """The number of each pixel, by the nearest of the colour map's entries."""
    table = TABLES[colours].astype(int)
    found = np.zeros(pixels.shape[:2])
    for row, col in np.ndindex(*found.shape):
        entry = np.abs(table - pixels[row, col].astype(int)).sum(axis=1)
        assert entry.min() == 0, "no colour of the map"
        found[row, col] = low + (high - low) * entry.argmin() / 255
    return found


def test_map_colours_encode_values_and_show_range(results):
    found = results["saliency"]
    page = Reader(html(found))
    map, most = found.map.numpy(), float(found.map.abs().max())
    assert page.pictures[0].shape == (14, 14, 3)
    np.testing.assert_allclose(numbers(page.pictures[0], -most, most, "balance"), map, atol=most / 127)
    assert f"-{most:.4g}" in page.said and f"{most:.4g}" in page.said
    assert f"{found.explained:.4g} of {found.answer:.4g}" in page.said


def test_zero_map_has_middle_colour(results):
    page = Reader(html(replace(results["saliency"], map=results["saliency"].map * 0)))
    np.testing.assert_allclose(numbers(page.pictures[0], -1.0, 1.0, "balance"), 0, atol=1 / 127)


def test_removed_patches_are_grey(inspector, image):
    trace = inspector.trace(image, ablation=vitviz.Ablation(patches=[0, 17]))
    page = Reader(vitviz.rollout(trace)._repr_html_())
    grey = (page.pictures[0] == 128).all(axis=-1)
    assert grey[0, 0] and grey[1, 3] and grey.sum() == 2 and "patches left out" in html(trace)


def test_cka_card_colours_encode_similarity(results):
    page = Reader(results["cka"]._repr_html_())
    found = results["cka"].clamp(0, 1).nan_to_num().numpy()
    known = results["cka"].isfinite().numpy()
    drawn = page.pictures[0]
    assert drawn.shape[:2] == found.shape and (drawn[~known] == 128).all()
    read = numbers(np.where(known[..., None], drawn, TABLES["viridis"][0]), 0.0, 1.0, "viridis")
    np.testing.assert_allclose(read[known], found[known], atol=0.5 / 255 + 1e-6)


def test_distance_dots_have_titles_with_values(results):
    text = results["attention_distance"]._repr_html_()
    titles = re.findall(r"<title>Layer (\d+), head (\d+): ([\d.]+) px</title>", text)
    expected = results["attention_distance"]
    assert len(titles) == expected.numel()
    for layer, head, value in titles:
        assert float(value) == pytest.approx(float(expected[int(layer) - 1, int(head) - 1]), rel=1e-3)


def test_attribution_and_lens_cards_show_logit(results, inspector, trace):
    account = results["logit_attribution"]
    said = Reader(html(account)).said
    assert f"logit {trace.logits[0]:.4g}" in said and f"sum {account.total:.4g}" in said
    label, probability = trace.top(1)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", results["logit_lens"]._repr_html_(), re.S)
    assert len(rows) == 1 + len(trace.layers) + 1
    assert label in rows[-1] and f"{probability:.1%}" in rows[-1]


def test_survey_card_shows_means(results):
    survey = results["survey"]
    text = html(survey)
    assert f"{survey.mean('distance')[3, 1]:.4g}" in text and "means over 2 images" in text


def test_labels_and_names_are_escaped(trace):
    evil = "<img src=x onerror=alert(1)>"
    hostile = replace(trace, labels=(evil,) * len(trace.labels), checkpoint=evil)
    for text in (
        html(hostile),
        vitviz.rollout(hostile)._repr_html_(),
        vitviz.token_norms(hostile)._repr_html_(),
    ):
        assert evil not in text and "&lt;img src=x" in text


def test_html_of_other_objects_raises():
    with pytest.raises(TypeError, match="A value of type int cannot be drawn; expected a result"):
        html(3)


@pytest.mark.processes
def test_card_loads_no_gradio_pandas_or_matplotlib():
    import subprocess
    import sys

    code = (
        "import sys, vitviz; trace = vitviz.load('vitviz-tiny').trace(vitviz.sample_image('coffee'));"
        "trace._repr_html_(); vitviz.rollout(trace)._repr_html_();"
        "print(*{'gradio', 'fastapi', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == []
