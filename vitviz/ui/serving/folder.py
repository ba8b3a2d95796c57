"""The folder of one running app for what visitors send, and an end to those that killed runs have left.

Without Gradio, which reads the folder's name when it is imported.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: folders of killed runs stay, as no lock tells that nobody uses them
    fcntl = None  # type: ignore[assignment]

PREFIX, LOCK, UPLOADS = "vitviz-", "running.lock", "uploads"


class Folder:
    """A new folder that belongs to this process; `uploads` in it is for Gradio.

    A lock is held on a file beside it as long as the process lives, however it ends: what carries no lock any
    more is removed by the next app that starts, and nothing else is, because the place is shared with other
    programs.
    """

    def __init__(self, parent: str | os.PathLike | None = None):
        place = Path(parent or tempfile.gettempdir())
        place.mkdir(parents=True, exist_ok=True)
        remove_abandoned(place)
        self._own = tempfile.TemporaryDirectory(prefix=PREFIX, dir=place, ignore_cleanup_errors=True)
        self.path = Path(self._own.name)
        self.uploads = self.path / UPLOADS
        self._lock = (self.path / LOCK).open("w")
        if fcntl:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.uploads.mkdir()  # after the lock: a folder without it is not looked at by others

    def remove(self) -> None:
        """Removes it with everything in it."""
        self._own.cleanup()


def remove_abandoned(place: Path) -> list[Path]:
    """Removes the folders of apps of this user that no longer run, and returns them."""
    removed = []
    for folder in place.glob(f"{PREFIX}*"):
        if _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _abandoned(folder: Path) -> bool:
    if not fcntl:
        return False
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / UPLOADS).is_dir():
            return False
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:  # its app is running
        return False
    finally:
        os.close(lock)
