"""What a server keeps of visitors who come once: memory while new pages are opened and new programs call.

    python tests/benchmarks/sessions.py                  # 1000 new page sessions, then 1000 calls
    python tests/benchmarks/sessions.py --pages 400 --calls 400
    python tests/benchmarks/sessions.py --minutes 10     # both in turn, for so long

load.py comes back with the same sessions, and cannot see what each new one leaves behind. Prints the memory
after each tenth; exits with 1 where it grew by more than 10 % from the third tenth on (before, the caches
fill), or an answer was not what Python computes. Loopback only.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))
import vitviz
from tests.benchmarks.load import megabytes
from tests.browser.conftest import Server, event_payload
from vitviz.traces.samples import sample_image, samples


def opened(http: httpx.Client, listener: dict, tops: dict) -> bool:
    """Opens the page of a new session; whether its first answer is right."""
    session = uuid.uuid4().hex
    data = {**event_payload(listener, {}), "session_hash": session}
    http.post("gradio_api/queue/join", json=data).raise_for_status()
    with http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as events:
        for line in events.iter_lines():
            message = json.loads(line[5:]) if line.startswith("data:") else {}
            if message.get("msg") == "process_completed":
                return message["success"] and tops["coffee"][0][0] in json.dumps(
                    message["output"]["data"], ensure_ascii=False
                )
    return False


def called(http: httpx.Client, name: str, tops: dict) -> bool:
    """Calls an endpoint as a program does that has no session; whether the answer is right."""
    event = http.post("gradio_api/call/predict", json={"data": [name, "", 3]}).json()["event_id"]
    said = http.get(f"gradio_api/call/predict/{event}").text
    top = json.loads(said.split("data: ", 1)[1].splitlines()[0])[0]["top"]
    expected = tops[name]
    return [one["label"] for one in top] == [label for label, _ in expected] and all(
        abs(one["probability"] - probability) < 1e-4
        for one, (_, probability) in zip(top, expected, strict=True)
    )


def loading(url: str) -> dict:
    """The listener that fills a page as it is opened."""
    return next(
        one
        for one in httpx.get(url + "config").json()["dependencies"]
        if [None, "load"] in [[None, target[1]] for target in one["targets"]] and one["backend_fn"]
    )


def tenths(
    server: Server, count: int, visit: Callable[[], bool], minutes: float = 0
) -> tuple[list[float], int]:
    """Memory after every tenth of the visits (or of the time), and how many answers were wrong."""
    found, wrong, done = [], 0, 0
    for tenth in range(10):
        until = time.monotonic() + 6 * minutes
        while time.monotonic() < until if minutes else done < (tenth + 1) * count // 10:
            wrong += not visit()
            done += 1
        found.append(megabytes(server))
    return found, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=0)
    given = parser.parse_args()
    inspector, names = vitviz.load("vitviz-tiny", device="cpu"), [sample.name for sample in samples()]
    tops = {name: inspector.trace(sample_image(name)).top(3) for name in names}
    bad = False
    with Server() as server, httpx.Client(base_url=server.url, timeout=120) as http:
        listener, chance = loading(server.url), random.Random(0)
        page, call = lambda: opened(http, listener, tops), lambda: called(http, chance.choice(names), tops)
        runs = (
            [("pages and calls", 0, lambda: page() and call())]
            if given.minutes
            else [("pages", given.pages, page), ("calls", given.calls, call)]
        )
        for what, count, visit in runs:
            if count == 0 and not given.minutes:
                continue
            found, wrong = tenths(server, count, visit, given.minutes)
            grown = found[-1] / found[2] - 1
            print(
                f"{what}: {' '.join(f'{one:.0f}' for one in found)} MB, "
                f"{100 * grown:+.1f} % from the third tenth on; {wrong} wrong answers"
            )
            bad |= grown > 0.1 or wrong > 0
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
