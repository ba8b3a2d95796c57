"""Interrupted uploads and a full disk: no files stay behind, and the next upload succeeds."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.browser.conftest import ROOT, Server
from tests.security.client import picture, upload

MB = 1_000_000


def files(folder) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def interrupt_upload(url: str, size: int) -> None:
    """Send the beginning of an upload and close the connection."""
    host, port = url.split("/")[2].split(":")
    begun = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n' + bytes(size)
    head = (
        f"POST /gradio_api/upload HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {3 * size}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as line:
        line.sendall(head.encode() + begun)


def becomes_true(test) -> bool:
    """Return whether a condition holds within 20 s."""
    end = time.monotonic() + 20
    while not test() and time.monotonic() < end:
        time.sleep(0.05)
    return test()


def test_interrupted_or_misnamed_upload_leaves_no_file(http, server, folder):
    upload(http, picture((1, 2, 3)))
    folder_of_uploads = next((folder / "sent").glob("vitviz-*/uploads"))
    before = files(folder_of_uploads)
    for _ in range(5):
        interrupt_upload(server.url, MB)
    assert http.post("gradio_api/upload", files={"other": ("a.png", bytes(MB))}).status_code == 200
    assert http.post("gradio_api/upload", content=b"no form").status_code == 400
    assert becomes_true(lambda: files(folder_of_uploads) == before), files(folder_of_uploads) - before
    assert "Traceback" not in server.output()


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, check=False
    ) if os.name == "posix" and os.geteuid() == 0 else None  # fmt: skip
    if mounted is None or mounted.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.processes
def test_full_disk_returns_507_and_recovers(small_disk):
    with (
        Server("--device", "cpu", GRADIO_TEMP_DIR=str(small_disk)) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):

        def send(*sizes):
            each = [("files", (f"{i}.png", os.urandom(size))) for i, size in enumerate(sizes)]
            return http.post("gradio_api/upload", files=each)

        paths = []
        for _ in range(8):  # 32 MB on a disk of 24
            response = send(4 * MB)
            assert response.status_code == 200
            paths += response.json()
        assert not Path(paths[0]).exists() and Path(paths[-1]).exists(), "the oldest upload was not evicted"
        response = send(15 * MB, 15 * MB)
        assert response.status_code == 507 and "disk for uploads is full" in response.json()["detail"]
        assert send(4 * MB).status_code == 200, "parts of the rejected upload fill the disk"
        assert "Traceback" not in server.output()


@pytest.mark.processes
@pytest.mark.parametrize("place", ["file/below", "x" * 300])
def test_unusable_upload_folder_exits_with_message(tmp_path, place):
    (tmp_path / "file").write_bytes(b"")
    given = {**os.environ, "GRADIO_TEMP_DIR": str(tmp_path / place)}
    command = [sys.executable, "app.py", "--port", "0"]
    result = subprocess.run(
        command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 1 and "Set GRADIO_TEMP_DIR to a writable folder" in result.stderr
    assert "Traceback" not in result.stderr and str(tmp_path) not in result.stderr
