"""Uploaded files: only files uploaded to this app are opened, and their size is limited.

This is the only check for the page, its private listeners, the endpoints and surveys. Gradio's own check
covers only payloads that carry its mark (`meta._type`); without the mark, any path on the server would pass.
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

LIFETIME = 3_600  # seconds that an upload is kept
NEAR = 8 * 2**20  # free bytes of the disk below which space is freed
# Identical whether or not such a file exists elsewhere: a difference would reveal what is on the server.
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


def resolve_inside(path: Any) -> Path:
    """Resolve a path and its links. Raises NotUploaded outside this app's upload folder."""
    if isinstance(path, str) and _ADDRESS.match(path):
        raise NotUploaded(ADDRESS)
    try:
        result, folder = Path(os.path.realpath(path)), Path(os.path.realpath(get_upload_folder()))
    except (OSError, ValueError, TypeError):
        raise NotUploaded from None
    if result == folder or not result.is_relative_to(folder):
        raise NotUploaded
    return result


def resolve_upload(path: Any) -> Path:
    """Resolve the path of a regular file. Raises NotUploaded for a folder, pipe, device or missing file."""
    result = resolve_inside(path)
    if os.path.islink(result) or not os.path.isfile(result):
        raise NotUploaded
    return result


def read_upload(path: Any) -> bytes:
    """Return an upload's bytes. Raises NotUploaded, or ImageError above the size limit of images."""
    from vitviz.engine.images.opening import MAX_BYTES

    # Don't follow a link, or wait for a pipe, that has replaced the file since the check.
    more = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK"))
    try:
        with open(resolve_upload(path), "rb", opener=lambda path, flags: os.open(path, flags | more)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotUploaded
            data = file.read(MAX_BYTES + 1)
    except OSError:
        raise NotUploaded from None
    if len(data) > MAX_BYTES:
        most = f"{MAX_BYTES // 2**20} MB, the most there may be"
        raise ImageError(f"The upload is larger than {most}. Save it smaller.")
    return data


_used: Counter[str] = Counter()  # files that are being received or read
_lock = threading.Lock()  # guards the count
_parts: ContextVar[contextlib.ExitStack | None] = ContextVar("vitviz_parts", default=None)


@contextlib.contextmanager
def protect_files(paths: Iterable[Any]) -> Iterator[None]:
    """Protect files from deletion by `Quota.make_room` inside the context."""
    names = [os.path.realpath(path) for path in paths]
    with _lock:
        _used.update(names)
    try:
        yield
    finally:
        with _lock:
            _used.subtract(names)
            for name in [name for name, count in _used.items() if count <= 0]:
                del _used[name]


@contextlib.contextmanager
def remove_incomplete_parts() -> Iterator[None]:
    """Delete the parts of an upload that Gradio has not moved into place by the end.

    Gradio leaves the parts of aborted requests, of requests that fill the disk, and of unknown form fields.
    """
    with contextlib.ExitStack() as parts:
        parts.callback(_parts.reset, _parts.set(parts))
        yield


def _registered_part(*given: Any, **named: Any) -> Any:
    """Return Gradio's temporary file for a part of an upload, registered with the request."""
    part, parts = _temporary(*given, **named), _parts.get()
    if parts is not None:
        parts.enter_context(protect_files([part.name]))
        parts.callback(_delete, part)
    return part


def _delete(part: Any) -> None:
    """Close and delete a part of an upload, if Gradio has not moved it."""
    with contextlib.suppress(OSError):  # buffered data may not fit on the disk
        part.close()
    with contextlib.suppress(OSError):
        Path(part.name).unlink(missing_ok=True)


_temporary = route_utils.NamedTemporaryFile
route_utils.NamedTemporaryFile = _registered_part  # type: ignore[assignment]


class Quota:
    """Disk limit of uploads.

    The oldest files are deleted first, and every file after an hour. Gradio deletes only files that it has
    registered, and has no limit on the total. `kept` are the page's own files. If the disk has less space
    than the limit, the available space is the limit.
    """

    def __init__(self, limit: int, kept: Iterable[str] = ()):
        self.limit = limit
        self._kept = {os.path.realpath(path) for path in kept}
        self._held = limit  # estimated bytes on the disk; the first upload measures
        self._lock = threading.Lock()

    @property
    def request(self) -> int:
        """Return the size limit of one request, which keeps one upload from displacing all others."""
        return self.limit // 4

    def full(self, arrived: int) -> bool:
        """Count `arrived` bytes; return True if the limit is exceeded or the disk is nearly full."""
        with self._lock:
            self._held += arrived
            return self._held > self.limit or _free() < NEAR

    def make_room(self) -> None:
        """Delete expired files, then the oldest until a quarter of the limit is free; never files in use."""
        with self._lock:
            files, now = self._files(), time.time()
            held = sum(size for _, size, _ in files)
            room = min(self.limit, held + _free())
            for touched, size, path in sorted(files):
                unneeded = now - touched > LIFETIME or held > room - room // 4
                if unneeded and os.path.realpath(path) not in _used:
                    with contextlib.suppress(OSError):
                        Path(path).unlink(missing_ok=True)
                        held -= size
            self._held = held

    def _files(self) -> list[tuple[float, int, str]]:
        """Return (modification time, bytes, path) of every upload except the page's own files.

        Remove empty upload folders that have not changed for LIFETIME seconds.
        """
        result = []
        for folder, _, names in os.walk(get_upload_folder()):
            for path in (os.path.join(folder, name) for name in names):
                with contextlib.suppress(OSError):  # deleted meanwhile
                    about = os.lstat(path)
                    if os.path.realpath(path) not in self._kept:
                        result.append((about.st_mtime, about.st_size, path))
            with contextlib.suppress(OSError):  # deleted meanwhile, or in use again
                old = not names and time.time() - os.lstat(folder).st_mtime > LIFETIME
                if old and folder != get_upload_folder():
                    os.rmdir(folder)
        return result


def _free() -> int:
    """Return the free bytes of the disk that holds the uploads."""
    try:
        return shutil.disk_usage(get_upload_folder()).free
    except OSError:  # the folder does not exist yet
        return NEAR
