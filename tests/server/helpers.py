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


def opened(data: bytes) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    return archive


def numbers(archive: zipfile.ZipFile, slug: str):
    return np.load(io.BytesIO(archive.read(f"numbers/{slug}.npz")))


def jpeg(shade: int = 0) -> bytes:
    file = io.BytesIO()
    picture = vitviz.sample_image("rocket").convert("RGB").resize((112, 112))
    Image.fromarray(np.roll(np.asarray(picture), shade, 1)).save(file, "JPEG")
    return file.getvalue()


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


COUNT = 9


def moving(count: int = COUNT, milliseconds: int = 100) -> Path:
    """A GIF among the uploads: a photograph that moves by a patch a frame."""
    place = Path(get_upload_folder()) / f"test-{time.time_ns()}"
    place.mkdir(parents=True)
    picture = np.asarray(vitviz.sample_image("rocket").convert("RGB").resize((112, 112)))
    first, *rest = (Image.fromarray(np.roll(picture, 8 * one, 1)) for one in range(count))
    how = {"save_all": True, "append_images": rest, "duration": milliseconds, "loop": 0}
    first.save(place / "moving.gif", **how)
    return place / "moving.gif"
