"""Sentences as classes on the server: a checkpoint's name carries them; no picture is looked at again."""

import io

import numpy as np
import pytest
import torch

import vitviz
from tests.engine.contrastive import write_towers
from vitviz.engine.studies import text
from vitviz.errors import Unknown, UnsupportedModel, VitvizError
from vitviz.server.api import lessons, links
from vitviz.server.page import facts
from vitviz.server.page.assumed import name_with
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.server.services.checkpoints import parse_classes
from vitviz.traces.text_classes import SENTENCES, WRITTEN, plain_name, with_text, without_text

CATS = "my-clip?text=a photo of a cat|a dog"
ODD = ["50 % | a dog & a cat?", "🐈\u200d⬛ a cat", "\u202bقطة\u202c", "a+b=c#d@e", "naïve 猫"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_towers(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def service(weights):
    return AnalysisService(ServiceSettings(device="cpu", weights=weights))


def test_a_name_carries_any_sentence_and_gives_it_back():
    name = with_text("vit.pth?heads=6", ODD, ["a {}."])
    assert without_text(name) == ("vit.pth?heads=6", ODD, ["a {}."]) and name.isprintable()
    assert with_text(name, ["a"]) == "vit.pth?heads=6&text=a" and with_text(name, []) == plain_name(name)
    assert links.parse_link({"checkpoint": name}).checkpoint == name
    assert name_with(name, "heads=3") == with_text("vit.pth?heads=3", ODD, ["a {}."])
    long = ["é" * (WRITTEN // SENTENCES)] * SENTENCES
    assert without_text(with_text("x", long))[1] == long
    for given in (["a"] * (SENTENCES + 1), ["a" * (WRITTEN + 1)]):
        with pytest.raises(vitviz.VitvizError, match=f"up to {SENTENCES} of {WRITTEN}"):
            with_text("x", given)


def test_another_sentence_is_no_second_look_at_the_picture(service, weights, monkeypatch):
    picture = service.pictures.sample("chelsea")
    own = service.subject(service.look(picture, "my-clip"))
    whole = vitviz.load(CATS, folder=weights, device="cpu").trace(vitviz.sample_image("chelsea"))
    model = type(service.checkpoints.inspector("my-clip").model)
    monkeypatch.setattr(model, "forward", None)  # from here on nothing is passed through it
    subject = service.subject(service.look(picture, CATS))
    assert subject.checkpoint == CATS and subject.trace.tokens is own.trace.tokens
    torch.testing.assert_close(subject.trace.logits, whole.logits, atol=1e-5, rtol=0)
    told = facts.prediction_facts(subject, sample="chelsea")
    assert [label for label, _ in told["top"]] == [label for label, _ in whole.top()]
    assert told["truth"] is None and told["notes"][-1]["values"] == {"count": 2}
    assert (
        vitviz.logit_attribution(subject.inspector, subject.trace, ("a dog", "a photo of a cat")).gap < 1e-4
    )
    assert service.checkpoints.inspector(CATS) is subject.inspector
    asked = facts.sentence_field(subject.inspector)
    assert asked == {
        "of": "my-clip",
        "reads": True,
        "takes": True,
        "sentences": ["a photo of a cat", "a dog"],
        "templates": [],
        "vectors": 0,
    }


def test_what_was_taken_away_is_seen_by_the_sentences_too(service, weights):
    picture, without = service.pictures.sample("chelsea"), vitviz.Ablation(heads=[(1, 1)])
    asked = vitviz.load(CATS, folder=weights, device="cpu")
    expected = asked.trace(vitviz.sample_image("chelsea"), ablation=without).logits
    found = service.subject(service.look(picture, CATS, without=without)).trace
    torch.testing.assert_close(found.logits, expected, atol=1e-5, rtol=0)
    assert found.without == without


def test_sentences_go_with_the_checkpoint_that_they_were_asked_of(service):
    first, base = service.checkpoints.inspector(CATS), service.checkpoints.inspector("my-clip")
    for number in range(60):
        service.checkpoints.inspector(f"my-clip?text=cat {number}")
    assert len(service.checkpoints._asked[base]) == 50
    assert service.checkpoints.inspector(CATS) is not first, "the oldest of fifty went"
    service.checkpoints.forget("my-clip")
    assert service.checkpoints.inspector(CATS).placed.model is not first.placed.model


def test_a_tower_that_is_still_to_come_takes_nobodys_turn(service, monkeypatch):
    turns, held = service.work.turns, []
    monkeypatch.setattr(text, "_kept", {})
    for name in ("_loaded", "_embedded"):
        made = getattr(text, name)
        monkeypatch.setattr(text, name, lambda *given, made=made: (held.append(busy(turns)), made(*given))[1])
    service.checkpoints.inspector(CATS)
    assert held == [0, 1], "read without a turn, asked within one"


def busy(turns) -> int:
    return sum(len(line.computing) for line in turns._lines.values())


def test_a_checkpoint_without_a_text_tower_says_so(service):
    assert not facts.sentence_field(service.checkpoints.inspector("vitviz-tiny"))["reads"]
    with pytest.raises(UnsupportedModel, match="has no text tower"):
        service.checkpoints.inspector("vitviz-tiny?text=a cat")
    restricted = AnalysisService(
        ServiceSettings(device="cpu", allowed=("vitviz-tiny",), weights=service.settings.weights)
    )
    with pytest.raises(vitviz.VitvizError, match="offers only"):
        restricted.checkpoints.inspector(CATS)


GIVEN = {
    "labels": np.array(["قطة", "a dog"]),
    "vectors": np.random.default_rng(0).normal(size=(2, 24)),
    "scale": 9.0,
}


def a_file(**changes) -> bytes:
    held = io.BytesIO()
    np.savez(held, **{**GIVEN, **changes})
    return held.getvalue()


@pytest.mark.long
def test_a_file_of_vectors_is_the_classes_wherever_the_name_goes_and_in_a_lesson(service, weights, tmp_path):
    data = a_file(model="my-clip")
    name = service.checkpoints.vectors.name_with("my-clip?text=a cat", data, "mine.npz")
    classes = vitviz.Classes(GIVEN["labels"], GIVEN["vectors"], scale=9.0, model="my-clip")
    assert name == f"my-clip?vectors={classes.digest[:16]}" and plain_name(name) == "my-clip"
    whole = vitviz.load("my-clip", folder=weights, device="cpu").with_classes(classes)
    key = service.look(service.pictures.sample("chelsea"), name)
    found = service.subject(key).trace.logits
    torch.testing.assert_close(found, whole.trace(vitviz.sample_image("chelsea")).logits, atol=1e-5, rtol=0)
    assert facts.sentence_field(service.checkpoints.inspector(name))["vectors"] == 2
    lesson = lessons.read_lesson(lessons.lesson_zip(service, key, {"tab": "evidence"}))
    assert lesson.vectors == data and lesson.seen.checkpoint == name
    for path in (tmp_path / "x.npz", tmp_path / "x.safetensors"):
        classes.save(path)
        assert parse_classes(path.read_bytes(), path.name) == classes == vitviz.Classes.load(path)


def test_vectors_that_do_not_fit_or_are_too_many_or_gone_are_a_sentence(service, weights):
    keep = service.checkpoints.vectors.name_with
    for changes, said in (
        ({"vectors": np.ones((2, 7))}, "vectors of 7 numbers; my-clip embeds a picture in 24"),
        ({"model": "another"}, "classes of another for my-clip"),
    ):
        name = keep("my-clip", a_file(**changes), "mine.npz")
        with pytest.raises(VitvizError, match=said):
            service.checkpoints.inspector(name)
    large = {"labels": np.array(["a"] * 1_001), "vectors": np.ones((1_001, 2))}
    for data, said in (
        (a_file(**large), "1001 classes of 1001 characters; expected up to 1000"),
        (a_file(labels=np.array(["a" * 60_000, "b" * 60_000])), "of 120000 characters"),
        (a_file(vectors=np.zeros((2, 2_000_000))), r"vectors.npy in this zip is larger than 16"),
        (a_file(vectors=np.array([object(), object()], dtype=object)), "holds no classes"),
        (b"PK nothing", "damaged"),
        (b"\xff" * 40, "mine.npz holds no classes"),
        (b"", "mine.npz holds no classes"),
    ):
        with pytest.raises(VitvizError, match=said):
            keep("my-clip", data, "mine.npz")
    with pytest.raises(Unknown, match="not on this server"):
        service.checkpoints.inspector("my-clip?vectors=0123456789abcdef")
    with pytest.raises(VitvizError, match="Classes.load"):
        vitviz.load("my-clip?vectors=0123456789abcdef", folder=weights)
