"""The pictures that were dropped in, kept by a name that cannot be guessed."""

from __future__ import annotations

import hashlib
import io
import os
import secrets

import numpy as np

from vitviz import samples
from vitviz.errors import ImageError
from vitviz.figures.encode import encoded
from vitviz.ui.serving import uploads
from vitviz.ui.serving.cache import Cache

PUT_AWAY = "The server has put this picture away to make room for others. Drop it in once more."


class Pictures:
    """Uploads and samples as files in memory, bounded in bytes, each under a salted hash of it."""

    def __init__(self, limit: int):
        self._salt = secrets.token_bytes(16)
        self._pictures: Cache[bytes] = Cache(limit, len)

    def keep_picture(self, path: str | os.PathLike) -> str:
        """Remembers an upload and returns its key; ImageError for what is no picture or no upload."""
        return self.keep_bytes(uploads.read(path))

    def keep_bytes(self, data: bytes) -> str:
        """The same for a file that has been read."""
        from vitviz.engine.pictures.images import open_image

        key = self._key(data)
        if self._pictures.peek(key) is None:
            open_image(io.BytesIO(data))
            self._pictures.get(key, lambda: data)
        return key

    def keep_sample(self, name: str) -> str:
        """The same for a sample picture."""
        key = self._sample_key(name)
        self._pictures.get(
            key, lambda: encoded(np.asarray(samples.sample_image(name).convert("RGB")), ".png")
        )
        return key

    def has_picture(self, key: str) -> bool:
        """Whether a picture is still there."""
        return self._pictures.peek(key) is not None

    def sample_of(self, key: str) -> str | None:
        """The sample that a picture's key stands for; None for a picture of one's own."""
        return next((one.name for one in samples.samples() if self._sample_key(one.name) == key), None)

    def picture(self, key: str):
        """The upright upload in RGB."""
        from vitviz.engine.pictures.images import open_image

        data = self._pictures.peek(key)
        if data is None:
            raise ImageError(PUT_AWAY)
        return open_image(io.BytesIO(data))

    def _sample_key(self, name: str) -> str:
        return self._key(b"sample", name.encode(errors="surrogatepass"))

    def _key(self, *parts: bytes) -> str:
        digest = hashlib.blake2b(key=self._salt, digest_size=20)
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()
