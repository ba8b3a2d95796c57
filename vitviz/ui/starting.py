"""From options to a served page, for `python app.py` and `vitviz app`. To be imported before Gradio is."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from vitviz.ui.serving.folder import Folder

if TYPE_CHECKING:
    from vitviz.ui.options import Options
    from vitviz.ui.serving.studio import Studio


@dataclass(frozen=True)
class Begun:
    """The page, built and not yet served."""

    own: Folder
    options: Options
    studio: Studio
    demo: Any


def begun(arguments: Sequence[str] | None = None, program: str = "python app.py") -> Begun:
    """Builds the page for some options, by default the command line's; SystemExit where they do not fit."""
    # A folder of this app alone, before Gradio is imported: the usual one is shared, so that apps write over
    # what others are sending, and empty it when they end; and whatever lies in it counts as uploaded here.
    own = Folder(os.environ.get("GRADIO_TEMP_DIR"))
    os.environ["GRADIO_TEMP_DIR"] = str(own.uploads)

    # on a Space with shared GPUs before what touches CUDA
    import vitviz.ui.serving.zerogpu  # noqa: F401 # isort: skip
    from vitviz.ui.options import parse
    from vitviz.ui.page import build
    from vitviz.ui.serving.studio import Studio

    options = parse(arguments, program)
    studio = Studio(options.settings)
    return Begun(own, options, studio, build(studio))


def serve(app: Begun) -> None:
    """Serves until it is told to stop: by a service (SIGTERM), or by Ctrl-C, which ends with 130 where a
    visitor's question was cut off, else with 0.
    """
    from vitviz.ui.page import launch

    signal.signal(signal.SIGTERM, lambda *_: _leave(app, 0))
    # Gradio's own answer to Ctrl-C waits for what computes, and Python may then end beneath it, by an abort.
    signal.signal(signal.SIGINT, lambda *_: _leave(app, 130 if any(app.demo._queue.active_jobs) else 0))
    options = app.options
    try:
        launch(app.demo, app.studio, options)
    except OSError as error:
        if "port" not in str(error):
            raise
        print(
            f"Port {options.port} on {options.host} is taken by another program, or the address is not "
            "one of this machine's. Choose another with --port or --host.",
            file=sys.stderr,
            flush=True,
        )
        _leave(app, 1)


def _leave(app: Begun, status: int) -> NoReturn:
    """Cleans up and ends at once, waiting for nobody: ending beneath a thread that computes aborts."""
    from gradio.tunneling import CURRENT_TUNNELS

    for tunnel in CURRENT_TUNNELS:  # programs of their own, which would go on
        tunnel.kill()
    app.own.remove()
    with contextlib.suppress(RuntimeError):  # interrupted in the middle of printing
        sys.stdout.flush()
    os._exit(status)


__all__ = ["Begun", "begun", "serve"]
