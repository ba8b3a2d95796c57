"""Memory limits for an image of 80 million pixels in a file of 250 KB."""

import json
import re
import struct
import subprocess
import sys
import zlib
from functools import cache

import httpx
import pytest

from tests.browser.conftest import ROOT, Server
from tests.security.client import MARK, listener, queue_response, upload
from tests.security.judge import BYTES

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc"),
]
SIDE = 8_900


@cache
def large_png() -> bytes:
    """Return a PNG of SIDE x SIDE pixels of one colour."""
    packed, row = zlib.compressobj(9), b"\0" + b"\x40\x80\xc0" * SIDE
    data = b"".join([*(packed.compress(row) for _ in range(SIDE)), packed.flush()])

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


PEAK = '''
import re, sys
from pathlib import Path
import vitviz

def memory(field):
    return 1024 * int(re.search(rf"{field}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def grown(make):
    """How much more memory than before is in use at the most."""
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    made = make()
    return memory("VmHWM") - before
'''
STROKES = [
    "hue_30", "rotate_30", "brush.noise1_9999.4000.4000", "brush.blur_999.4000.4000.999.999",
    "erase_900.10.10", "move_0.0.8900.8900.400.400.4096.4096", "shift_3.4",
]  # fmt: skip


def peak_memory(tmp_path, each: str) -> list[int]:
    """Return the peak memory of each of some calls in a subprocess."""
    (tmp_path / "large.png").write_bytes(large_png())
    code = f"""{PEAK}
path = {str(tmp_path / "large.png")!r}
inspector = vitviz.load("vitviz-tiny", device="cpu")
small = vitviz.sample_image("coffee")
for view in ("rollout", "explorer"):
    vitviz.figure(view, inspector, inspector.trace(small), picture=small).png()
{each}
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return [int(number) for number in result.stdout.split()]


def test_strokes_stay_within_memory_limit(tmp_path):
    each = "".join(
        f"print(grown(lambda: vitviz.edit_image(path, {stroke!r})), flush=True)\n" for stroke in STROKES
    )
    peaks = dict(zip(STROKES, peak_memory(tmp_path, each), strict=True))
    assert all(stroke < BYTES for stroke in peaks.values()), peaks


def test_figures_videos_and_surveys_stay_within_memory_limit(tmp_path):
    each = """
trace = inspector.trace(path)
for view in ("rollout", "explorer"):
    print(grown(lambda: vitviz.figure(view, inspector, trace, picture=path).png()))
print(grown(lambda: vitviz.animation("rollout", inspector, path, over="layers").picture(0)))
print(grown(lambda: vitviz.survey([path, path, path], inspector)))
"""
    peaks = peak_memory(tmp_path, each)
    assert all(one < BYTES for one in peaks), peaks


def test_server_routes_stay_within_memory_limit(tmp_path):
    with (
        Server("--device", "cpu", GRADIO_TEMP_DIR=str(tmp_path)) as server,
        httpx.Client(base_url=server.url, timeout=300) as http,
    ):
        about = f"/proc/{server.process.pid}"

        def memory(field):
            with open(f"{about}/status") as status:
                return 1024 * int(re.search(rf"{field}:\s+(\d+)", status.read())[1])

        config, given = http.get("config").json(), {"path": upload(http, large_png()), "meta": MARK}
        peaks = {}
        before = memory("VmRSS")
        with open(f"{about}/clear_refs", "w") as peak:
            peak.write("5")
        status, text = queue_response(http, listener(config, "vitviz-upload", "input"), [None, given])
        peaks["upload"] = memory("VmHWM") - before
        assert status == 200
        values = json.loads(text)["output"]["data"]
        key = next(one["key"] for one in values if isinstance(one, dict) and one.get("view") == "picture")
        for path in (
            "picture/upload", "rollout/print.svg", "rollout/overlay.png", "distance/figure.html",
            "everything.zip",
        ):  # fmt: skip
            before = memory("VmRSS")
            with open(f"{about}/clear_refs", "w") as peak:
                peak.write("5")
            assert http.get(f"gradio_api/vitviz/{key}/{path}").status_code == 200, path
            peaks[path] = memory("VmHWM") - before
        assert all(one < BYTES for one in peaks.values()), peaks
