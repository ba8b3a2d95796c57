"""Videos that were dropped in, as their frames: decoded once, in a turn, and each looked at as a camera's is.

A visitor has one, which is gone with the next, with who leaves it, or to make room for others.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from PIL import Image

from vitviz.errors import ImageError, whole_number
from vitviz.record import stopping
from vitviz.ui.door import uploads, visitor
from vitviz.ui.memory.cache import Cache, Keys
from vitviz.ui.memory.work import Work

T = TypeVar("T")
SIDE = 640  # pixels of a frame, at most: more than nearly all models are shown
ROOM = 4_000_000  # pixels that decoding takes room for
MAPS = 64  # of the frames seen last, for how much they change
SAMPLED = 16  # frames, evenly over the video, that what all have in common is fitted to
LONGEST = 16  # times as many frames as are kept may be decoded
FITTED = 4  # bases that are kept: two checkpoints, raw tokens and those through the final norm
PUT_AWAY = "The server has put this video away to make room for others. Drop it in once more."


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
        """A few of its frames, from the first to the last."""
        return thinned(self.frames, SAMPLED)

    @property
    def nbytes(self) -> int:
        return sum(len(data) for *_, data in self.frames)


class Videos:
    """Videos by keys that nobody guesses, bounded in bytes."""

    def __init__(self, keys: Keys, work: Work, limit: int):
        self._keys, self._work = keys, work
        self._videos: Cache[Video] = Cache(limit, lambda video: video.nbytes)

    def keep(self, path: Any) -> str:
        """Decodes an upload and returns its key; ImageError for no video, TooMuch for too long a one."""
        with self._work.drawing(ROOM):
            video = self._decoded(uploads.uploaded(path))
        key = self._keys.of(secrets.token_bytes(16))
        self._videos.forget(lambda _, other: other.whose == video.whose)
        self._videos.get(key, lambda: video)
        return key

    def _decoded(self, path: Any) -> Video:
        from vitviz.engine.pictures.video import frames_of

        limits, kept, step = self._work.limits, [], 1
        most = limits.video_frames
        for one in frames_of(path, 0, None, 1, limits.video_seconds, LONGEST * most):
            stopping.check()
            if one[0] % step == 0:
                kept.append((*one[:2], _jpeg(one[2])))
            if len(kept) > most:
                kept, step = kept[::2], 2 * step
        return Video(visitor.name(), kept, step)

    def of(self, key: Any) -> Video:
        """The video of a key; ImageError for one that is no longer there."""
        video = self._videos.peek(str(key))
        if video is None:
            raise ImageError(PUT_AWAY)
        return video

    def frame(self, key: Any, at: Any) -> bytes:
        """A frame, counted from 0, as a file's bytes."""
        frames = self.of(key).frames
        if whole_number(at, 0, len(frames)) is None:
            raise ImageError(f"There is no such frame; expected 0 to {len(frames) - 1}.")
        return frames[at][2]

    def forget(self, key: Any) -> None:
        """Puts a video out."""
        self._videos.forget(lambda name, _: name == key)


def thinned(frames: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly out of all, the first and the last among them.

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
