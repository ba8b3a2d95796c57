"""Which weights a checkpoint's name stood for when it was loaded: the files may be replaced while a server
runs.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from vitviz.engine.checkpoint import Checkpoint, Identity
from vitviz.engine.models import hub
from vitviz.engine.models.formats.folder import config_file, weights_file
from vitviz.engine.models.formats.shards import is_index, shards
from vitviz.engine.models.local import BESIDE
from vitviz.engine.models.mapping_file import mapping_file
from vitviz.errors import CheckpointError


class _Stamp(NamedTuple):
    """What tells cheaply that a file is still the one it was; a change's own time cannot be set back by
    anybody.
    """

    path: str
    size: int
    modified: int  # nanoseconds
    changed: int
    number: int


def identity_of(checkpoint: Checkpoint) -> Identity:
    """The present identity of a checkpoint's files. Raises CheckpointError or OSError where they are not
    there.
    """
    stamps = _stamps(checkpoint)
    return Identity(_digest(stamps), stamps)


def unchanged(checkpoint: Checkpoint) -> bool:
    """Whether a loaded checkpoint's files hold what they held when it was loaded; also where they have been
    taken away since.

    One look at each file's size and times as a rule; only where these differ is a file read, once.
    """
    known = checkpoint.identity
    try:
        return known is None or known.stamps == _stamps(checkpoint) or known == identity_of(checkpoint)
    except (CheckpointError, OSError):
        return True


def _stamps(checkpoint: Checkpoint) -> tuple[_Stamp, ...]:
    found = []
    for path in _files(checkpoint):
        status = os.stat(path)
        found.append(_Stamp(str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return tuple(found)


def _files(checkpoint: Checkpoint) -> list[Path]:
    """The weights, all shards of them, and what is read with them."""
    if checkpoint.source == "hub":
        weights = hub.cached_weights(checkpoint.location)
        beside = [found for name in BESIDE if (found := hub.cached(checkpoint.location, name))]
    else:
        place = Path(checkpoint.location)
        weights = weights_file(place) if place.is_dir() else place
        beside = []
        if weights is not None:
            read = (config_file(weights), weights.with_name(BESIDE[1]), mapping_file(weights))
            beside = [path for path in read if path.is_file()]
    if weights is None:
        raise FileNotFoundError(checkpoint.name)
    return [weights, *(shards(weights) if is_index(weights) else ()), *beside]


@lru_cache(maxsize=256)
def _digest(stamps: tuple[_Stamp, ...]) -> str:
    """SHA-256 of all that is in the files, one after the other."""
    digest = hashlib.sha256()
    for stamp in stamps:
        digest.update(b"%s %d\n" % (os.path.basename(stamp.path).encode(), stamp.size))
        with open(stamp.path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
