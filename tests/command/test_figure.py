"""`vitviz figure` as a user types it."""

import pytest
from PIL import Image

import vitviz


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
    painted = vitviz.retouched(vitviz.sample_image("coffee"), "hue_90")
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
        (("tour", "coffee"), "walk of many steps"),
    ],
)
def test_mistakes_end_with_a_sentence(said, given, words):
    status, _, told = said("figure", *given)
    assert status == 1 and words in told and "Traceback" not in told
