"""Uploaded images, stored under unguessable names."""

import io
import os
import secrets
from functools import partial

import numpy as np

from vitviz.charts.encode import encode_image
from vitviz.engine.images import editing, opening
from vitviz.errors import ImageError
from vitviz.server.security import uploads
from vitviz.server.services.cache import Cache, Keys, key_contains
from vitviz.traces import samples
from vitviz.traces.image_edits import NONE, ImageEdits

PUT_AWAY = "The server removed this image to free space. Upload it again."


class ImageStore:
    """Uploads and samples as files in memory, limited in bytes, each under a salted hash of its bytes."""

    def __init__(self, keys: Keys, limit: int):
        self._keys = keys
        self._pictures: Cache[bytes] = Cache(limit, len)
        self._pixels: Cache[np.ndarray] = Cache(limit // 4, lambda pixels: pixels.nbytes)

    def add_upload(self, path: str | os.PathLike) -> str:
        """Store an upload and return its key. Raises ImageError if it is no image or no upload."""
        return self.keep_bytes(uploads.read_upload(path))

    def keep_bytes(self, data: bytes) -> str:
        """Store a file's bytes and return the key."""
        key = self._keys.of(data)
        if self._pictures.peek(key) is None:
            opening.open_image(io.BytesIO(data))
            self._pictures.get(key, lambda: data)
        return key

    def add_unchecked(self, data: bytes) -> str:
        """Store unchecked bytes, which may be no image, and return their random key."""
        key = self._keys.of(secrets.token_bytes(16))
        self._pictures.get(key, lambda: data)
        return key

    def forget(self, key: str) -> None:
        """Evict an image."""
        for kept in (self._pictures, self._pixels):
            kept.forget(lambda name, _: key_contains(name, [key]))

    def sample(self, name: str) -> str:
        """Store a sample and return its key."""
        key = self._sample_key(name)
        self._pictures.get(key, lambda: encode_image(np.asarray(samples.sample_image(name)), ".png"))
        return key

    def has(self, key: str) -> bool:
        """True if an image is still stored."""
        return self._pictures.peek(key) is not None

    def sample_of(self, key: str) -> str | None:
        """Return the name of the sample with a key; None for an upload."""
        names = (sample.name for sample in samples.samples())
        return next((name for name in names if self._sample_key(name) == key), None)

    def called(self, name: str) -> str:
        """Return the key of the sample with this name; any other text is a key and returned as it is."""
        return self.sample(name) if name in [sample.name for sample in samples.samples()] else name

    def ground(self, key: str, strokes: ImageEdits) -> str:
        """Return the key of the image that edits apply to last: the other if a region was pasted onto it."""
        return self.called(strokes.ground) if strokes.ground else key

    def opened(self, key: str, strokes: ImageEdits = NONE):
        """Return the upright upload in RGB, with edits applied."""
        if strokes:
            return editing.mark_edited(self.pixels(key, strokes), strokes.told())
        return opening.open_image(self._file(key))

    def _file(self, key: str) -> bytes:
        """Return the bytes of an upload. Raises ImageError if it was evicted."""
        data = self._pictures.peek(key)
        if data is None:
            raise ImageError(PUT_AWAY)
        return data

    def pixels(self, key: str, strokes: ImageEdits = NONE) -> np.ndarray:
        """Return the edited image as a read-only array, shared by all frames of a video."""

        def make() -> np.ndarray:
            if not strokes:
                return _held(opening.pixels_of(self.opened(key)))
            other = self._file(strokes.own) if strokes.own else None
            return _held(editing.edited_pixels(self._file(key), strokes.told(), other))

        return self._pixels.get((key, strokes.text()), make)

    def drawn(self, key: str, strokes: ImageEdits = NONE) -> np.ndarray:
        """Return the edited image as a read-only array, reduced to the largest size that is drawn."""
        made = partial(self.pixels, key, strokes) if strokes else partial(self.opened, key)
        place = ("drawn", key, strokes.text())
        return self._pixels.get(place, lambda: _held(opening.open_for_drawing(made())))

    def _sample_key(self, name: str) -> str:
        """Return the key of the sample image of this name; the name need not exist."""
        return self._keys.of(b"sample", name.encode(errors="surrogatepass"))


def _held(pixels: np.ndarray) -> np.ndarray:
    """Return the pixels, made read-only."""
    pixels.setflags(write=False)
    return pixels
