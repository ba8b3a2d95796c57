"""Sentences as classes on the server: names carry them, and traces are reused."""

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


def test_checkpoint_name_round_trips_sentences():
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


def test_new_sentences_need_no_second_pass(service, weights, monkeypatch):
    picture = service.pictures.sample("chelsea")
    own = service.subject(service.look(picture, "my-clip"))
    expected = vitviz.load(CATS, folder=weights, device="cpu").trace(vitviz.sample_image("chelsea"))
    model = type(service.checkpoints.inspector("my-clip").model)
    monkeypatch.setattr(model, "forward", None)  # forward passes fail from here on
    subject = service.subject(service.look(picture, CATS))
    assert subject.checkpoint == CATS and subject.trace.tokens is own.trace.tokens
    torch.testing.assert_close(subject.trace.logits, expected.logits, atol=1e-5, rtol=0)
    prediction = facts.prediction_facts(subject, sample="chelsea")
    assert [label for label, _ in prediction["top"]] == [label for label, _ in expected.top()]
    assert prediction["truth"] is None and prediction["notes"][-1]["values"] == {"count": 2}
    assert (
        vitviz.logit_attribution(subject.inspector, subject.trace, ("a dog", "a photo of a cat")).gap < 1e-4
    )
    assert service.checkpoints.inspector(CATS) is subject.inspector
    field = facts.sentence_field(subject.inspector)
    assert field == {
        "of": "my-clip",
        "reads": True,
        "takes": True,
        "sentences": ["a photo of a cat", "a dog"],
        "templates": [],
        "vectors": 0,
    }


def test_ablation_applies_to_sentence_logits(service, weights):
    picture, without = service.pictures.sample("chelsea"), vitviz.Ablation(heads=[(1, 1)])
    inspector = vitviz.load(CATS, folder=weights, device="cpu")
    expected = inspector.trace(vitviz.sample_image("chelsea"), ablation=without).logits
    trace = service.subject(service.look(picture, CATS, without=without)).trace
    torch.testing.assert_close(trace.logits, expected, atol=1e-5, rtol=0)
    assert trace.without == without


def test_sentence_inspectors_are_evicted_with_their_checkpoint(service):
    first, base = service.checkpoints.inspector(CATS), service.checkpoints.inspector("my-clip")
    for number in range(60):
        service.checkpoints.inspector(f"my-clip?text=cat {number}")
    assert len(service.checkpoints._asked[base]) == 50
    assert service.checkpoints.inspector(CATS) is not first, "the oldest of more than fifty was kept"
    service.checkpoints.forget("my-clip")
    assert service.checkpoints.inspector(CATS).placed.model is not first.placed.model


def test_text_tower_loads_without_a_turn(service, monkeypatch):
    turns, turns_held = service.work.turns, []
    monkeypatch.setattr(text, "_kept", {})
    for name in ("_loaded", "_embedded"):
        original = getattr(text, name)
        monkeypatch.setattr(
            text,
            name,
            lambda *given, original=original: (turns_held.append(running_turns(turns)), original(*given))[1],
        )
    service.checkpoints.inspector(CATS)
    assert turns_held == [0, 1], "loading took a turn, or embedding took none"


def running_turns(turns) -> int:
    return sum(len(line.computing) for line in turns._lines.values())


def test_checkpoint_without_text_tower_rejects_sentences(service):
    assert not facts.sentence_field(service.checkpoints.inspector("vitviz-tiny"))["reads"]
    with pytest.raises(UnsupportedModel, match="has no text tower"):
        service.checkpoints.inspector("vitviz-tiny?text=a cat")
    restricted = AnalysisService(
        ServiceSettings(device="cpu", allowed=("vitviz-tiny",), weights=service.settings.weights)
    )
    with pytest.raises(vitviz.VitvizError, match="offers only"):
        restricted.checkpoints.inspector(CATS)


CLASS_ARRAYS = {
    "labels": np.array(["قطة", "a dog"]),
    "vectors": np.random.default_rng(0).normal(size=(2, 24)),
    "scale": 9.0,
}


def npz_bytes(**changes) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{**CLASS_ARRAYS, **changes})
    return buffer.getvalue()


@pytest.mark.long
def test_vectors_file_defines_classes_and_enters_lessons(service, weights, tmp_path):
    data = npz_bytes(model="my-clip")
    name = service.checkpoints.vectors.name_with("my-clip?text=a cat", data, "mine.npz")
    classes = vitviz.Classes(CLASS_ARRAYS["labels"], CLASS_ARRAYS["vectors"], scale=9.0, model="my-clip")
    assert name == f"my-clip?vectors={classes.digest[:16]}" and plain_name(name) == "my-clip"
    expected = vitviz.load("my-clip", folder=weights, device="cpu").with_classes(classes)
    key = service.look(service.pictures.sample("chelsea"), name)
    logits = service.subject(key).trace.logits
    torch.testing.assert_close(
        logits, expected.trace(vitviz.sample_image("chelsea")).logits, atol=1e-5, rtol=0
    )
    assert facts.sentence_field(service.checkpoints.inspector(name))["vectors"] == 2
    lesson = lessons.read_lesson(lessons.lesson_zip(service, key, {"tab": "evidence"}))
    assert lesson.vectors == data and lesson.seen.checkpoint == name
    for path in (tmp_path / "x.npz", tmp_path / "x.safetensors"):
        classes.save(path)
        assert parse_classes(path.read_bytes(), path.name) == classes == vitviz.Classes.load(path)


def test_unsuitable_or_missing_vectors_are_rejected(service, weights):
    name_with = service.checkpoints.vectors.name_with
    for changes, message in (
        ({"vectors": np.ones((2, 7))}, "vectors have 7 numbers, but my-clip embeds an image in 24"),
        ({"model": "another"}, "made with another, not with my-clip"),
    ):
        name = name_with("my-clip", npz_bytes(**changes), "mine.npz")
        with pytest.raises(VitvizError, match=message):
            service.checkpoints.inspector(name)
    large = {"labels": np.array(["a"] * 1_001), "vectors": np.ones((1_001, 2))}
    for data, message in (
        (npz_bytes(**large), "1001 classes of 1001 characters; expected up to 1000"),
        (npz_bytes(labels=np.array(["a" * 60_000, "b" * 60_000])), "of 120000 characters"),
        (npz_bytes(vectors=np.zeros((2, 2_000_000))), r"vectors.npy in this zip is larger than 16"),
        (npz_bytes(vectors=np.array([object(), object()], dtype=object)), "holds no classes"),
        (b"PK nothing", "damaged"),
        (b"\xff" * 40, "mine.npz holds no classes"),
        (b"", "mine.npz holds no classes"),
    ):
        with pytest.raises(VitvizError, match=message):
            name_with("my-clip", data, "mine.npz")
    with pytest.raises(Unknown, match="not on this server"):
        service.checkpoints.inspector("my-clip?vectors=0123456789abcdef")
    with pytest.raises(VitvizError, match="Classes.load"):
        vitviz.load("my-clip?vectors=0123456789abcdef", folder=weights)
