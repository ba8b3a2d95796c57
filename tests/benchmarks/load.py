"""A class of students at once: each with a picture of their own, on one server.

    python tests/benchmarks/load.py               # 50 visitors, then 2000 random requests
    python tests/benchmarks/load.py --visitors 4 --requests 50
    python tests/benchmarks/load.py --one 30      # thirty parallel requests of one visitor, all kinds at once
    python tests/benchmarks/load.py --one 30 --each            # and each kind of work alone

What one visitor's requests do to another is told as ratios to the same alone, in one run: absolute times are
of the machine and of who else computes on it. Speaks as the page does: uploads, joins Gradio's queue, and
fetches the binary data of views. Prints errors, whether anybody saw another's picture, the median time of a
cached view, and how memory grew. Loopback only.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import multiprocessing
import os
import random
import re
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.browser.conftest import Server

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
        self.http = httpx.Client(base_url=url, timeout=600, limits=httpx.Limits(max_connections=None))
        self.colour, self.session, self.key = colour, uuid.uuid4().hex, ""

    def page(self) -> float:
        """Opens the page, and fetches what it shows of a picture that has been looked at."""
        start = time.perf_counter()
        for path in ("", "config"):
            self.http.get(path).raise_for_status()
        for path in VIEWS:
            self.view(path)
        return time.perf_counter() - start

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


def megabytes(server: Server, what: str = "VmRSS") -> float:
    return (
        int(re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1]) / 1000
    )


def visit(visitor: Visitor, function: int, out: dict) -> None:
    try:
        visitor.upload(function)
        first = [visitor.view(path) for path in VIEWS]
        again = [visitor.view(path) for path in VIEWS for _ in range(3)]
        out[visitor.session] = (visitor.sees_own_picture(), first, again)
    except Exception as error:  # what failed is what is counted
        out[visitor.session] = error


FIGURE = "tokens/print.png?print.width=250&print.dpi=600&print.detail=1"
TRIAL = {"image": "chelsea", "checkpoint": "", "target": "top", "patches_as": "dropped"}


def kinds(function: int) -> dict[str, Callable[[Visitor, int], object]]:
    """What one visitor asks for at once: name → what sends the n-th such request and awaits its answer."""

    def new(visitor: Visitor, number: int) -> None:
        other = Visitor(
            str(visitor.http.base_url), (number * 7 % 256, number * 31 % 256, time.time_ns() % 256)
        )
        other.http, other.session = visitor.http, f"{visitor.session}{number}"
        other.upload(function)

    def trial(visitor: Visitor, number: int) -> None:
        given = {**TRIAL, "target": str(number % 100), "score": "logit", "method": ""}
        visitor.http.post("gradio_api/run/trial", json={"data": list(given.values())}).raise_for_status()

    def predicted(visitor: Visitor, number: int) -> None:
        # over http nothing is verified, and reading the certificates would take more than the question
        with httpx.Client(base_url=visitor.http.base_url, timeout=600, verify=False) as nobody:
            nobody.post("gradio_api/run/predict", json={"data": ["rocket", f"vitviz-tiny@{10 * number}", 5]})

    def live(visitor: Visitor, number: int, views: list[str]) -> httpx.Response:
        file = io.BytesIO()
        noise = np.random.default_rng(number).integers(0, 255, (112, 112, 3), dtype=np.uint8)
        Image.fromarray(noise).save(file, "JPEG")
        question = {"frame": base64.b64encode(file.getvalue()).decode(), "views": views}
        return visitor.http.post(f"gradio_api/vitviz/{visitor.key}/live", json=question)

    names = ["rollout"] * 200_000
    return {
        "camera": lambda one, n: live(one, n, ["rollout", "explorer"]).raise_for_status(),
        "camera, 200,000 views named": lambda one, n: live(one, n, names),
        "trial": trial,
        "film": lambda one, n: one.view(f"rollout/film.mp4?film.over=layers&discard=0.{n % 100:02}"),
        "GIF": lambda one, n: one.view(f"patches/film.gif?film.width=1280&film.seconds=0.{n % 9 + 1}"),
        "experiment": lambda one, n: one.view(f"tour/experiment?seed={n}"),
        "compared": lambda one, n: one.view(f"compared/print.svg?print.detail={n % 2}"),
        "figure": lambda one, n: one.view(f"{FIGURE}&layer={n % 8 + 1}"),
        "new pictures": new,
        "no session": predicted,
    }


def crowd(url: str, names: list[str], count: int, function: int, answered, refused) -> None:
    """So many requests of one visitor at once, each sent again when it is answered; a process of its own,
    that gives way: in the world its computing is another machine's.
    """
    os.nice(19)
    visitor, number = Visitor(url, (200, 30, 30)), itertools.count(1)
    visitor.http.get("")  # has a cookie from here on
    visitor.upload(function)
    works = kinds(function)

    def keep_asking(name: str) -> None:
        while True:
            try:
                works[name](visitor, next(number))
                answered.value += 1
            except Exception:  # refused: what is looked at is what others notice
                refused.value += 1
                time.sleep(0.5)

    threads = [threading.Thread(target=keep_asking, args=[names[i % len(names)]]) for i in range(count)]
    [thread.start() for thread in threads]


def computing(server: Server) -> float:
    """Seconds of CPU that the server has taken so far."""
    told = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def until_quiet(server: Server, most: float = 120) -> float:
    """Seconds until the server computes no more, which is less than a tenth of a core for a second."""
    start = last = time.perf_counter()
    while time.perf_counter() < start + most:
        before = computing(server)
        time.sleep(0.5)
        if computing(server) - before > 0.05:
            last = time.perf_counter()
        elif time.perf_counter() > last + 1:
            break
    return last - start


def one_visitor(server: Server, count: int, names: list[str], function: int) -> None:
    """What another visitor notices of one who asks for so much at once, as ratios to the same alone."""
    other = Visitor(server.url, (30, 200, 30))
    other.http.get("")
    other.upload(function)
    other.page()

    def fresh() -> float:
        other.colour = tuple(random.randrange(256) for _ in range(3))
        start = time.perf_counter()
        other.upload(function)
        return time.perf_counter() - start

    def measured() -> tuple[list[float], list[float]]:
        return [other.page() for _ in range(5)], [fresh() for _ in range(5)]

    until_quiet(server)
    alone, idle = measured(), megabytes(server)
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    counts = [multiprocessing.Value("i"), multiprocessing.Value("i")]
    asking = multiprocessing.Process(target=crowd, args=[server.url, names, count, function, *counts])
    asking.start()
    time.sleep(5)
    beside = measured()
    peak = megabytes(server, "VmHWM") - idle
    asking.kill()
    quiet = until_quiet(server)
    told = []
    for what, before, after, wanted in zip(("page", "prediction"), alone, beside, (2, 4), strict=True):
        ratio = statistics.median(after) / statistics.median(before)
        told.append(
            f"{what} {ratio:.1f} x of {statistics.median(before):.2f} s"
            f" (at most {max(after) / statistics.median(before):.1f} x; wanted {wanted} x)"
        )
    print(
        f"{', '.join(names)} beside: another's cached {', a fresh '.join(told)};"
        f" memory +{peak:.0f} MB (wanted 1500); quiet {quiet:.1f} s after they left (wanted 5);"
        f" {counts[0].value} answered, {counts[1].value} refused",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--one", type=int, metavar="COUNT", help="parallel requests of one visitor")
    parser.add_argument("--each", action="store_true", help="each kind of them alone, too")
    parser.add_argument("--only", metavar="KIND", help="this kind of them alone")
    given = parser.parse_args()
    server, chance = Server(), random.Random(0)
    try:
        if given.one:
            names = list(kinds(function := upload_function(server.url)))
            for asked in [[given.only]] if given.only else [names, *([name] for name in names if given.each)]:
                one_visitor(server, given.one, asked, function)
            return
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
