"""Frames of cameras: each stands until the next but one does, and all that was made of it goes with it.

A frame is in no other memory than this server's caches, under a key that nobody else has. Who closes the page
without a word leaves one, which is forgotten when nobody has looked at it for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from vitviz.ui.door import visitor

if TYPE_CHECKING:
    from vitviz.ui.memory.studio import Studio

MOST = 8  # of one visitor: two of every page that looks through a camera at once
LASTS = 20.0  # seconds that a frame stands without a look


class Frames:
    """Which pictures are frames, whose they are, and when they were last looked at."""

    def __init__(self, studio: Studio):
        self._studio = studio
        self._standing: dict[str, tuple[str, float, str]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def passing(self, data: bytes, video: str = "", stays: bool = False) -> Iterator[str]:
        """The name of a picture (the bytes of a file, of a `video`'s frame) that stands within this, and
        after it only where it `stays` and nothing failed.
        """
        picture, whose = self._studio.pictures.stand(data), visitor.name()
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
        """The frame that a key stands for, if it is one."""
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
        """Forgets a frame; any other picture stays."""
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
