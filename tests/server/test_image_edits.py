"""Edited images on the server: separate keys, one rendering, and mention in exports."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

import vitviz
from vitviz.engine.images import editing as module
from vitviz.errors import Unknown, VitvizError
from vitviz.server.api import figures, lessons, links
from vitviz.traces.image_edits import ImageEdits

pytestmark = pytest.mark.usefixtures("figures_not_drawn", "short_training")

TEXT = "brush.mean_60.200.150.90.0 rotate_10"


@pytest.fixture(scope="module")
def edited_key(service, key):
    run = service.runs.run(key)
    return service.look(run.picture, run.checkpoint, strokes=ImageEdits.parse(TEXT))


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), int)


def test_edited_image_has_its_own_key_and_trace(service, key, edited_key):
    assert edited_key != key and service.scene(edited_key) == service.scene(key)
    edited, before = service.subject(edited_key).trace, service.subject(key).trace
    expected = vitviz.load("vitviz-tiny", device="cpu").trace(
        vitviz.edit_image(vitviz.sample_image("coffee"), TEXT)
    )
    assert (edited.view.picture == expected.view.picture).all() and edited.view.retouched.text() == TEXT
    assert (edited.logits - before.logits).abs().max() > 0.1
    assert not before.view.retouched


def test_edits_are_rendered_once_and_equal_strokes_share_a_key(service, key, monkeypatch):
    run, calls, original = service.runs.run(key), [], module.edited_pixels

    def counted(*given):
        calls.append(given)
        return original(*given)

    monkeypatch.setattr(module, "edited_pixels", counted)
    keys = [
        service.look(run.picture, "vitviz-tiny", strokes=ImageEdits.parse(text))
        for text in ("hue_7", " hue_7 ")
    ]
    keys.append(service.look(run.picture, "vitviz-tiny@30", strokes=ImageEdits.parse("hue_7")))
    for one in keys:
        (
            service.image(one, "upload"),
            service.image(one, "input"),
            service.before(one),
            service.photograph(one),
        )
    assert len(calls) == 1 and keys[0] == keys[1] != keys[2]


def test_edits_are_rendered_in_a_scheduler_turn(service, key, monkeypatch):
    run, running_turns, original = service.runs.run(key), [], module.edited_pixels

    def painting(*given):
        running_turns.append(sum(len(line.computing) for line in service.work.turns._lines.values()))
        return original(*given)

    monkeypatch.setattr(module, "edited_pixels", painting)
    for number, ask in enumerate(
        (lambda one: service.image(one, "upload"), service.photograph, service.before)
    ):
        strokes = ImageEdits.parse(f"hue_{11 + number}")
        size = (128, 128) if ask == service.before else None
        result = ask(service.runs.known(run.picture, "vitviz-tiny", size, strokes=strokes))
        assert getattr(result, "seen", result) is not None
    assert running_turns == [1, 1, 1]


def test_routes_return_original_edited_and_input_image(service, key, edited_key):
    assert (
        service.image(edited_key, "original")
        == service.image(key, "upload")
        == service.image(key, "original")
    )
    by_hand = np.asarray(vitviz.edit_image(vitviz.sample_image("coffee"), TEXT), int)
    assert np.abs(pixels(service.image(edited_key, "upload")) - by_hand).mean() < 4, (
        "the JPEG differs from the edited image"
    )
    assert (
        pixels(service.image(edited_key, "input")) == service.subject(edited_key).trace.view.picture
    ).all()
    with pytest.raises(Unknown, match="there are upload, original and input"):
        service.image(edited_key, "mine")


def test_edited_image_is_shown_before_its_pass(service, key):
    run = service.runs.run(key)
    known = service.runs.known(run.picture, run.checkpoint, strokes=ImageEdits.parse("hue_31"))
    seen = service.before(known)
    assert seen.awaited and seen.seen.retouched.text() == "hue_31"


def test_training_snapshots_use_the_edited_image(service, edited_key):
    first, *_ = service.subject(edited_key).training()
    assert first.trace.view.retouched.text() == TEXT


def test_link_keeps_valid_strokes_and_ignores_others():
    assert links.parse_link({"strokes": f" {TEXT} "}).strokes == TEXT
    for other in ("", "smudge_1", "brush.mean_1", "x" * 30_000, "hue_1 " * 101):
        assert links.parse_link({"strokes": other}).strokes is None
    state = {"key": "k", "checkpoint": "c", "strokes": TEXT}
    assert links.link_state(state)["strokes"] == TEXT and "strokes" in vars(links.Link())


@pytest.mark.long
def test_zip_mentions_edits_and_restores_them(service, key, edited_key):
    data = lessons.lesson_zip(service, edited_key, {"tab": "rollout"})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert json.loads(files["settings.json"])["retouched"] == TEXT
    assert files["upload.jpg"] == service.image(key, "upload"), "the zip does not contain the original"
    assert files["retouched.jpg"] == service.image(edited_key, "upload")
    captions = [
        text.decode() for name, text in files.items() if name.startswith("figures/") and name.endswith("txt")
    ]
    with_edits = [one for one in captions if f"The image was edited: {TEXT}." in one]
    assert len(with_edits) >= len(captions) // 2 > 2
    assert lessons.read_lesson(data).seen.strokes == TEXT
    plain = lessons.lesson_zip(service, key, {"tab": "rollout"})
    with zipfile.ZipFile(io.BytesIO(plain)) as archive:
        assert "retouched.jpg" not in archive.namelist() and lessons.read_lesson(plain).seen.strokes is None


def test_print_figure_uses_the_edited_image(service, key, edited_key):
    plain, other = (figures.figure(service, each, "rollout", {}) for each in (key, edited_key))
    picture, before = (made.spec.rows[0][0].picture for made in (other, plain))
    assert TEXT in other.caption and TEXT not in plain.caption
    left, top, right, bottom = map(
        round, service.subject(edited_key).trace.view.box
    )  # outside the crop the image is veiled
    expected = np.asarray(vitviz.edit_image(vitviz.sample_image("coffee"), TEXT))
    crop = np.s_[top + 4 : bottom - 4, left + 4 : right - 4]
    assert (picture[crop] == expected[crop]).all() and (before != picture).any()


def test_invalid_stroke_raises_with_message(service, key):
    with pytest.raises(VitvizError, match="The edit 'nothing'"):
        ImageEdits.parse("nothing")


@pytest.mark.long
def test_piece_pasted_onto_another_image(service, key):
    """The other image is edited from then on. An uploaded image is exported without its key."""
    run = service.runs.run(key)
    file = io.BytesIO()
    vitviz.sample_image("rocket").resize((320, 213)).save(file, "PNG")
    own = service.pictures.keep_bytes(file.getvalue())
    text = "hue_40 onto.{}_200.100.150.90.-120.-40"
    laid, onto = (
        service.look(run.picture, run.checkpoint, strokes=ImageEdits.parse(text.format(one)))
        for one in ("chelsea", own)
    )
    for one, picture in ((laid, vitviz.sample_image("chelsea")), (onto, Image.open(file))):
        subject = service.subject(one)
        by_hand = vitviz.edit_image(vitviz.sample_image("coffee"), text.format("other"), picture)
        seen = vitviz.load("vitviz-tiny", device="cpu").trace(by_hand)
        assert (subject.trace.view.picture == seen.view.picture).all()
        alone = subject.original().trace.view
        assert not alone.retouched and alone.upload == picture.size == subject.trace.view.upload
    assert service.image(laid, "original") == service.image(
        service.look(service.pictures.sample("chelsea"), run.checkpoint), "upload"
    )
    assert service.subject(laid).trace.view.retouched.text() == text.format("chelsea")
    data = lessons.lesson_zip(service, onto, {"tab": "rollout"})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    leaks = [name for name, one in files.items() if own.encode() in one]
    assert not leaks, "the zip contains the key of the upload"
    lesson = lessons.read_lesson(data)
    assert lesson.seen.strokes == text.format("other") and lesson.seen.sample == "coffee"
    assert lesson.other == files["other.jpg"] == service.image(onto, "original")
    assert files["upload.jpg"] == service.image(key, "upload")
    gone = ImageEdits.parse(text.format("0" * 40))
    with pytest.raises(VitvizError, match="removed this image"):
        service.look(run.picture, run.checkpoint, strokes=gone)
