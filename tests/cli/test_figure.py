"""`vitviz figure` as a user types it."""

import pytest
from PIL import Image

import vitviz
from vitviz.errors import VitvizError


def test_a_figure_of_a_file_is_the_one_of_python(said, tmp_path):
    vitviz.sample_image("chelsea").save(tmp_path / "cat.png")
    status, out, _ = said("figure", "rollout", "cat.png", "-o", "x.svg", "--set", "fusion=max", "--detail")
    assert status == 0 and "x.svg" in out and "x.txt" in out
    inspector, photo = vitviz.load("vitviz-tiny"), tmp_path / "cat.png"
    trace = inspector.trace(photo)
    expected = vitviz.figure("rollout", inspector, trace, picture=photo, detail=True, fusion="max")
    assert (tmp_path / "x.svg").read_bytes() == expected.svg()
    assert (tmp_path / "x.txt").read_text(encoding="utf-8") == expected.caption
    assert "Photograph: cat, 451 × 300 px." in expected.caption


def test_strokes_are_painted_over_it(said, tmp_path):
    assert said("figure", "rollout", "coffee", "--strokes", "hue_90", "-o", "x.svg")[0] == 0
    painted = vitviz.edit_image(vitviz.sample_image("coffee"), "hue_90")
    inspector = vitviz.load("vitviz-tiny")
    expected = vitviz.figure("rollout", inspector, inspector.trace(painted), picture=painted)
    assert (tmp_path / "x.svg").read_bytes() == expected.svg() and "retouched: hue_90" in expected.caption
    status, _, told = said("figure", "rollout", "coffee", "--strokes", "smudge_1")
    assert status == 1 and "expected one of" in told


def test_without_a_name_it_is_called_by_view_checkpoint_and_settings(said, tmp_path):
    assert said("figure", "distance", "coffee", "-s", "form=sorted")[0] == 0
    assert (tmp_path / "vitviz-distance_vitviz-tiny_form-sorted.svg").is_file()


def test_filters_need_no_picture_and_pixels_are_as_asked_for(said, tmp_path):
    assert said("figure", "filters", "-o", "f.png", "--width", "86", "--dpi", "150")[0] == 0
    with Image.open(tmp_path / "f.png") as picture:
        assert picture.width == round(86 / 25.4 * 150)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("rollout",), "hand in a trace"),
        (("rollout", "coffee", "-o", "x.gif"), "no format 'gif'"),
        (("rollout", "coffee", "--set", "fusion"), "name=value"),
        (("rollout", "coffee", "--set", "dark=1"), "with a view's setting"),
        (("rollout", "nowhere.jpg"), "nowhere.jpg"),
        (("tour", "coffee"), "has many steps"),
    ],
)
def test_mistakes_end_with_a_sentence(said, given, words):
    status, _, told = said("figure", *given)
    assert status == 1 and words in told and "Traceback" not in told


@pytest.mark.parametrize("command", [("figure", "filters"), ("video", "clip.gif")])
@pytest.mark.parametrize("place", ["none/x.gif", "file/x.gif", "folder.gif", "x" * 300 + ".gif"])
def test_a_place_that_cannot_be_is_a_sentence_before_anything_is_computed(said, tmp_path, command, place):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder.gif").mkdir()
    status, _, told = said(*command, "-o", place)
    assert status == 1 and "cannot be written there; expected" in told and len(told) < 350


def test_a_file_that_cannot_be_written_after_all_is_a_sentence(tmp_path):
    made = vitviz.figure("filters", vitviz.load("vitviz-tiny"))
    with pytest.raises(VitvizError, match=r"x.svg cannot be written: No such file") as told:
        made.save(tmp_path / "none" / "x.svg")
    assert str(tmp_path) not in str(told.value)
