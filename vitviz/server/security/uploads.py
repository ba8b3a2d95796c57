"""Uploaded files: only files uploaded to this app are opened, and their size is bounded.

The one check for the page, its private listeners, the endpoints and surveys. Gradio's own covers only those
payloads that carry its mark (`meta._type`); without it any path on the server would be handed on.
"""

import contextlib
import os
import re
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from gradio import route_utils
from gradio.utils import get_upload_folder

from vitviz.errors import ImageError
from vitviz.server.i18n import mark

LIFETIME = 3_600  # seconds that an upload lies on the disk
NEAR = 8 * 2**20  # free bytes of the disk below which room is made
# The same whether there is such a file elsewhere or not: the difference would tell a stranger what lies on
# the server.
NOT_UPLOADED = mark(
    "This image was not uploaded here or has been removed. Upload it again (on the page, or with "
    "gradio_client's handle_file), or give the name of a sample."
)

ADDRESS = mark(
    "This server does not fetch URLs. Download the image and send the file, such as "
    "handle_file('photo.jpg') in gradio_client."
)
_ADDRESS = re.compile(r"\s*([a-z][a-z0-9+.-]+://|data:)", re.IGNORECASE)


class NotUploaded(ImageError):
    """The named file was not uploaded to this app."""

    def __init__(self, sentence: str = NOT_UPLOADED) -> None:
        super().__init__(sentence)


def inside(path: Any) -> Path:
    """Resolve a path and its links. Raises NotUploaded outside this app's upload folder."""
    if isinstance(path, str) and _ADDRESS.match(path):
        raise NotUploaded(ADDRESS)
    try:
        found, folder = Path(os.path.realpath(path)), Path(os.path.realpath(get_upload_folder()))
    except (OSError, ValueError, TypeError):
        raise NotUploaded from None
    if found == folder or not found.is_relative_to(folder):
        raise NotUploaded
    return found


def uploaded(path: Any) -> Path:
    """Resolve the path of a regular file. Raises NotUploaded for a folder, pipe, device or missing file."""
    found = inside(path)
    if os.path.islink(found) or not os.path.isfile(found):
        raise NotUploaded
    return found


def read(path: Any) -> bytes:
    """Return an upload's bytes. Raises NotUploaded, or ImageError above the size limit of images."""
    from vitviz.engine.images.opening import MAX_BYTES

    # A link or a pipe that took the file's place since is not followed or waited for.
    more = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK"))
    try:
        with open(uploaded(path), "rb", opener=lambda path, flags: os.open(path, flags | more)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotUploaded
            data = file.read(MAX_BYTES + 1)
    except OSError:
        raise NotUploaded from None
    if len(data) > MAX_BYTES:
        raise ImageError(
            f"The upload is larger than {MAX_BYTES // 2**20} MB, the most there may be. Save it smaller."
        )
    return data


_used: Counter[str] = Counter()  # files that are being received or read
_lock = threading.Lock()  # around that count
_parts: ContextVar[list[Any] | None] = ContextVar("vitviz_parts", default=None)


@contextlib.contextmanager
def using(paths: Iterable[Any]) -> Iterator[None]:
    """Protect files from deletion inside the context."""
    names = [os.path.realpath(path) for path in paths]
    _take(names)
    try:
        yield
    finally:
        _release(names)


def _take(names: Iterable[str]) -> None:
    with _lock:
        _used.update(names)


def _release(names: Iterable[str]) -> None:
    with _lock:
        _used.subtract(names)
        for name in [name for name, count in _used.items() if count <= 0]:
            del _used[name]


@contextlib.contextmanager
def receiving() -> Iterator[None]:
    """Around a request that brings files: what Gradio has not put in its place by the end is removed. Gradio
    leaves the parts of a request that breaks off, or finds no room, and those under a name of no meaning.
    """
    parts: list[Any] = []
    token = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(token)
        for part in parts:
            with contextlib.suppress(OSError):  # what was still to be written finds no room
                part.close()
            with contextlib.suppress(OSError):
                Path(part.name).unlink(missing_ok=True)
        _release(os.path.realpath(part.name) for part in parts)


def _part(*given: Any, **named: Any) -> Any:
    """Gradio's temporary file for a part of an upload, registered with its request."""
    part, parts = _temporary(*given, **named), _parts.get()
    if parts is not None:
        parts.append(part)
        _take([os.path.realpath(part.name)])
    return part


_temporary = route_utils.NamedTemporaryFile
route_utils.NamedTemporaryFile = _part  # type: ignore[assignment]


class Quota:
    """Bounds what uploads take on the disk: the oldest go first, and what is older than an hour in any case.
    Gradio removes only what it has registered, and bounds no sum. `kept` are the page's own files. Where the
    disk has less room than the limit, that is the limit.
    """

    def __init__(self, limit: int, kept: Iterable[str] = ()):
        self.limit = limit
        self._kept = {os.path.realpath(path) for path in kept}
        self._held = limit  # bytes on the disk as far as is known; the first upload looks
        self._lock = threading.Lock()

    @property
    def request(self) -> int:
        """Return the size limit of one request, which keeps one upload from displacing all others."""
        return self.limit // 4

    def full(self, arrived: int) -> bool:
        """Count received bytes; return True if it is time to free space."""
        with self._lock:
            self._held += arrived
            return self._held > self.limit or _free() < NEAR

    def make_room(self) -> None:
        """Removes what is too old, and then the oldest until a quarter of the room is free again; never what
        is in use.
        """
        with self._lock:
            files, now = self._files(), time.time()
            held = sum(size for _, size, _ in files)
            room = min(self.limit, held + _free())
            for touched, size, path in sorted(files):
                if os.path.realpath(path) not in _used and (
                    now - touched > LIFETIME or held > room - room // 4
                ):
                    with contextlib.suppress(OSError):
                        Path(path).unlink(missing_ok=True)
                        held -= size
            self._held = held

    def _files(self) -> list[tuple[float, int, str]]:
        found = []
        for folder, _, names in os.walk(get_upload_folder()):
            for path in (os.path.join(folder, name) for name in names):
                with contextlib.suppress(OSError):  # gone meanwhile
                    about = os.lstat(path)
                    if os.path.realpath(path) not in self._kept:
                        found.append((about.st_mtime, about.st_size, path))
            with contextlib.suppress(OSError):  # gone meanwhile, or in use again
                old = not names and time.time() - os.lstat(folder).st_mtime > LIFETIME
                if old and folder != get_upload_folder():
                    os.rmdir(folder)
        return found


def _free() -> int:
    """Return how many bytes the disk of the uploads has left."""
    try:
        return shutil.disk_usage(get_upload_folder()).free
    except OSError:  # there is no folder yet
        return NEAR
