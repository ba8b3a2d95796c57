"""Frames as a film: MP4 (H.264) by imageio-ffmpeg, which brings its own encoder, and GIF by Pillow.

A GIF has 256 colours in all, the same for every frame; an MP4 has all of them, but half as fine as its light.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from vitviz.errors import VitvizError

MISSING = (
    "A film as MP4 is encoded by imageio-ffmpeg, which is not installed: pip install 'vitviz[film]'. A GIF"
    " needs nothing more."
)
FAILED = "The encoder of MP4 failed here; its own words stand in the log. A GIF needs none."
FORMATS = ("mp4", "gif")
RATE = 10  # pictures a second of an MP4: what stands longer is repeated, as players expect an even pace
HELD = 3  # times as long as the others the last frame stands
SEEN = 5  # frames that a GIF's colours are found from, and as many pixels across, at most
WIDE = 400
FAITHFUL = [  # nearly without loss, with the colours of any screen, and playable before all of it is there
    *("-crf", "14", "-preset", "medium", "-tune", "stillimage", "-threads", "2"),
    *("-vf", "scale=out_color_matrix=bt709:out_range=tv", "-color_range", "tv", "-colorspace", "bt709"),
    *("-color_primaries", "bt709", "-color_trc", "bt709", "-movflags", "+faststart"),
]

Frames = Sequence[UInt8[np.ndarray, "tall wide 3"]]
Told = Callable[[int, int], None]


def written(frames: Frames, form: str, seconds: float, told: Told = lambda done, of: None) -> bytes:
    """The film as a file: each frame for `seconds` (0.1 to 5, in tenths), the last three times as long.

    Both sides of the frames are even. `told` is called after each frame with how many are done, of how many.
    VitvizError for a form or time that does not exist, and where there is no encoder.
    """
    checked(form, seconds)
    tenths = round(10 * seconds)
    times = [tenths] * (len(frames) - 1) + [HELD * tenths]
    return (_mp4 if form == "mp4" else _gif)(frames, times, told)


def checked(form: str, seconds: float) -> None:
    """VitvizError for a form or time that does not exist."""
    if form not in FORMATS:
        raise VitvizError(f"There is no film as {form!r}; expected one of {', '.join(FORMATS)}.")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.1 <= seconds <= 5:
        raise VitvizError(f"Given {seconds!r} seconds for each frame; expected 0.1 to 5.")


def _each(frames: Frames, told: Told) -> Iterator[UInt8[np.ndarray, "tall wide 3"]]:
    for number in range(len(frames)):
        yield frames[number]
        told(number + 1, len(frames))


def _mp4(frames: Frames, times: list[int], told: Told) -> bytes:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe, write_frames

        get_ffmpeg_exe()
    except (ImportError, RuntimeError):  # not there, or without an encoder for this machine
        raise VitvizError(MISSING) from None
    tall, wide, _ = frames[0].shape
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        encoder = write_frames(
            str(path),
            (wide, tall),
            fps=RATE,
            quality=None,
            codec="libx264",
            macro_block_size=2,
            ffmpeg_log_level="error",
            output_params=FAITHFUL,
        )
        try:
            encoder.send(None)
            for frame, tenths in zip(_each(frames, told), times, strict=True):
                for _ in range(tenths * RATE // 10):
                    encoder.send(np.ascontiguousarray(frame))
        except OSError as error:  # there is none, or it has ended
            raise VitvizError(FAILED) from error
        finally:
            encoder.close()  # which waits for the encoder to end
        if not path.is_file() or not path.stat().st_size:
            raise VitvizError(FAILED)
        return path.read_bytes()


def _gif(frames: Frames, times: list[int], told: Told) -> bytes:
    colours = _colours(frames)
    none = Image.Dither.NONE  # dots would be read as numbers
    drawn = (Image.fromarray(frame).quantize(palette=colours, dither=none) for frame in _each(frames, told))
    file = io.BytesIO()
    next(drawn).save(
        file,
        "GIF",
        save_all=True,
        append_images=drawn,
        duration=[100 * tenths for tenths in times],
        loop=0,
    )
    return file.getvalue()


def _colours(frames: Frames) -> Image.Image:
    """256 colours for all frames, found from a few of them, the first and the last among these."""
    seen = sorted({round(at) for at in np.linspace(0, len(frames) - 1, SEEN)})
    found = []
    for number in seen:
        frame = frames[number]
        step = max(1, -(-frame.shape[1] // WIDE))
        found.append(frame[::step, ::step])
    return Image.fromarray(np.concatenate(found)).quantize(256, Image.Quantize.MEDIANCUT)


__all__ = ["FORMATS", "HELD", "RATE", "checked", "written"]
