"""Each patch in the colour of its likeliest sentence: map, threshold, legend, print against plain loops."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import vitviz
from tests.engine import contrastive
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.errors import UnsupportedModel
from vitviz.traces.runs import Ablation
from vitviz.views import ViewContext
from vitviz.views.evidence import AttributionView, sentences
from vitviz.views.languages import translate
from vitviz.views.printing import PrintStyle, figure_spec
from vitviz.views.routes import item_array, parse_settings
from vitviz.views.scripts import figure_frame, view_declaration

VIEW = AttributionView()
MANY = [f"thing {number}" for number in range(40)]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """An inspector of a folder with two towers, and open_clip's model of both."""
    folder = tmp_path_factory.mktemp("clip")
    model = contrastive.clip(folder)
    return vitviz.load(folder, device="cpu"), model


@pytest.fixture(scope="module")
def inspector(both):
    return both[0]


@pytest.fixture(scope="module", params=[["a cat", "Tokens", "the dog"], MANY], ids=["few", "many"])
def subject(inspector, request):
    asked = inspector.with_classes(vitviz.text(inspector, request.param))
    return ViewContext(asked, asked.trace(vitviz.sample_image("chelsea")))


def by_loops(subject, method: str) -> tuple[list[list[int]], list[list[float]]]:
    """Of every patch, row by row, the sentence of the largest cosine, by hand, and that."""
    scores = vitviz.patch_scores(subject.inspector, subject.trace, method).tolist()
    classes, rows, cols = subject.trace.classes, subject.grid.rows, subject.grid.cols
    found, largest = [[0] * cols for _ in range(rows)], [[-2.0] * cols for _ in range(rows)]
    for one, score in enumerate(scores):
        for row in range(rows):
            for col in range(cols):
                cosine = (score[row][col] - classes.bias) / classes.scale
                if cosine > largest[row][col]:
                    found[row][col], largest[row][col] = one, cosine
    return found, largest


@pytest.mark.parametrize("method", ["naclip", "maskclip_kept"])
def test_map_legend_and_print_match_loops(subject, method, monkeypatch):
    count = len(subject.trace.labels)
    own = 7 if count == 3 else 1
    monkeypatch.setattr(sentences, "COLOURS", sentences.COLOURS[:own])
    found, largest = by_loops(subject, method)
    least = float(np.median(largest))
    settings = parse_settings(
        VIEW, {"show": "sentences", "patchwise": method, "least": f"{least:.6f}"}, subject.about
    )
    least, flat = settings["least"], [one for row in found for one in row]
    numbers = VIEW.numbers(subject, settings)
    assert numbers["class_names"].tolist() == list(subject.trace.labels)
    np.testing.assert_allclose(numbers["cosines"], largest, rtol=0, atol=1e-6)
    shown = [
        [one if cosine >= least else -1 for one, cosine in zip(*pair, strict=True)]
        for pair in zip(found, largest, strict=True)
    ]
    assert numbers["likeliest"].tolist() == shown and any(-1 in row for row in shown)
    legend = json.loads(bytes(item_array(VIEW, subject, "legend", settings)))
    most = sorted(range(count), key=lambda one: (-flat.count(one), one))[:own]
    assert [one for one, *_ in legend] == sorted(most) + [None] * (count > own)
    assert [name for _, name, _ in legend][:own] == [subject.trace.labels[one] for one in sorted(most)]
    assert len({colour for *_, colour in legend}) == len(legend)
    (drawn,), (table,) = figure_spec(VIEW, subject, settings, PrintStyle()).rows
    colours = {one: colour for one, _, colour in legend}
    for row, classes in enumerate(shown):
        for col, one in enumerate(classes):
            if one < 0:
                assert np.isnan(drawn.values[row, col])
            else:
                said = "#" + "".join(f"{part:02x}" for part in drawn.pixels[row, col])
                assert said == colours.get(one, colours.get(None))
    shares = [float(share.removesuffix(" %")) for _, share in table.rows]
    counts = [sum(row.count(one) for row in shown) for one in sorted(most)]
    bare = sum(row.count(-1) for row in shown)
    others = [len(flat) - sum(counts) - bare] if count > own else []
    assert all(others) and bare
    expected = [100 * one / len(flat) for one in (*counts, *others, bare)]
    assert shares == pytest.approx(expected, abs=0.051) and sum(shares) == pytest.approx(100, abs=0.5)


def test_print_note_states_cosine_of_logit(both):
    inspector, model = both
    classes = vitviz.text(inspector, ["a cat", "the dog"])
    asked = inspector.with_classes(replace(classes, scale=20.0, bias=-3.0))
    subject = ViewContext(asked, asked.trace(vitviz.sample_image("chelsea")))
    pixels = input_from_view(subject.trace.view, inspector.preprocessing).tensor[None]
    with torch.no_grad():
        picture = model.encode_image(pixels, normalize=True)[0]
    one, other = (classes.vectors @ picture).tolist()

    def note(**given) -> str:
        settings = parse_settings(VIEW, given, subject.about)
        return str(figure_spec(VIEW, subject, settings, PrintStyle()).notes[0])

    assert f" = 20 × cosine {one:.4f} − 3.00 = ".replace("-", "−") in note(target="0")
    assert f" = 20 × difference of cosines {one - other:.4f} = ".replace("-", "−") in note(target="0-1")
    assert "cosine" not in note(target="0", relative="yes")


@pytest.mark.parametrize("tag", ["zh-CN", "ko"])
def test_user_sentence_is_not_translated(inspector, tag):
    asked = inspector.with_classes(vitviz.text(inspector, ["Tokens", "the dog"]))
    subject = ViewContext(asked, asked.trace(vitviz.sample_image("chelsea")))
    settings = parse_settings(VIEW, {"target": "0"}, subject.about)
    title = figure_spec(VIEW, subject, settings, PrintStyle()).rows[0][0].title
    assert "Tokens" in translate(title, tag) and translate("Tokens", tag) != "Tokens"
    assert figure_frame(subject, "evidence")["written"] == ["Tokens"]


def test_sentence_map_needs_several_sentences(subject, inspector):
    def offered(one):
        controls = {control["name"]: control for control in view_declaration(VIEW, one)["controls"]}
        return "sentences" in dict(controls["show"]["options"]), "least" in controls

    assert offered(subject) == (True, True)
    alone = inspector.with_classes(vitviz.text(inspector, ["a cat"]))
    tiny = vitviz.load("vitviz-tiny", device="cpu")
    for one in (alone, tiny):
        single = ViewContext(one, one.trace(vitviz.sample_image("chelsea")))
        settings = parse_settings(VIEW, {"show": "sentences"}, single.about)
        assert offered(single) == (False, False)
        with pytest.raises(UnsupportedModel, match="not applicable, because naming the most likely class"):
            item_array(VIEW, single, "likeliest", settings)
    less = subject.inspector.trace(vitviz.sample_image("chelsea"), ablation=Ablation(heads=[(2, 0)]))
    with pytest.raises(UnsupportedModel, match="need the full model"):
        settings = parse_settings(VIEW, {}, subject.about)
        item_array(VIEW, ViewContext(subject.inspector, less), "likeliest", settings)
