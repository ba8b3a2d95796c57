"""From options to a served page, for `python app.py` and `vitviz app`. To be imported before Gradio is."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    import vitviz.ui.serving.zerogpu  # noqa: F401 # isort: skip - on a Space with shared GPUs before what touches CUDA
    from vitviz.ui.options import parse
    from vitviz.ui.page import build
    from vitviz.ui.serving.studio import Studio

    options = parse(arguments, program)
    studio = Studio(options.settings)
    return Begun(own, options, studio, build(studio))


def serve(app: Begun) -> None:
    """Serves until it is told to stop."""
    from vitviz.ui.page import launch

    def stopped(*_) -> None:
        """A service that is told to stop cleans up as after Ctrl-C, and waits for nobody."""
        app.own.remove()
        os._exit(0)

    signal.signal(signal.SIGTERM, stopped)
    options = app.options
    with contextlib.suppress(KeyboardInterrupt):  # Gradio's own, but for the seconds in which it starts
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
            app.own.remove()
            os._exit(1)  # waits for nobody: ending beneath the thread that looks at the first picture aborts


__all__ = ["Begun", "begun", "serve"]
