"""From options to a served page, for `python app.py` and `vitviz app`: its folder for what visitors send, its
start and its end. To be imported before Gradio is, which reads the folder's name then.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

try:
    import fcntl
except ImportError:  # Windows: folders of killed runs stay, as no lock tells that nobody uses them
    fcntl = None  # type: ignore[assignment]

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

PREFIX, LOCK, UPLOADS = "vitviz-", "running.lock", "uploads"
# Seconds, a fifth of the usual: who serves a page waits so long, hundreds of times, for each thread that
# computes in Python.
SWITCH = 0.001


class ProcessFolder:
    """A new folder that belongs to this process; `uploads` in it is for Gradio.

    A lock is held on a file beside it as long as the process lives, however it ends: what carries no lock any
    more is removed by the next app that starts, and nothing else is, because the place is shared with other
    programs.
    """

    def __init__(self, parent: str | os.PathLike | None = None):
        place = Path(parent or tempfile.gettempdir())
        place.mkdir(parents=True, exist_ok=True)
        for folder in place.glob(f"{PREFIX}*"):
            if _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
        self._own = tempfile.TemporaryDirectory(prefix=PREFIX, dir=place, ignore_cleanup_errors=True)
        self.path = Path(self._own.name)
        self.uploads = self.path / UPLOADS
        self._lock = (self.path / LOCK).open("w")
        if fcntl:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.uploads.mkdir()  # after the lock: a folder without it is not looked at by others

    def remove(self) -> None:
        """Remove the folder with its contents."""
        self._own.cleanup()


class App:
    """The page for some options, by default the command line's, built; SystemExit where they do not fit."""

    def __init__(self, arguments: Sequence[str] | None = None, program: str = "python app.py"):
        # A folder of this app alone, before Gradio is imported: the usual one is shared, so that apps write
        # over what others are sending, and empty it when they end; and whatever lies in it counts as uploaded
        # here.
        try:
            self._own = ProcessFolder(os.environ.get("GRADIO_TEMP_DIR"))
        except OSError as error:
            sys.exit(
                "There is no place for what visitors upload: no folder can be made in GRADIO_TEMP_DIR, or"
                " where that is not set in the system's folder for temporary files"
                f" ({error.strerror or error}). Set GRADIO_TEMP_DIR to a folder that may be written to."
            )
        os.environ["GRADIO_TEMP_DIR"] = str(self._own.uploads)

        # on a Space with shared GPUs before what touches CUDA
        import vitviz.server.zerogpu  # noqa: F401 # isort: skip
        from vitviz.server.options import parse
        from vitviz.server.page.build import build
        from vitviz.server.services.analysis_service import AnalysisService

        self._options = parse(arguments, program)
        self._studio = AnalysisService(self._options.settings)
        self.demo = build(self._studio)

    def serve(self) -> None:
        """Serve until SIGTERM or Ctrl-C. The exit status is 130 if a request was cut off, else 0."""
        from vitviz.server.page.build import launch

        demo, options = self.demo, self._options  # whose queue is made anew when it is launched
        signal.signal(signal.SIGTERM, lambda *_: self._leave(0))
        # Gradio's own answer to Ctrl-C waits for what computes, and Python may then end beneath it, by an
        # abort.
        signal.signal(signal.SIGINT, lambda *_: self._leave(130 if any(demo._queue.active_jobs) else 0))
        sys.setswitchinterval(SWITCH)
        try:
            launch(demo, self._studio, options)
        except OSError as error:
            if "port" not in str(error):
                raise
            print(
                f"Port {options.port} on {options.host} is taken by another program, or the address is not "
                "one of this machine's. Choose another with --port or --host.",
                file=sys.stderr,
                flush=True,
            )
            self._leave(1)

    def _leave(self, status: int) -> NoReturn:
        """Clean up and exit at once, because a normal exit under a computing thread aborts."""
        from gradio.tunneling import CURRENT_TUNNELS

        for tunnel in CURRENT_TUNNELS:  # programs of their own, which would go on
            tunnel.kill()
        self._own.remove()
        with contextlib.suppress(RuntimeError):  # interrupted in the middle of printing
            sys.stdout.flush()
        os._exit(status)


def _abandoned(folder: Path) -> bool:
    """True if the folder belongs to an app of this user that no longer runs."""
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
