"""The whole app as a Space starts it, and its oldest Python version."""

import ast
import base64
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import vitviz
from tests.benchmarks.load import Visitor, upload_function
from tests.server.forking_process import ROOT, SPACE
from tests.server.helpers import jpeg, moving_gif
from vitviz.traces.samples import sample_image


def upload_file(page: Visitor, file: Path) -> str:
    return page.http.post("gradio_api/upload", files={"files": (file.name, file.read_bytes())}).json()[0]


def post_json(page: Visitor, what: str, **more) -> dict:
    return page.http.post(f"gradio_api/vitviz/{page.key}/{what}", json=more).raise_for_status().json()


@pytest.mark.processes
def test_space_runs_passes_in_forks_and_streams_on_cpu(tmp_path):
    from gradio_client import Client

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path, calls = os.pathsep.join([str(ROOT / "tests/server/simulated"), str(ROOT)]), tmp_path / "calls"
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
        assert not calls.exists(), "the warm-up used a GPU lease"
        one, *_ = client.predict("chelsea", api_name="/predict")["top"]
        page = Visitor(f"http://127.0.0.1:{port}/", (30, 200, 30))
        page.upload(upload_function(str(page.http.base_url)))
        by_choice = calls.read_text().split()
        # frames are too frequent for one lease each, so they run on the CPU
        frame, video = base64.b64encode(jpeg()).decode(), upload_file(page, moving_gif())
        streamed = [post_json(page, "live", views=["rollout", "evidence"], frame=frame)]
        video = post_json(page, "video", path=video)["video"]
        streamed += [post_json(page, "live", views=["rollout"], video=video, at=at) for at in (0, 3)]
    finally:
        server.terminate()
        server.wait(30)
    (label, probability), *_ = vitviz.load("vitviz-tiny", device="cpu").trace(sample_image("chelsea")).top(1)
    assert one["label"] == label and one["probability"] == pytest.approx(probability, rel=1e-4)
    assert calls.read_text().split() == by_choice == ["run_passes"] * 2
    assert [one["size"] for one in streamed] == [[112, 112]] * 3


def test_code_parses_as_python_3_10():
    """ZeroGPU Spaces offer Python 3.10 and 3.12."""
    files = [ROOT / "app.py", *(ROOT / "vitviz").rglob("*.py")]
    for file in files:
        ast.parse(file.read_text(encoding="utf-8"), str(file), feature_version=(3, 10))
    assert len(files) > 60 and 'requires-python = ">=3.10"' in (ROOT / "pyproject.toml").read_text(
        encoding="utf-8"
    )
    front = (ROOT / "README.md").read_text(encoding="utf-8").split("---")[1]
    assert re.search(r'python_version: "3\.1[02]"', front), (
        "README.md selects a Python version that ZeroGPU does not offer"
    )
