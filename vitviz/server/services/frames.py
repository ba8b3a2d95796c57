"""Pictures that pass: frames of cameras, and of videos that were dropped in, each looked at as a camera's is.

A frame stands until the next but one does, and all that was made of it goes with it. It is in no other memory
than this server's caches, under a key that nobody else has. Who closes the page without a word leaves one,
which is forgotten when nobody has looked at it for a while. A video is decoded once, in a turn; a visitor has
one, which is gone with the next, with who leaves it, or to make room for others.
"""

from __future__ import annotations

import io
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from vitviz.errors import ImageError, whole_number
from vitviz.server.security import request_context, uploads
from vitviz.server.services.cache import Cache, Keys
from vitviz.server.services.work import WorkQueue
from vitviz.traces import cancellation

if TYPE_CHECKING:
    from vitviz.server.services.analysis_service import AnalysisService

T = TypeVar("T")
MOST = 8  # of one visitor: two of every page that looks through a camera at once
LASTS = 20.0  # seconds that a frame stands without a look
SIDE = 640  # pixels of a frame, at most: more than nearly all models are shown
ROOM = 4_000_000  # pixels that decoding takes room for
MAPS = 64  # of the frames seen last, for how much they change
SAMPLED = 16  # frames, evenly over the video, that what all have in common is fitted to
LONGEST = 16  # times as many frames as are kept may be decoded
FITTED = 4  # bases that are kept: two checkpoints, raw tokens and those through the final norm
PUT_AWAY = "The server removed this video to free space. Upload it again."


