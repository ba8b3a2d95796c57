"""What the studio keeps, and what becomes of what it has put out."""

import pytest

from vitviz.errors import ImageError
from vitviz.ui.serving.studio import Settings, Studio


def test_what_the_trace_alone_answers_never_brings_a_checkpoint_back(monkeypatch):
    studio = Studio(Settings(device="cpu"))
    key = studio.look(studio.keep_sample("coffee"), "vitviz-tiny")
    studio._inspectors._entries.clear()

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
    first = small.look(small.keep_sample("chelsea"), "vitviz-tiny")
    small.look(small.keep_sample("coffee"), "vitviz-tiny")
    with pytest.raises(ImageError, match="Drop it in once more"):
        small.subject(first)


def test_keys_differ_between_servers_and_cannot_be_computed_from_the_picture(studio):
    assert Studio(Settings()).keep_sample("chelsea") != studio.keep_sample("chelsea")


def test_a_checkpoint_is_loaded_once(studio):
    assert studio.inspector("vitviz-tiny") is studio.inspector("vitviz-tiny")
