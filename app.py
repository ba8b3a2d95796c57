"""Starts vitviz: `python app.py`, then open the address it prints. `python app.py --help` lists the options."""

import contextlib
import gc
import os
import signal
import tempfile

gc.disable()  # what is imported stays; looking for garbage among it cost a fifth of the start. `page._warm_up` enables it again
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
own = None
if "GRADIO_TEMP_DIR" not in os.environ:  # the usual one is shared: apps write over what others are sending, and empty it when they end
    own = tempfile.TemporaryDirectory(prefix="vitviz-", ignore_cleanup_errors=True)
    os.environ["GRADIO_TEMP_DIR"] = own.name

import vitviz.ui.zerogpu  # noqa: F401 # isort: skip - first: on a Space with shared GPUs before anything that touches CUDA
from vitviz.ui.options import parse
from vitviz.ui.page import build, launch
from vitviz.ui.studio import Studio


def stopped(*_) -> None:
    """A service that is told to stop cleans up as after Ctrl-C, and waits for nobody."""
    if own is not None:
        own.cleanup()
    os._exit(0)


options = parse()
studio = Studio(options.settings)
demo = build(studio)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stopped)
    with contextlib.suppress(KeyboardInterrupt):  # Gradio's own, but for the seconds in which it starts
        launch(demo, studio, options)
