"""A process as on a Space with shared GPUs, which forks for every program that it is handed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPACE = {"SPACES_ZERO_GPU": "true", "SPACES_ZERO_DEVICE_API_URL": "http://127.0.0.1:9"}

# Everything is imported once, and a fork made for every program: an import takes longer than all they do.
IMPORTS = """
import vitviz.server.zerogpu
import json, os, sys, traceback, gradio as gr, numpy as np, spaces, timm, torch
from gradio.context import LocalContext
from vitviz.views import VIEWS
from vitviz.server.options import parse_options
from vitviz.server.page.figures import figure_value
from vitviz.server.services.analysis_service import AnalysisService
def visitor(): LocalContext.request.set(gr.Request())
for line in sys.stdin:
    code, out, arguments = json.loads(line)
    if not os.fork():
        os.dup2(os.open(out, os.O_CREAT | os.O_WRONLY), 1)
        os.dup2(1, 2)
        service = AnalysisService(parse_options(arguments).settings)
        chelsea = service.pictures.sample("chelsea")
        try: exec(code)
        except BaseException: traceback.print_exc()  # whatever it is, it must not go on in the child
        finally: sys.stdout.flush(), os._exit(0)
    os.wait()
    print("done", flush=True)
"""


def process(threads: str) -> subprocess.Popen:
    """Takes a line [code, file for what it prints, arguments] and says "done" for each."""
    path = os.pathsep.join([str(ROOT / "tests/server/simulated"), str(ROOT)])
    environment = {**os.environ, **SPACE, "PYTHONPATH": path, "OMP_NUM_THREADS": threads}
    return subprocess.Popen(
        [sys.executable, "-c", IMPORTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )
