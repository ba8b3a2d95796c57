"""A class of students at once: each with a picture of their own, on one server.

    python tests/benchmarks/load.py               # 50 visitors, then 2000 random requests
    python tests/benchmarks/load.py --visitors 4 --requests 50

Speaks as the page does: uploads, joins Gradio's queue, and fetches the binary data of views. Prints errors,
whether anybody saw another's picture, the median time of a cached view, and how memory grew. Loopback only.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
import statistics
import sys
import threading
import time
import uuid
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.e2e.conftest import Server

VIEWS = [
    "patches/norms",
    "filters/components",
    "positions/similarity",
    "rollout/map",
    "rollout/layers",
    "explorer/layer?layer=1",
]


class Visitor:
    """One browser's conversation with the server."""

    def __init__(self, url: str, colour: tuple[int, int, int]):
        self.http = httpx.Client(base_url=url, timeout=120)
        self.colour, self.session, self.key = colour, uuid.uuid4().hex, ""

    def upload(self, function: int) -> None:
        """Drops a picture of one colour and waits until the page would show it."""
        file = io.BytesIO()
        Image.new("RGB", (320, 240), self.colour).save(file, "PNG")
        path = self.http.post("gradio_api/upload", files={"files": ("mine.png", file.getvalue())}).json()[0]
        data = [None, {"path": path, "meta": {"_type": "gradio.FileData"}}]
        self.http.post(
            "gradio_api/queue/join", json={"fn_index": function, "data": data, "session_hash": self.session}
        ).raise_for_status()
        with self.http.stream(
            "GET", "gradio_api/queue/data", params={"session_hash": self.session}
        ) as events:
            for line in events.iter_lines():
                message = json.loads(line[5:]) if line.startswith("data:") else {}
                if message.get("msg") == "process_completed":
                    if not message["success"]:
                        raise RuntimeError(str(message["output"]))
                    self.key = next(
                        value["key"]
                        for value in message["output"]["data"]
                        if isinstance(value, dict) and value.get("view") == "picture"
                    )
                    return

    def sees_own_picture(self) -> bool:
        pixels = np.asarray(
            Image.open(io.BytesIO(self.http.get(f"gradio_api/vitviz/{self.key}/picture/input").content))
        )
        return bool(np.abs(pixels.reshape(-1, 3).mean(0) - self.colour).max() < 2)

    def view(self, path: str) -> float:
        start = time.perf_counter()
        self.http.get(f"gradio_api/vitviz/{self.key}/{path}").raise_for_status()
        return time.perf_counter() - start


def upload_function(url: str) -> int:
    """The number of the listener that takes an upload."""
    config = httpx.get(url + "config").json()
    component = next(
        one["id"] for one in config["components"] if one["props"].get("elem_id") == "vitviz-upload"
    )
    listeners = [
        one
        for one in config["dependencies"]
        if [component, "input"] in [list(target) for target in one["targets"]]
    ]
    return next(
        one["id"] for one in listeners if one["backend_fn"]
    )  # another one only ends a running average


def megabytes(server: Server) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1]) / 1000


def visit(visitor: Visitor, function: int, out: dict) -> None:
    try:
        visitor.upload(function)
        first = [visitor.view(path) for path in VIEWS]
        again = [visitor.view(path) for path in VIEWS for _ in range(3)]
        out[visitor.session] = (visitor.sees_own_picture(), first, again)
    except Exception as error:  # noqa: BLE001, what failed is what is counted
        out[visitor.session] = error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--requests", type=int, default=2000)
    given = parser.parse_args()
    server, chance = Server(), random.Random(0)
    try:
        function, out = upload_function(server.url), {}
        visitors = [
            Visitor(server.url, tuple(chance.randrange(256) for _ in range(3))) for _ in range(given.visitors)
        ]
        start = time.perf_counter()
        threads = [threading.Thread(target=visit, args=(visitor, function, out)) for visitor in visitors]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        errors = [one for one in out.values() if isinstance(one, Exception)]
        fine = [one for one in out.values() if not isinstance(one, Exception)]
        if not fine:
            raise errors[0]
        print(
            f"{given.visitors} visitors at once: {time.perf_counter() - start:.1f} s, {len(errors)} errors"
            f" {errors[:2]}, {sum(not own for own, _, _ in fine)} saw another's picture"
        )
        print(
            f"a view first {1000 * statistics.median(t for _, first, _ in fine for t in first):.0f} ms,"
            f" cached {1000 * statistics.median(t for _, _, again in fine for t in again):.0f} ms (median"
            " under this load; wanted cached: 100 ms)"
        )

        def some_request() -> None:
            visitor = chance.choice(visitors)
            if chance.random() < 0.02:
                visitor.upload(function)
            query = (
                f"?residual={chance.randrange(20) / 20}&query={chance.randrange(60)}"
                if (path := chance.choice(VIEWS)) == "rollout/map"
                else ""
            )
            visitor.view(path + query)

        [some_request() for _ in range(200)]
        warm = megabytes(server)
        [some_request() for _ in range(given.requests)]
        print(
            f"memory {warm:.0f} MB after 200 requests, {megabytes(server):.0f} MB after {given.requests}"
            f" more: {100 * (megabytes(server) / warm - 1):+.1f} % (wanted: at most +10 %)"
        )
    finally:
        server.stop()


if __name__ == "__main__":
    main()
