"""What the studio keeps, and what becomes of what it has put out."""

import pytest

from vitviz.errors import ImageError
from vitviz.ui.door import visitor
from vitviz.ui.door.door import Answers
from vitviz.ui.door.turns import one_answer
from vitviz.ui.memory.studio import Settings, Studio


def test_what_the_trace_alone_answers_never_brings_a_checkpoint_back(monkeypatch):
    studio = Studio(Settings(device="cpu"))
    key = studio.look(studio.pictures.sample("coffee"), "vitviz-tiny")
    studio.checkpoints._inspectors._entries.clear()

    def load(*given, **named):
        raise AssertionError("the checkpoint was loaded again")

    monkeypatch.setattr("vitviz.engine.load", load)
    for slug, name in (
        ("rollout", "map"),
        ("explorer", "wall"),
        ("distance", "distance"),
        ("patches", "norms"),
    ):
        assert studio.item(key, slug, name, {}).size
        assert studio.numbers(key, slug, {})
    studio._traces._entries.clear()
    assert studio.item(key, "rollout", "map", {}).size, (
        "what has been drawn needs neither trace nor checkpoint"
    )


def test_a_picture_that_was_put_out_is_asked_for_again():
    small = Studio(Settings(device="cpu", trace_cache=1, picture_cache=1))
    first = small.look(small.pictures.sample("chelsea"), "vitviz-tiny")
    small.look(small.pictures.sample("coffee"), "vitviz-tiny")
    with pytest.raises(ImageError, match="Drop it in once more"):
        small.subject(first)


def test_keys_differ_between_servers_and_cannot_be_computed_from_the_picture(studio):
    assert Studio(Settings()).pictures.sample("chelsea") != studio.pictures.sample("chelsea")


def test_a_checkpoint_is_loaded_once(studio):
    assert studio.checkpoints.inspector("vitviz-tiny") is studio.checkpoints.inspector("vitviz-tiny")


def test_one_answer_looks_once_whether_a_checkpoint_has_been_replaced(studio, monkeypatch):
    looked = []
    monkeypatch.setattr("vitviz.engine.unchanged", lambda checkpoint: looked.append(checkpoint.name) or True)
    for count in (1, 2):
        with one_answer():
            key = studio.runs.known(studio.pictures.sample("coffee"), "vitviz-tiny", (64, 64))
            assert [studio.subject(key).inspector, studio.checkpoints.moments("vitviz-tiny")]
        assert looked == ["vitviz-tiny"] * count
    studio.checkpoints.inspector("vitviz-tiny"), studio.checkpoints.inspector("vitviz-tiny")
    assert len(looked) == 4, "outside of an answer everybody looks"


def test_an_answer_that_somebody_waits_for_is_not_put_out_by_new_pages():
    """Two hundred new pages of one visitor cost another his answer: Gradio forgets the oldest page first."""
    told = Answers(2)
    with visitor.listening("waits"):
        told["waits"], told["left"] = "his", "nobody's"
        for number in range(3):
            told[f"new {number}"] = "theirs"
        assert list(told) == ["waits", "new 2"]
    told["last"] = "one more"
    assert list(told) == ["new 2", "last"]
