"""A child process forked after a trace computes on one thread, because it has none of its
parent's threads.
"""

import os
import subprocess
import sys

import pytest

from tests.engine.models.hostile import save_valid_checkpoint
from tests.engine.models.hub_server import ROOT

pytestmark = pytest.mark.processes

START = """
import numpy as np, os, sys, torch, vitviz
torch.set_num_threads(4)
inspector = vitviz.load("vitviz-tiny", device="cpu")
picture = np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8)
mine = inspector.trace(picture, size=448).logits
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_computes():
    code = (
        START
        + """
child = os.fork()
if not child:
    theirs = inspector.trace(picture, size=448).logits
    os._exit(0 if torch.allclose(mine, theirs, atol=1e-4) and torch.get_num_threads() == 1 else 3)
import time
for _ in range(300):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        assert torch.get_num_threads() == 4
        sys.exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.1)
os.kill(child, 9)
sys.exit("the child hangs")
"""
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_does_not_wait_for_locks_of_parent_threads(tmp_path):
    """No thread of the child would release a lock that another thread of the parent held at the fork."""
    save_valid_checkpoint(tmp_path, "pth")
    code = f"""
import os, signal, threading, vitviz
from vitviz.engine.hub import downloads
from vitviz.engine.formats import weights
vitviz.load({str(tmp_path)!r}, device="cpu")
held = threading.Event()
def holding():
    with weights._UNPICKLING, downloads._lock:
        downloads._jobs["some", None, "file"] = downloads._Job(1, "")
        held.set(), threading.Event().wait()
threading.Thread(target=holding, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(30)
    vitviz.load({str(tmp_path)!r}, device="cpu")
    os._exit(0 if downloads._lock.acquire(timeout=1) and not downloads._jobs else 3)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr)
