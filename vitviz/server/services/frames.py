"""Frames of cameras and of uploaded videos, each traced like a camera frame.

A page keeps its last two frames; everything computed from a frame is deleted with it. Frames exist only in
this server's caches, under a key that nobody else has. A page closed without notice leaves a frame, which is
deleted after a while without use. A video is decoded once, in a turn. Each visitor has one video, which is
removed when the next one arrives, when the visitor ends it, or to free space.
"""

from __future__ import annotations

import io
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from PIL import Image

from vitviz.engine.images.video import frames_of
from vitviz.errors import ImageError, whole_number
from vitviz.server.security import request_context, uploads
from vitviz.server.services.cache import Cache, Keys
from vitviz.server.services.images import ImageStore
from vitviz.server.services.runs import RunStore
from vitviz.server.services.work import WorkQueue
from vitviz.traces import cancellation

T = TypeVar("T")
MOST = 8  # frames of one visitor: two for every page with a running camera
LASTS = 20.0  # seconds that an unused frame is kept
SIDE = 640  # maximum pixels per side; more than nearly all models take
ROOM = 4_000_000  # pixels of memory reserved for decoding
MAPS = 64  # recent maps, from which the change between frames is computed
SAMPLED = 16  # frames, evenly spaced over the video, to which common bases are fitted
LONGEST = 16  # times as many frames as are kept may be decoded
FITTED = 4  # cached bases: two checkpoints, raw tokens and tokens after the final norm
PUT_AWAY = "The server removed this video to free space. Upload it again."


