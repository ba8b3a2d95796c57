"""`vitviz figure` as a user types it."""

import pytest
from PIL import Image

import vitviz
from vitviz.errors import VitvizError


def test_figure_of_file_equals_python_figure(run_vitviz, tmp_path):
    vitviz.sample_image("chelsea").save(tmp_path / "cat.png")
    status, out, _ = run_vitviz(
        "figure", "rollout", "cat.png", "-o", "x.svg", "--set", "fusion=max", "--detail"
    )
    assert status == 0 and "x.svg" in out and "x.txt" in out
    inspector, photo = vitviz.load("vitviz-tiny"), tmp_path / "cat.png"
    trace = inspector.trace(photo)
    expected = vitviz.figure("rollout", inspector, trace, picture=photo, detail=True, fusion="max")
    assert (tmp_path / "x.svg").read_bytes() == expected.svg()
    assert (tmp_path / "x.txt").read_text(encoding="utf-8") == expected.caption
    assert "Image: cat, 451 × 300 px." in expected.caption


def test_strokes_edit_the_image(run_vitviz, tmp_path):
    assert run_vitviz("figure", "rollout", "coffee", "--strokes", "hue_90", "-o", "x.svg")[0] == 0
    painted = vitviz.edit_image(vitviz.sample_image("coffee"), "hue_90")
    inspector = vitviz.load("vitviz-tiny")
    expected = vitviz.figure("rollout", inspector, inspector.trace(painted), picture=painted)
    assert (tmp_path / "x.svg").read_bytes() == expected.svg() and "edited: hue_90" in expected.caption
    status, _, told = run_vitviz("figure", "rollout", "coffee", "--strokes", "smudge_1")
    assert status == 1 and "expected one of" in told


def test_default_file_name_has_view_checkpoint_and_settings(run_vitviz, tmp_path):
    assert run_vitviz("figure", "distance", "coffee", "-s", "form=sorted")[0] == 0
    assert (tmp_path / "vitviz-distance_vitviz-tiny_form-sorted.svg").is_file()


def test_filters_need_no_image_and_width_sets_pixels(run_vitviz, tmp_path):
    assert run_vitviz("figure", "filters", "-o", "f.png", "--width", "86", "--dpi", "150")[0] == 0
    with Image.open(tmp_path / "f.png") as image:
        assert image.width == round(86 / 25.4 * 150)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("rollout",), "pass a trace"),
        (("rollout", "coffee", "-o", "x.gif"), "no format 'gif'"),
        (("rollout", "coffee", "--set", "fusion"), "name=value"),
        (("rollout", "coffee", "--set", "dark=1"), "with a view's setting"),
        (("rollout", "coffee", "--set", "fusion=max", "--set", "fusion=min"), "given twice"),
        (("filters", "--strokes", "rotate_10"), "name an image, too"),
        (("filters", "--without", "heads=1.1"), "name an image, too"),
        (("rollout", "nowhere.jpg"), "nowhere.jpg"),
        (("tour", "coffee"), "has many steps"),
    ],
)
def test_invalid_figure_arguments_print_one_sentence(run_vitviz, given, words):
    status, _, told = run_vitviz("figure", *given)
    assert status == 1 and words in told and "Traceback" not in told


@pytest.mark.parametrize("command", [("figure", "filters"), ("video", "clip.gif")])
@pytest.mark.parametrize("place", ["none/x.gif", "file/x.gif", "folder.gif", "x" * 300 + ".gif"])
def test_unwritable_path_is_reported_before_computation(run_vitviz, tmp_path, command, place):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder.gif").mkdir()
    status, _, told = run_vitviz(*command, "-o", place)
    assert status == 1 and "cannot be written there; expected" in told and len(told) < 350


def test_save_into_missing_folder_raises_without_full_path(tmp_path):
    figure = vitviz.figure("filters", vitviz.load("vitviz-tiny"))
    with pytest.raises(VitvizError, match=r"x.svg cannot be written: No such file") as error:
        figure.save(tmp_path / "none" / "x.svg")
    assert str(tmp_path) not in str(error.value)
