"""Starts vitviz: `python app.py`, then open the address it prints. `python app.py --help` lists the options."""

import gc
import os

gc.disable()  # what is imported stays; looking for garbage among it cost a fifth of the start. `page._warm_up` enables it again
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import vitviz.ui.zerogpu  # noqa: F401 # isort: skip - first: on a Space with shared GPUs before anything that touches CUDA
from vitviz.ui.options import parse
from vitviz.ui.page import build, launch
from vitviz.ui.studio import Studio

options = parse()
studio = Studio(options.settings)
demo = build(studio)

if __name__ == "__main__":
    launch(demo, studio, options)
