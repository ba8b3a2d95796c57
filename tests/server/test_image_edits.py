"""A retouched photograph on the server: a key of its own, painted once, and said in all that goes home."""

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

pytestmark = pytest.mark.usefixtures("undrawn", "short_training")

TEXT = "brush.mean_60.200.150.90.0 rotate_10"


@pytest.fixture(scope="module")
def painted(service, key):
    run = service.runs.run(key)
    return service.look(run.picture, run.checkpoint, strokes=ImageEdits.parse(TEXT))


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), int)


def test_the_model_sees_what_was_painted_and_the_run_is_another(service, key, painted):
    assert painted != key and service.scene(painted) == service.scene(key)
    found, before = service.subject(painted).trace, service.subject(key).trace
    by_hand = vitviz.load("vitviz-tiny", device="cpu").trace(
        vitviz.edit_image(vitviz.sample_image("coffee"), TEXT)
    )
    assert (found.view.picture == by_hand.view.picture).all() and found.view.retouched.text() == TEXT
    assert (found.logits - before.logits).abs().max() > 0.1
    assert not before.view.retouched


def test_a_picture_is_painted_once_and_equal_strokes_have_one_key(service, key, monkeypatch):
    run, count, real = service.runs.run(key), [], module.edited_pixels

    def counted(*given):
        count.append(given)
        return real(*given)

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
    assert len(count) == 1 and keys[0] == keys[1] != keys[2]


def test_many_wide_strokes_are_painted_in_a_turn(service, key, monkeypatch):
    run, held, real = service.runs.run(key), [], module.edited_pixels

    def painting(*given):
        held.append(sum(len(line.computing) for line in service.work.turns._lines.values()))
        return real(*given)

    monkeypatch.setattr(module, "edited_pixels", painting)
    for number, ask in enumerate(
        (lambda one: service.image(one, "upload"), service.photograph, service.before)
    ):
        strokes = ImageEdits.parse(f"hue_{11 + number}")
        size = (128, 128) if ask == service.before else None
        found = ask(service.runs.known(run.picture, "vitviz-tiny", size, strokes=strokes))
        assert getattr(found, "seen", found) is not None
    assert held == [1, 1, 1]


def test_the_page_gets_the_picture_before_and_after(service, key, painted):
    assert (
        service.image(painted, "original") == service.image(key, "upload") == service.image(key, "original")
    )
    by_hand = np.asarray(vitviz.edit_image(vitviz.sample_image("coffee"), TEXT), int)
    assert np.abs(pixels(service.image(painted, "upload")) - by_hand).mean() < 4, "a JPEG of it"
    assert (pixels(service.image(painted, "input")) == service.subject(painted).trace.view.picture).all()
    with pytest.raises(Unknown, match="there are upload, original and input"):
        service.image(painted, "mine")


def test_before_a_pass_it_is_the_painted_picture_that_is_shown(service, key):
    run = service.runs.run(key)
    known = service.runs.known(run.picture, run.checkpoint, strokes=ImageEdits.parse("hue_31"))
    seen = service.before(known)
    assert seen.awaited and seen.seen.retouched.text() == "hue_31"


def test_a_training_is_of_the_painted_picture(service, painted):
    first, *_ = service.subject(painted).training()
    assert first.trace.view.retouched.text() == TEXT


def test_a_link_holds_them_and_passes_over_what_is_none():
    assert links.parse_link({"strokes": f" {TEXT} "}).strokes == TEXT
    for other in ("", "smudge_1", "brush.mean_1", "x" * 30_000, "hue_1 " * 101):
        assert links.parse_link({"strokes": other}).strokes is None
    state = {"key": "k", "checkpoint": "c", "strokes": TEXT}
    assert links.link_state(state)["strokes"] == TEXT and "strokes" in vars(links.Link())


@pytest.mark.long
def test_the_zip_says_so_and_is_a_lesson_of_it(service, key, painted):
    data = lessons.lesson_zip(service, painted, {"tab": "rollout"})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert json.loads(files["settings.json"])["retouched"] == TEXT
    assert files["upload.jpg"] == service.image(key, "upload"), "it is painted again by whoever opens it"
    assert files["retouched.jpg"] == service.image(painted, "upload")
    captions = [
        text.decode() for name, text in files.items() if name.startswith("figures/") and name.endswith("txt")
    ]
    said = [one for one in captions if f"The photograph was retouched: {TEXT}." in one]
    assert len(said) >= len(captions) // 2 > 2
    assert lessons.read_lesson(data).seen.strokes == TEXT
    plain = lessons.lesson_zip(service, key, {"tab": "rollout"})
    with zipfile.ZipFile(io.BytesIO(plain)) as archive:
        assert "retouched.jpg" not in archive.namelist() and lessons.read_lesson(plain).seen.strokes is None


def test_a_figure_for_print_is_drawn_over_the_painted_picture(service, key, painted):
    one, other = (figures.figure(service, each, "rollout", {}) for each in (key, painted))
    picture, before = (made.spec.rows[0][0].picture for made in (other, one))
    assert TEXT in other.caption and TEXT not in one.caption
    left, top, right, bottom = map(round, service.subject(painted).trace.view.box)  # around it, it is veiled
    by_hand = np.asarray(vitviz.edit_image(vitviz.sample_image("coffee"), TEXT))
    crop = np.s_[top + 4 : bottom - 4, left + 4 : right - 4]
    assert (picture[crop] == by_hand[crop]).all() and (before != picture).any()


def test_strokes_that_are_none_are_a_sentence(service, key):
    with pytest.raises(VitvizError, match="Given the stroke 'nothing'"):
        ImageEdits.parse("nothing")


@pytest.mark.long
def test_a_piece_laid_onto_another_photograph(service, key):
    """It is that one from then on, with what was before; one's own leaves this server without its key."""
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
    told = [name for name, one in files.items() if own.encode() in one]
    assert not told, "its key is this server's own"
    lesson = lessons.read_lesson(data)
    assert lesson.seen.strokes == text.format("other") and lesson.seen.sample == "coffee"
    assert lesson.other == files["other.jpg"] == service.image(onto, "original")
    assert files["upload.jpg"] == service.image(key, "upload")
    gone = ImageEdits.parse(text.format("0" * 40))
    with pytest.raises(VitvizError, match="removed this image"):
        service.look(run.picture, run.checkpoint, strokes=gone)
