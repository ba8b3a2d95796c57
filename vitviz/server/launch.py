"""Start and stop the page for `python app.py` and `vitviz app`; owns the folder for uploads.

Import this module before Gradio, because Gradio reads the name of the upload folder when it is imported.
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
except ImportError:  # Windows has no locks, so folders of killed runs are never removed
    fcntl = None  # type: ignore[assignment]

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

PREFIX, LOCK, UPLOADS = "vitviz-", "running.lock", "uploads"
# Seconds, a fifth of Python's default. The serving thread waits this long, hundreds of times, for each thread
# that computes in Python.
SWITCH = 0.001


class ProcessFolder:
    """Temporary folder of this process; Gradio's uploads go into its `uploads`.

    The process locks a file in the folder as long as the process lives, however it ends. The next app removes
    folders with an unlocked lock file and nothing else, because other programs share the parent folder.
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
        self.uploads.mkdir()  # after the lock: other processes ignore a folder without uploads/

    def remove(self) -> None:
        """Remove the folder with its contents."""
        self._own.cleanup()


class App:
    """Build the page from command-line options. Raises SystemExit if they are invalid."""

    def __init__(self, arguments: Sequence[str] | None = None, program: str = "python app.py"):
        # Create a private folder before Gradio is imported. Apps share Gradio's default folder: they
        # overwrite each other's uploads and empty it when they end, and every file in it counts as an upload.
        try:
            self._own = ProcessFolder(os.environ.get("GRADIO_TEMP_DIR"))
        except OSError as error:
            sys.exit(
                "Uploads have no folder: none can be created in GRADIO_TEMP_DIR or, where that is not set,"
                f" in the system's folder for temporary files ({error.strerror or error}). Set"
                " GRADIO_TEMP_DIR to a writable folder."
            )
        os.environ["GRADIO_TEMP_DIR"] = str(self._own.uploads)

        # on a Space with shared GPUs, import before anything that touches CUDA
        import vitviz.server.zerogpu  # noqa: F401 # isort: skip
        from vitviz.server.options import parse_options
        from vitviz.server.page.build import build_page
        from vitviz.server.services.analysis_service import AnalysisService

        self._options = parse_options(arguments, program)
        self._service = AnalysisService(self._options.settings)
        self.demo = build_page(self._service)

    def serve(self) -> None:
        """Serve until SIGTERM or Ctrl-C. The exit status is 130 if a request was cut off, else 0."""
        from vitviz.server.page.build import launch

        demo, options = self.demo, self._options  # the queue is created anew at launch, so look it up late
        signal.signal(signal.SIGTERM, lambda *_: self._leave(0))
        # Gradio's own Ctrl-C handler waits for running computations; Python may then abort under them.
        signal.signal(signal.SIGINT, lambda *_: self._leave(130 if any(demo._queue.active_jobs) else 0))
        sys.setswitchinterval(SWITCH)
        try:
            launch(demo, self._service, options)
        except OSError as error:
            if "port" not in str(error):
                raise
            taken = (
                f"Port {options.port} on {options.host} is taken by another program, or the address is not"
            )
            advice = "one of this machine's. Choose another with --port or --host."
            print(taken, advice, file=sys.stderr, flush=True)
            self._leave(1)

    def _leave(self, status: int) -> NoReturn:
        """Clean up and exit at once, because a normal exit under a computing thread aborts."""
        from gradio.tunneling import CURRENT_TUNNELS

        for tunnel in CURRENT_TUNNELS:  # separate processes, which would keep running
            tunnel.kill()
        self._own.remove()
        with contextlib.suppress(RuntimeError):  # interrupted while printing
            sys.stdout.flush()
        os._exit(status)


def _abandoned(folder: Path) -> bool:
    """True if the folder belongs to an app of this user that no longer runs."""
    if not fcntl:
        return False
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / UPLOADS).is_dir():
            return False
        with open(
            folder / LOCK, "r+", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW)
        ) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # no lock file, or the app is running
        return False
    return True
