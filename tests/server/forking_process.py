"""A process as on a ZeroGPU Space, which forks for every program that it receives."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPACE = {"SPACES_ZERO_GPU": "true", "SPACES_ZERO_DEVICE_API_URL": "http://127.0.0.1:9"}

# Imports take longer than the programs, so they happen once, before the forks.
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
        except BaseException: traceback.print_exc()  # the child must not continue
        finally: sys.stdout.flush(), os._exit(0)
    os.wait()
    print("done", flush=True)
"""


def start_forking_process(threads: str) -> subprocess.Popen:
    """Start a process that runs programs.

    For each line [code, output file, arguments] on stdin it prints "done".
    """
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