class FrameStore:
    """Frames of cameras and videos: their owners and when they were last used."""

    def __init__(self, studio: AnalysisService):
        self._studio = studio
        self._standing: dict[str, tuple[str, float, str]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def passing(self, data: bytes, video: str = "", stays: bool = False) -> Iterator[str]:
        """The name of a picture (the bytes of a file, of a `video`'s frame) that stands within this, and
        after it only where it `stays` and nothing failed.
        """
        picture, whose = self._studio.pictures.stand(data), request_context.name()
        with self._lock:
            mine = [one for one, (owner, *_) in self._standing.items() if owner == whose]
            if not self._standing:
                self._watch()
            self._standing[picture] = whose, time.monotonic(), video
        for one in mine[: 1 - MOST]:
            self.forget(one)
        with ExitStack() as leaving:
            leaving.callback(self.forget, picture)
            yield picture
            if stays:
                leaving.pop_all()

    def seen_as(self, key: str, picture: str) -> str:
        """The key of a frame looked at as `key`'s picture is: by that checkpoint, and without the same."""
        run = self._studio.runs.run(key)
        return self._studio.runs.known(picture, run.checkpoint, run.size, without=run.without)

    def picture(self, key: str) -> str | None:
        """Return the frame of a key, if the key is a frame's."""
        run = self._studio.runs.peek(key)
        return run.picture if run is not None and run.picture in self._standing else None

    def video(self, picture: str) -> str:
        """The key of the video that a frame is of; "" of a camera's, and of any other picture."""
        return self._standing.get(picture, ("", 0.0, ""))[2]

    @contextmanager
    def looked_at(self, key: str) -> Iterator[bool]:
        """Around whatever is asked about a key: whether that is a frame's. It stays while it is looked at; of
        one that has been forgotten meanwhile nothing is left behind.
        """
        picture = self.picture(key)
        self._mark(picture, float("inf"))
        try:
            yield picture is not None
        finally:
            if picture is not None and not self._mark(picture, time.monotonic()):
                self._forget(picture, {key})

    def _mark(self, picture: str | None, at: float) -> bool:
        with self._lock:
            if picture not in self._standing:
                return False
            whose, _, video = self._standing[picture]
            self._standing[picture] = whose, at, video
            return True

    def forget(self, picture: str | None) -> None:
        """Delete a frame; any other image stays."""
        with self._lock:
            known = self._standing.pop(picture or "", None)
        if known:
            self._forget(picture, set())

    def _forget(self, picture: str, keys: set[str]) -> None:
        self._studio.forget({picture} | keys | self._studio.runs.forget(picture))
        self._studio.pictures.forget(picture)

    def _watch(self) -> None:
        timer = threading.Timer(LASTS / 2, self._sweep)
        timer.daemon = True
        timer.start()

    def _sweep(self) -> None:
        now = time.monotonic()
        with self._lock:
            old = [one for one, (_, seen, _) in self._standing.items() if now - seen > LASTS]
            if len(old) < len(self._standing):
                self._watch()
        for one in old:
            self.forget(one)


@dataclass(frozen=True)
class Video:
    """`frames`: number in the file, from 0; second at which it is shown; JPEG of the whole picture."""

    whose: str
    frames: list[tuple[int, float, bytes]]
    step: int  # every so many frames of the file
    maps: Cache[Any] = field(default_factory=lambda: Cache(MAPS, lambda one: 1))  # by question and frame
    asked: dict[str, int | None] = field(default_factory=dict)  # what a run takes the first frame for
    fitted: Cache[Any] = field(default_factory=lambda: Cache(FITTED, lambda one: 1))  # by run and name

    @property
    def sampled(self) -> list[tuple[int, float, bytes]]:
        """Return a few of the frames, from the first to the last."""
        return thinned(self.frames, SAMPLED)


class VideoStore:
    """Videos by unguessable keys, bounded in bytes."""

    def __init__(self, keys: Keys, work: WorkQueue, limit: int):
        self._keys, self._work = keys, work
        self._videos: Cache[Video] = Cache(limit, lambda video: sum(len(data) for *_, data in video.frames))

    def keep(self, path: Any) -> str:
        """Decode an upload and return its key. Raises ImageError for no video, TooMuch if it is too long."""
        with self._work.drawing(ROOM), uploads.using([uploads.uploaded(path)]):
            video = self._decoded(uploads.uploaded(path))
        key = self._keys.of(secrets.token_bytes(16))
        self._videos.forget(lambda _, other: other.whose == video.whose)
        self._videos.get(key, lambda: video)
        return key

    def _decoded(self, path: Any) -> Video:
        from vitviz.engine.images.video import frames_of

        limits, kept, step = self._work.limits, [], 1
        most = limits.video_frames
        for one in frames_of(path, 0, None, 1, limits.video_seconds, LONGEST * most):
            cancellation.check()
            if one[0] % step == 0:
                kept.append((*one[:2], _jpeg(one[2])))
            if len(kept) > most:
                kept, step = kept[::2], 2 * step
        return Video(request_context.name(), kept, step)

    def of(self, key: Any) -> Video:
        """Return the video of a key. Raises ImageError if it was evicted."""
        video = self._videos.peek(str(key))
        if video is None:
            raise ImageError(PUT_AWAY)
        return video

    def frame(self, key: Any, at: Any) -> bytes:
        """Return a frame, counted from 0, as a file's bytes."""
        frames = self.of(key).frames
        if whole_number(at, 0, len(frames)) is None:
            raise ImageError(f"There is no such frame; expected 0 to {len(frames) - 1}.")
        return frames[at][2]

    def forget(self, key: Any) -> None:
        """Evict a video."""
        self._videos.forget(lambda name, _: name == key)


def thinned(frames: Sequence[T], most: int) -> list[T]:
    """Return at most `most` evenly spaced items, including the first and the last.

    >>> thinned(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(frames) <= most:
        return list(frames)
    return [frames[round(i * (len(frames) - 1) / (most - 1))] for i in range(most)]


def _jpeg(pixels: Any) -> bytes:
    picture, file = Image.fromarray(pixels), io.BytesIO()
    picture.thumbnail((SIDE, SIDE))
    picture.save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()
