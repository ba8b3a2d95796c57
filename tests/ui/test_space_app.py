"""The whole app as a Space starts it, and the code as its Python reads it."""

import ast
import os
import re
import socket
import subprocess
import sys

import pytest

import vitviz
from tests.ui.fork import ROOT, SPACE
from vitviz.record.samples import sample_image


@pytest.mark.processes
def test_the_whole_app_starts_and_a_visitors_question_is_answered_from_a_fork(tmp_path):
    from gradio_client import Client

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path, calls = os.pathsep.join([str(ROOT / "tests/ui/simulated"), str(ROOT)]), tmp_path / "calls"
    environment = {
        **os.environ,
        **SPACE,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "SIMULATED_CALLS": str(calls),
    }
    server = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for line in server.stdout:
            if "http" in line:
                break
        client = Client(f"http://127.0.0.1:{port}", verbose=False)
        assert not calls.exists(), "the warm-up is nobody's question"
        one, *_ = client.predict("chelsea", api_name="/predict")["top"]
    finally:
        server.terminate()
        server.wait(30)
    (label, probability), *_ = vitviz.load("vitviz-tiny", device="cpu").trace(sample_image("chelsea")).top(1)
    assert one["label"] == label and one["probability"] == pytest.approx(probability, rel=1e-4)
    assert calls.read_text().split() == ["passes"]


def test_the_code_is_python_3_10():
    """The oldest that such Spaces offer; 3.12 is the newest."""
    files = [ROOT / "app.py", *(ROOT / "vitviz").rglob("*.py")]
    for file in files:
        ast.parse(file.read_text(encoding="utf-8"), str(file), feature_version=(3, 10))
    assert len(files) > 60 and 'requires-python = ">=3.10"' in (ROOT / "pyproject.toml").read_text(
        encoding="utf-8"
    )
    front = (ROOT / "README.md").read_text(encoding="utf-8").split("---")[1]
    assert re.search(r'python_version: "3\.1[02]"', front), "ZeroGPU has Python 3.10 and 3.12"
