"""Helpers that several test files share."""

from __future__ import annotations

import io

import numpy as np
from imageio_ffmpeg import read_frames
from PIL import Image


def of_mp4(data: bytes, path) -> tuple[list[np.ndarray], float]:
    """The pictures of a film, read by ffmpeg, and how many there are a second."""
    path.write_bytes(data)
    reader = read_frames(str(path))
    known = next(reader)
    wide, tall = known["size"]
    return [np.frombuffer(one, np.uint8).reshape(tall, wide, 3) for one in reader], known["fps"]


def of_gif(data: bytes) -> tuple[list[np.ndarray], list[int]]:
    """The frames of a film, and how many milliseconds each stands."""
    film = Image.open(io.BytesIO(data))
    frames, times = [], []
    for number in range(film.n_frames):
        film.seek(number)
        times.append(film.info["duration"])
        frames.append(np.asarray(film.convert("RGB")))
    return frames, times


def close(found, expected, atol=1e-4):
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), atol=atol)
