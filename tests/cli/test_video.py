"""`vitviz video` as a user types it."""

import csv
import os

import numpy as np
import pytest
from PIL import Image

import vitviz
from tests.export.helpers import read_gif, read_mp4


@pytest.fixture
def clip(tmp_path):
    """Return a clip of three frames of a tenth of a second."""
    photo = np.asarray(vitviz.sample_image("coffee").resize((96, 64)))
    first, *rest = (Image.fromarray(np.roll(photo, 20 * number, axis=1)) for number in range(3))
    first.save(tmp_path / "clip.gif", save_all=True, append_images=rest, duration=100)
    return tmp_path / "clip.gif"


def test_csv_has_one_row_per_frame(run_vitviz, clip, tmp_path):
    options = ("--view", "evidence", "--set", "target=3", "-c", "vitviz-tiny", "--device", "cpu")
    status, out, _ = run_vitviz("video", clip, *options, "-o", "clip.csv")
    assert status == 0 and "clip.csv" in out
    with (tmp_path / "clip.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["frame", "time", "answer", "probability", "flicker"]
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    expected = list(vitviz.video(clip, inspector, "evidence", target=3))
    assert [row["time"] for row in rows] == ["0", "0.1", "0.2"] and rows[0]["flicker"] == ""
    for row, one in zip(rows, expected, strict=True):
        assert (int(row["frame"]), row["answer"]) == (one.number, one.answer)
        assert float(row["probability"]) == pytest.approx(one.probability)
    assert float(rows[2]["flicker"]) == pytest.approx(np.abs(expected[2].map - expected[1].map).mean())


@pytest.mark.long
def test_videos_have_selected_frames(run_vitviz, clip, tmp_path):
    assert run_vitviz("video", clip, "--step", "2", "--width", "320", "-o", "clip.mp4")[0] == 0
    seen, rate = read_mp4((tmp_path / "clip.mp4").read_bytes(), tmp_path / "again.mp4")
    assert len(seen) == 2 and rate == 5 and seen[0].shape[1] == 320
    assert "from Frame 0, 0.00 s to Frame 2, 0.20 s" in (tmp_path / "clip.txt").read_text(encoding="utf-8")
    assert run_vitviz("video", clip, "--start", "0.1", "--width", "320", "-o", "out.gif")[0] == 0
    assert len(read_gif((tmp_path / "out.gif").read_bytes())[0]) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("-o", "x.avi"), "expected .mp4 or .gif"),
        (("-o", "x.mp4", "--width", "3"), "an even number"),
        (("-o", "x.mp4", "--view", "filters"), "does not show an image"),
        (("-o", "x.csv", "--most-frames", "2"), "is longer than"),
        (("-o", "x.csv", "--set", "fusion"), "name=value"),
        (("-o", "x.csv", "--set", "start=1"), "with a view's setting"),
    ],
)
def test_invalid_video_arguments_print_one_sentence(run_vitviz, clip, given, words):
    status, _, told = run_vitviz("video", clip, *given)
    assert status == 1 and words in told and "Traceback" not in told
    assert not [name for name in os.listdir(clip.parent) if name.startswith("x.")]
