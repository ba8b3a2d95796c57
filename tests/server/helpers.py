"""Helpers that several test files share."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path

import numpy as np
from gradio.utils import get_upload_folder
from PIL import Image

import vitviz


def open_zip(data: bytes) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    return archive


def read_numbers(archive: zipfile.ZipFile, slug: str):
    return np.load(io.BytesIO(archive.read(f"numbers/{slug}.npz")))


def jpeg(shade: int = 0) -> bytes:
    file = io.BytesIO()
    picture = vitviz.sample_image("rocket").convert("RGB").resize((112, 112))
    Image.fromarray(np.roll(np.asarray(picture), shade, 1)).save(file, "JPEG")
    return file.getvalue()


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.01)


FRAME_COUNT = 9


def moving_gif(count: int = FRAME_COUNT, milliseconds: int = 100) -> Path:
    """Write a GIF into the upload folder: an image that moves by one patch per frame."""
    folder = Path(get_upload_folder()) / f"test-{time.time_ns()}"
    folder.mkdir(parents=True)
    picture = np.asarray(vitviz.sample_image("rocket").convert("RGB").resize((112, 112)))
    first, *rest = (Image.fromarray(np.roll(picture, 8 * number, 1)) for number in range(count))
    options = {"save_all": True, "append_images": rest, "duration": milliseconds, "loop": 0}
    first.save(folder / "moving.gif", **options)
    return folder / "moving.gif"
