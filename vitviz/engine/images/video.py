"""Read the frames of a video one by one, or raise ImageError with a message for the user.

The file's type is read from its first bytes, never from its name, so playlists and scripts that name other
files are refused. Pillow reads GIF and WebP. All other types are decoded by the ffmpeg of imageio-ffmpeg, in
a separate process that may read only that container from local files, with limits on memory, time and pixels;
the process ends when the caller stops reading. A damaged frame ends the video, because a decoder would invent
its content. Sound, subtitles and covers are skipped; colours are converted by ffmpeg.
"""

import mmap
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from vitviz.engine.images.opening import check_size, printable_name, rgb_of
from vitviz.errors import ImageError, TooMuch, VitvizError

PIXELS = 4096 * 4096  # limit of a frame
MEMORY, SECONDS = 2 * 2**30, 240  # limits of ffmpeg: bytes of address space, seconds of CPU time
LIMITED = 'ulimit -v {} 2>/dev/null; ulimit -t {}; exec "$@"'  # macOS has no -v
READABLE = "MP4, MOV, WebM, MKV, AVI, GIF or animated WebP"
MISSING = (
    "Videos are decoded by the ffmpeg of imageio-ffmpeg, which is not installed: pip install"
    " 'vitviz[film]'. A GIF or an animated WebP does not need it."
)
BEGINS = {
    "mov": b"....(ftyp|moov|mdat|wide|free|skip|pnot)",
    "matroska": b"\x1aE\xdf\xa3",
    "avi": b"RIFF....AVI ",
    "WEBP": b"RIFF....WEBP",
    "GIF": b"GIF8",
}
TELLS = "frame {n} {ptsi} {tbi};"  # written per frame on stderr: its number, its time, the units of the time
TOLD = re.compile(rb"frame (\d+) (-?\d+) (\d+)/(\d+);")
WRONG = re.compile(rb"\[(in#0|mov|matroska|avi)")  # an error after which ffmpeg may still exit with 0
GLANCE = "-vf scale=16:16:flags=neighbor"

FramePixels = UInt8[np.ndarray, "height width 3"]


def frames_of(
    source: str | os.PathLike, start: float, stop: float | None, step: int, most_seconds: float,
    most_frames: int, glance: bool = False
) -> Iterator[tuple[int, float, FramePixels]]:  # fmt: skip
    """Yield every `step`-th frame from `start` to before `stop` (seconds).

    Each item is the frame's number in the file, from 0, its time in seconds, and its upright pixels. `glance`
    scales frames down for a quick look at the content.

    Raises ImageError for a file that is not a video, is damaged or incomplete, and for frames that are too
    large or elongated; TooMuch for a video of `most_seconds` or more than `most_frames` frames.
    """
    name, form = _kind(source)
    count, first = 0, 0
    decoded = (_animated if form in ("GIF", "WEBP") else _decoded)(Path(source), name, form, glance)
    with closing(decoded):
        for number, (seconds, picture) in enumerate(decoded):
            if seconds < start:
                first = number + 1
                continue
            if stop is not None and seconds >= stop:
                break
            count += (number - first) % step == 0
            if seconds >= start + most_seconds or count > most_frames:
                raise TooMuch(
                    f"{name} is longer than {most_seconds:g} s or {most_frames:,} frames. Choose a shorter"
                    " video, an earlier end, a larger step between frames, or larger limits."
                )
            if (number - first) % step == 0:
                check_size(name, picture.shape[1::-1])
                yield number, seconds, picture
    if not count:
        raise ImageError(f"{name} has no frame at or after {start:g} s. Choose a start before its end.")


