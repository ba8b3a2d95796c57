"""Shared helpers of the export tests."""

from __future__ import annotations

import io

import numpy as np
from imageio_ffmpeg import read_frames
from PIL import Image


def read_mp4(data: bytes, path) -> tuple[list[np.ndarray], float]:
    """Return the frames of an MP4, decoded by ffmpeg, and the frame rate."""
    path.write_bytes(data)
    reader = read_frames(str(path))
    known = next(reader)
    wide, tall = known["size"]
    return [np.frombuffer(one, np.uint8).reshape(tall, wide, 3) for one in reader], known["fps"]


def read_gif(data: bytes) -> tuple[list[np.ndarray], list[int]]:
    """Return the frames of a GIF and their durations in milliseconds."""
    film = Image.open(io.BytesIO(data))
    frames, times = [], []
    for number in range(film.n_frames):
        film.seek(number)
        times.append(film.info["duration"])
        frames.append(np.asarray(film.convert("RGB")))
    return frames, times


def assert_close(found, expected, atol=1e-4):
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), atol=atol)
