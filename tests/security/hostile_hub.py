"""A hub whose responses are wrong, slow, too large or redirect elsewhere, determined by a seed."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.engine.models.hub_server import COMMIT, CONTENT, Hub, run_script, served

SECONDS, BYTES = 5, 10**9
GOOD = hashlib.sha256(CONTENT).hexdigest()
STATUSES = [200] * 12 + [204, 206, 301, 302, 307, 308, 400, 403, 404, 416, 418, 429, 500, 503, 504, 599]
ETAGS = [f'"{GOOD}"'] * 6 + [
    f'W/"{GOOD}"', "", '""', '"../../../../outside"', '"' + "0" * 64 + '"', '"' + "a" * 40 + '"',
    '"' + "A" * 64 + '"', '"' + "f" * 9_000 + '"',
    '"é"', "x", f'"{GOOD}\\..\\x"',
]  # fmt: skip
COMMITS = [COMMIT] * 6 + ["", "../../../../elsewhere", "main", "C" * 40, "c" * 41, "c" * 9_000, "%2e%2e"]
LENGTHS = [len(CONTENT)] * 6 + [0, 1, -1, 10**6, 10**18, 2**63, "x", None]
BODIES = ["whole"] * 5 + [
    "half",
    "twice",
    "other",
    "nothing",
    "endless",
    "trickle",
    "bomb",
    "chunks",
    "nonsense",
]
PLACES = [
    "/{repo}/resolve/main/{file}",
    "http://127.0.0.1:9/x",
    "/../../etc/passwd",
    "file:///etc/passwd",
    "//evil.invalid/x",
    "",
]
# Runs in a subprocess: fetch several repositories at once and report results and memory.
SCENE = """
import re
from pathlib import Path
def peak(field): return 1024 * int(re.search(field + r":\\s+(\\d+)",
Path("/proc/self/status").read_text())[1])
before, names, results, lock = peak("VmRSS"), {names!r}, {{}}, threading.Lock()
def work():
    while True:
        with lock:
            if not names: return
            name = names.pop(0)
        try: results[name] = attempt(name, stall=3.0)
        except Exception as error: results[name] = {{"raised": repr(error)[:300], "seconds": 0}}
        results[name].pop("seen", None)
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({{"results": results, "bytes": peak("VmHWM") - before}}))
"""


class HostileHub(Hub):
    """The response depends on the repository's name, the method and the number of requests."""

    times: dict[str, int] = {}

    def answer(self, body: bool) -> None:
        count = HostileHub.times[self.path] = HostileHub.times.get(self.path, 0) + 1
        repo = self.path.partition("/resolve/")[0][1:]
        # Usually equal for HEAD and GET, so that wrong headers are consistent.
        rng = random.Random(repo if random.Random(repo).random() < 0.6 else f"{repo} {body} {min(count, 3)}")
        status, etag, commit, length = map(rng.choice, (STATUSES, ETAGS, COMMITS, LENGTHS))
        how, place = rng.choice(BODIES), rng.choice(PLACES)
        if rng.random() < 0.05:
            time.sleep(8)
        try:
            self.send_response(status)
            self._headers(rng, etag, commit, length, place if 300 <= status < 400 else None)
            if how == "bomb":
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            if body:
                self._body(how)
        except OSError:  # the client disconnected
            pass
        self.close_connection = True

    def _headers(self, rng: random.Random, etag: str, commit: str, length: object, place: str | None) -> None:
        linked = rng.random() < 0.3
        self.send_header(
            "X-Linked-Etag" if linked else "ETag", etag.encode("latin-1", "replace").decode("latin-1")
        )
        self.send_header("X-Repo-Commit", commit)
        if linked:
            self.send_header("X-Linked-Size", str(length))
        if length is not None:
            self.send_header("Content-Length", str(length))
        if place is not None:
            self.send_header(
                "Location",
                place.format(repo=self.path[1:].partition("/resolve/")[0], file="model.safetensors"),
            )
        if rng.random() < 0.05:
            for number in range(rng.choice([90, 2_000])):
                self.send_header(f"X-More-{number}", "y" * 50)

    def _body(self, how: str) -> None:
        write = self.wfile.write
        if how in ("endless", "trickle"):
            for _ in range(400):
                write(CONTENT[: 64_000 if how == "endless" else 1])
                self.wfile.flush()
                time.sleep(0.0 if how == "endless" else 0.1)
        elif how == "chunks":
            write(b"ffffffffffff\r\n" + CONTENT)
        else:
            write({
                "whole": CONTENT, "half": CONTENT[: len(CONTENT) // 2], "twice": CONTENT * 2,
                "other": bytes(len(CONTENT)),
                "nothing": b"", "bomb": gzip.compress(bytes(3 * 10**8), 1), "nonsense": b"<html>" * 100,
            }[how])  # fmt: skip


def download_faults(seeds: Sequence[str], folder: Path) -> list[str]:
    """Return the faults of downloads from such a hub. A complete, correct file is no fault."""
    names = [f"some/{seed.replace(' ', '-')}" for seed in seeds]
    cache = folder / "deep" / "a" / "b" / "cache"
    with served(HostileHub) as endpoint:
        report = run_script(SCENE.format(names=names), endpoint, cache)
    faults = [f"hub: {report['bytes'] / 1e6:.0f} MB"] if report["bytes"] > BYTES else []
    for name, result in report["results"].items():
        if "raised" in result:
            faults.append(f"hub {name}: raised {result['raised']}")
        elif "error" not in result and result["size"] != len(CONTENT):
            faults.append(f"hub {name}: {result['size']} bytes were taken for the file")
        elif result["seconds"] > SECONDS + 3:  # first response and stalled body have separate timeouts
            faults.append(f"hub {name}: {result['seconds']:.1f} s; {result.get('error')}")
        elif str(folder) in result.get("error", ""):
            faults.append(f"hub {name}: names a path; {result['error']}")
    outside = [
        place for place, _, files in os.walk(folder) for _ in files if not place.startswith(str(cache))
    ]
    return faults + [f"hub: a file was written in {place}" for place in outside]