def _kind(source: str | os.PathLike) -> tuple[str, str]:
    """Return the file's name for messages, and its container under the decoder's name."""
    path = Path(source)
    name = printable_name(path)
    if not path.is_file() or not os.access(path, os.R_OK):  # a URL, a folder, a pipe that never ends
        raise ImageError(f"There is no file {name}; expected the path of a video.")
    with path.open("rb") as file:
        head = file.read(16)
        form = next((form for form, begins in BEGINS.items() if re.match(begins, head, re.S)), None)
        if form == "avi" and mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).find(b"#EXTM3U") >= 0:
            form = None  # its subtitles may be a playlist of other files
    if form is None:
        what = "is not a video that can be read" if head else "is empty"
        raise ImageError(f"{name} {what}; expected {READABLE}, whatever its file name. Convert it to MP4.")
    return name, form


def _animated(path: Path, name: str, form: str, glance: bool) -> Iterator[tuple[float, FramePixels]]:
    """Yield seconds and frames by Pillow. A duration of 0 counts as 100 ms, as in browsers."""
    number, milliseconds = 0, 0
    try:
        with Image.open(path, formats=[form]) as image:
            if image.width * image.height > PIXELS:
                raise ValueError
            for number in count():
                image.seek(number)
                image.load()
                yield milliseconds / 1000, np.asarray(rgb_of(image))
                milliseconds += image.info.get("duration") or 100
    except EOFError:  # no more frames
        return
    except Exception as error:  # readers raise nearly anything on broken files
        raise ImageError(_damaged_message(name, number)) from error


def _decoded(path: Path, name: str, form: str, glance: bool) -> Iterator[tuple[float, FramePixels]]:
    """Yield seconds and frames by ffmpeg, which writes frames as PPM and their times on stderr."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        command = [
            get_ffmpeg_exe(), *"-nostdin -hide_banner -nostats -v error -xerror -threads 2".split(),
            *("-max_alloc", str(MEMORY // 4), "-max_pixels", str(PIXELS), "-protocol_whitelist", "file"),
            *("-format_whitelist", form, "-f", form, "-i", f"file:{path.absolute()}", "-map", "0:V:0"),
            *(GLANCE * glance).split(), *"-filter_threads 1 -fps_mode passthrough -pix_fmt rgb24".split(),
            *("-stats_enc_pre", "pipe:2", "-stats_enc_pre_fmt", TELLS),
            *"-c:v ppm -f image2pipe pipe:1".split(),
        ]  # fmt: skip
        if os.name == "posix":
            command = ["/bin/sh", "-c", LIMITED.format(MEMORY // 1024, SECONDS), "sh", *command]
    except (ImportError, RuntimeError):  # not installed, or not for this machine
        raise VitvizError(MISSING) from None
    times, wrong, number, ended = SimpleQueue(), threading.Event(), 0, None

    def listen() -> None:
        for line in process.stderr:  # an error may precede a frame's entry on the line
            for details in TOLD.findall(line):
                times.put(map(int, details))
            if WRONG.search(line):
                wrong.set()
        times.put((-1, 0, 0, 1))

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            while process.stdout.readline() == b"P6\n":
                width, height = map(int, process.stdout.readline().split())
                data = process.stdout.read(4 + 3 * width * height)[4:]  # after "255\n"
                details, shown, units, parts = times.get()
                if len(data) < 3 * width * height:
                    continue  # read to the end
                if details != number:
                    break
                yield shown * units / parts, np.frombuffer(data, np.uint8).reshape(height, width, 3)
                number += 1
            else:
                ended = process.wait()
        finally:  # also if the caller stops reading
            process.kill()
            listener.join()
    if ended in (-9, -24):  # signals sent by ulimit
        raise TooMuch(f"{name} takes more than {SECONDS} s to decode. Choose a shorter or smaller video.")
    if ended != 0 or wrong.is_set():
        raise ImageError(_damaged_message(name, number))


def _damaged_message(name: str, frames: int) -> str:
    """Return the error message for a video of which only `frames` frames could be decoded."""
    return (
        f"Only {frames:,} frames of {name} could be decoded: it has no video track, is incomplete, damaged"
        " or of an unusual kind. Convert it to MP4, or choose an end before that."
    )
