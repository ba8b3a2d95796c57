"""Uploads that break off, and a disk that is full: nothing stays behind, and the next upload is taken."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.browser.conftest import ROOT, Server
from tests.security.stranger import picture, sent

MB = 1_000_000


def files(folder) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def cut_short(url: str, size: int) -> None:
    """Sends the beginning of an upload, and hangs up."""
    host, port = url.split("/")[2].split(":")
    begun = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n' + bytes(size)
    head = (
        f"POST /gradio_api/upload HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {3 * size}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as line:
        line.sendall(head.encode() + begun)


def soon(test) -> bool:
    """Whether it becomes true."""
    end = time.monotonic() + 20
    while not test() and time.monotonic() < end:
        time.sleep(0.05)
    return test()


def test_of_uploads_cut_short_or_under_other_names_nothing_stays(http, server, folder):
    sent(http, picture((1, 2, 3)))
    place = next((folder / "sent").glob("vitviz-*/uploads"))
    before = files(place)
    for _ in range(5):
        cut_short(server.url, MB)
    assert http.post("gradio_api/upload", files={"other": ("a.png", bytes(MB))}).status_code == 200
    assert http.post("gradio_api/upload", content=b"no form").status_code == 400
    assert soon(lambda: files(place) == before), files(place) - before
    assert "Traceback" not in server.output()


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True, check=False
    ) if os.name == "posix" and os.geteuid() == 0 else None  # fmt: skip
    if mounted is None or mounted.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.processes
def test_a_full_disk_is_named_and_recovers(small_disk):
    with (
        Server("--device", "cpu", GRADIO_TEMP_DIR=str(small_disk)) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):

        def send(*sizes):
            each = [("files", (f"{i}.png", os.urandom(size))) for i, size in enumerate(sizes)]
            return http.post("gradio_api/upload", files=each)

        paths = []
        for _ in range(8):  # 32 MB on a disk of 24
            found = send(4 * MB)
            assert found.status_code == 200
            paths += found.json()
        assert not Path(paths[0]).exists() and Path(paths[-1]).exists(), "the oldest have gone"
        found = send(15 * MB, 15 * MB)
        assert found.status_code == 507 and "disk for uploads is full" in found.json()["detail"]
        assert send(4 * MB).status_code == 200, "nothing of it stays"
        assert "Traceback" not in server.output()


@pytest.mark.processes
@pytest.mark.parametrize("place", ["file/below", "x" * 300])
def test_a_place_for_uploads_that_cannot_be_is_a_sentence(tmp_path, place):
    (tmp_path / "file").write_bytes(b"")
    given = {**os.environ, "GRADIO_TEMP_DIR": str(tmp_path / place)}
    asked = [sys.executable, "app.py", "--port", "0"]
    ended = subprocess.run(
        asked, cwd=ROOT, env=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1 and "Set GRADIO_TEMP_DIR to a folder" in ended.stderr
    assert "Traceback" not in ended.stderr and str(tmp_path) not in ended.stderr