class FrameStore:
    """Frames of cameras and videos: their owners and when they were last used."""

    def __init__(self, images: ImageStore, runs: RunStore, forget: Callable[[set[str]], object]):
        self._images, self._runs = images, runs
        self._forget_results = forget  # deletes everything that was computed from some keys
        self._standing: dict[str, tuple[str, float, str]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def passing(self, data: bytes, video: str = "", stays: bool = False) -> Iterator[str]:
        """Store a frame (a file's bytes, of a `video` if given) inside the context and yield its name.

        With `stays`, the frame remains after the context unless an error occurred.
        """
        image, whose = self._images.add_unchecked(data), request_context.visitor_name()
        with self._lock:
            earlier = [name for name, (owner, *_) in self._standing.items() if owner == whose]
            if not self._standing:
                self._schedule_sweep()
            self._standing[image] = whose, time.monotonic(), video
        for name in earlier[: 1 - MOST]:
            self.forget(name)
        with ExitStack() as leaving:
            leaving.callback(self.forget, image)
            yield image
            if stays:
                leaving.pop_all()

    def traced_like(self, key: str, picture: str) -> str:
        """Return the key of a frame's run like that of `key`: same checkpoint, size and ablation."""
        run = self._runs.run(key)
        return self._runs.known(picture, run.checkpoint, run.size, without=run.without)

    def picture(self, key: str) -> str | None:
        """Return the image key of a run's frame; None if the run's image is no frame."""
        run = self._runs.peek(key)
        return run.picture if run is not None and run.picture in self._standing else None

    def video(self, picture: str) -> str:
        """Return the key of the video that a frame belongs to; "" for camera frames and all other images."""
        return self._standing.get(picture, ("", 0.0, ""))[2]

    @contextmanager
    def in_use(self, key: str) -> Iterator[bool]:
        """Protect a run's frame from deletion inside the context; yield True if its image is a frame.

        If the frame was deleted meanwhile, its results are deleted afterwards.
        """
        picture = self.picture(key)
        self._set_last_use(picture, float("inf"))
        try:
            yield picture is not None
        finally:
            if picture is not None and not self._set_last_use(picture, time.monotonic()):
                self._forget(picture, {key})

    def _set_last_use(self, picture: str | None, seconds: float) -> bool:
        """Set the time of a frame's last use (monotonic seconds; inf keeps it).

        Return False if the image is no frame or was deleted.
        """
        with self._lock:
            if picture not in self._standing:
                return False
            whose, _, video = self._standing[picture]
            self._standing[picture] = whose, seconds, video
            return True

    def forget(self, picture: str | None) -> None:
        """Delete a frame; any other image stays."""
        with self._lock:
            known = self._standing.pop(picture or "", None)
        if known:
            self._forget(picture, set())

    def _forget(self, picture: str, keys: set[str]) -> None:
        """Delete an image, its runs, and all results computed from it, from these runs or `keys`."""
        self._forget_results({picture} | keys | self._runs.forget(picture))
        self._images.forget(picture)

    def _schedule_sweep(self) -> None:
        """Start a daemon timer that calls `_sweep` once, after half of LASTS seconds."""
        timer = threading.Timer(LASTS / 2, self._sweep)
        timer.daemon = True
        timer.start()

    def _sweep(self) -> None:
        """Delete frames unused for more than LASTS seconds; restart the timer while others remain."""
        now = time.monotonic()
        with self._lock:
            old = [name for name, (_, used, _) in self._standing.items() if now - used > LASTS]
            if len(old) < len(self._standing):
                self._schedule_sweep()
        for name in old:
            self.forget(name)


@dataclass(frozen=True)
class Video:
    """Decoded video. `frames` holds (number in the file from 0, seconds, JPEG of the whole image)."""

    whose: str
    frames: list[tuple[int, float, bytes]]
    step: int  # every step-th frame of the file is kept
    maps: Cache[Any] = field(default_factory=lambda: Cache(MAPS, lambda one: 1))  # by request and frame
    asked: dict[str, int | None] = field(default_factory=dict)  # class predicted for the first frame, by run
    fitted: Cache[Any] = field(default_factory=lambda: Cache(FITTED, lambda one: 1))  # by run and name

    @property
    def sampled(self) -> list[tuple[int, float, bytes]]:
        """Return evenly spaced frames, including the first and the last."""
        return thin_out(self.frames, SAMPLED)


class VideoStore:
    """Videos by unguessable keys, bounded in bytes."""

    def __init__(self, keys: Keys, work: WorkQueue, limit: int):
        self._keys, self._work = keys, work
        self._videos: Cache[Video] = Cache(limit, lambda video: sum(len(data) for *_, data in video.frames))

    def add_upload(self, path: Any) -> str:
        """Decode an upload and return its key. Raises ImageError for no video, TooMuch if it is too long."""
        with self._work.drawing(ROOM), uploads.protect_files([uploads.resolve_upload(path)]):
            video = self._decode(uploads.resolve_upload(path))
        key = self._keys.of(secrets.token_bytes(16))
        self._videos.forget(lambda _, other: other.whose == video.whose)
        self._videos.get(key, lambda: video)
        return key

    def _decode(self, path: Any) -> Video:
        """Decode a video file into a new `Video` of every step-th frame as JPEG, without storing it.

        The step doubles until at most `limits.video_frames` are kept. Errors as in `add_upload`.
        """
        limits, kept, step = self._work.limits, [], 1
        most = limits.video_frames
        for one in frames_of(path, 0, None, 1, limits.video_seconds, LONGEST * most):
            cancellation.check()
            if one[0] % step == 0:
                kept.append((*one[:2], _jpeg(one[2])))
            if len(kept) > most:
                kept, step = kept[::2], 2 * step
        return Video(request_context.visitor_name(), kept, step)

    def of(self, key: Any) -> Video:
        """Return the video of a key. Raises ImageError if it was evicted."""
        video = self._videos.peek(str(key))
        if video is None:
            raise ImageError(PUT_AWAY)
        return video

    def frame(self, key: Any, number: Any) -> bytes:
        """Return frame `number`, counted from 0, of a video as the bytes of a file."""
        frames = self.of(key).frames
        if whole_number(number, 0, len(frames)) is None:
            raise ImageError(f"There is no such frame; expected 0 to {len(frames) - 1}.")
        return frames[number][2]

    def forget(self, key: Any) -> None:
        """Evict a video."""
        self._videos.forget(lambda name, _: name == key)


def thin_out(frames: Sequence[T], most: int) -> list[T]:
    """Return at most `most` evenly spaced items, including the first and the last.

    >>> thin_out(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(frames) <= most:
        return list(frames)
    return [frames[round(i * (len(frames) - 1) / (most - 1))] for i in range(most)]


def _jpeg(pixels: Any) -> bytes:
    """Return an RGB array as the bytes of a JPEG file, scaled down to at most SIDE px per side."""
    picture, file = Image.fromarray(pixels), io.BytesIO()
    picture.thumbnail((SIDE, SIDE))
    picture.save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()
