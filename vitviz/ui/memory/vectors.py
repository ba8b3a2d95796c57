"""Classes by vectors of a visitor's own, in a file that the page is given: for models without a text tower.

They are kept in memory by the first letters of their digest, which a checkpoint's name then carries. The file
is a stranger's: of a zip only the arrays that are known by name are inflated, and never too much of them.
"""

import io
from dataclasses import fields

import numpy as np

from vitviz.errors import Unknown, VitvizError
from vitviz.record.asked import vectors_of, with_vectors
from vitviz.record.classes import Classes, tensors_in
from vitviz.ui.door import zips
from vitviz.ui.memory.cache import Cache, bytes_of

MOST, WRITTEN = 1_000, 100_000  # classes of a file, and the characters of their labels
NBYTES = 16 * 2**20  # of one array
AWAY = "The vectors that this names are not on this server, or no longer. Give it their file once more."


class Vectors:
    """Those of all visitors, bounded in bytes."""

    def __init__(self, limit: int):
        self._kept: Cache[tuple[Classes, bytes]] = Cache(limit, bytes_of)

    def named(self, checkpoint: str, data: bytes, called: str) -> str:
        """The checkpoint's name with the classes of a file; VitvizError for none, or for too many of them."""
        found = read(data, called)
        name = with_vectors(checkpoint, found.digest)
        self._kept.get(vectors_of(name), lambda: (found, data))
        return name

    def of(self, name: str) -> tuple[Classes, bytes] | None:
        """Those that a checkpoint's name carries, and their file, or None; Unknown once they are gone."""
        key = vectors_of(name)
        found = self._kept.peek(key) if key else None
        if key and found is None:
            raise Unknown(AWAY)
        return found


def read(data: bytes, called: str) -> Classes:
    """The classes in the bytes of a .npz or .safetensors file; errors as of `Vectors.named`."""

    def found():
        if not data.startswith(b"PK"):
            return tensors_in(data)
        wanted = {f"{one.name}.npy": NBYTES for one in fields(Classes)}
        parts = zips.files(io.BytesIO(data), wanted).items()
        return {name[:-4]: np.load(io.BytesIO(part), allow_pickle=False) for name, part in parts}

    classes = Classes.of(found, called)
    count, long = len(classes.labels), sum(map(len, classes.labels))
    if count > MOST or long > WRITTEN:
        raise VitvizError(
            f"{called} holds {count} classes of {long} characters; expected up to {MOST} of {WRITTEN} in all."
        )
    return classes
