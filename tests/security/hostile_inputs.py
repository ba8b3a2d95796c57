"""A thousand hostile inputs by seed. Each must end within 5 s and 1 GB with a result or a message.

    python -m tests.security.hostile_inputs                    # all of them: some ten minutes on two cores
    python -m tests.security.hostile_inputs calls routes       # only these kinds
    python -m tests.security.hostile_inputs pictures --from 40 --count 60

Prints the faults and exits with 1 if there are any. `test_hostile_inputs.py` runs the first of each kind.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.browser.conftest import Server
from tests.engine.models import hostile
from tests.engine.models.probe import faults, outcomes_of
from tests.security import hostile_calls, hostile_hub, hostile_images, hostile_zips
from tests.security.client import MARK, listener, queue_response, upload
from tests.security.hostile_calls import HostileRequest
from tests.security.judge import Judge

COUNTS = {
    "checkpoints": 264,
    "offered": len(hostile.HOSTILE),
    "pictures": 150,
    "zips": 50,
    "sent": 100,
    "calls": 200,
    "routes": 100,
    "hub": 100,
}

REQUESTED = ("zips", "sent", "calls", "routes")  # kinds that are sent to an app

OPENED = {  # kinds that a subprocess opens
    "checkpoints": "tests.engine.models.mutated",
    "pictures": "tests.security.hostile_images",
}


def faults_of_kind(kind: str, first: int, count: int, folder: Path) -> list[str]:
    """Return the faults of `count` seeds of one kind of input, starting at `first`."""
    seeds = [f"seed {number}" for number in range(first, first + count)]
    if kind in OPENED:
        return _probed(OPENED[kind], seeds, folder)
    if kind == "hub":
        return hostile_hub.download_faults(seeds, folder)
    if kind == "offered":
        return _offered(list(hostile.HOSTILE)[first : first + count], folder)
    return faults_of_requests([kind], first, count, folder)


def faults_of_requests(kinds: Sequence[str], first: int, count: int, folder: Path) -> list[str]:
    """Return the faults of several kinds of `REQUESTED`, which one app answers one after the other."""
    seeds = [f"seed {number}" for number in range(first, first + count)]
    with running_judge(folder) as (judge, http):
        for kind in kinds:
            for name, question in _questions(kind, seeds, http):
                judge.ask(f"{kind} {name}", question)
        return judge.faults


def _probed(module: str, names: Sequence[str], folder: Path) -> list[str]:
    """Open inputs in subprocesses. If an input kills its process, the next one continues."""
    remaining, problems = list(names), []
    while remaining:
        results = outcomes_of(module, remaining, folder / f"{module}-{len(remaining)}")
        problems += faults(results, folder)
        remaining = remaining[len(results) :]
    return problems


@contextmanager
def running_judge(folder: Path, *arguments: str) -> Iterator[tuple[Judge, httpx.Client]]:
    """Start an app and a judge. Check at the end that it still answers a valid request."""
    with (
        Server("--device", "cpu", *arguments, GRADIO_TEMP_DIR=str(folder / "sent")) as server,
        httpx.Client(base_url=server.url, timeout=15) as http,
    ):
        honest = {"data": ["coffee", "", 3]}
        top = http.post("gradio_api/run/predict", json=honest).json()["data"][0]["top"]
        judge = Judge(server.process.pid, http)
        yield judge, http
        if http.post("gradio_api/run/predict", json=honest).json()["data"][0]["top"] != top:
            judge.faults.append("the response to a valid request has changed")


def _questions(kind: str, seeds: Sequence[str], http: httpx.Client) -> Iterator[tuple[str, HostileRequest]]:
    if kind == "sent":
        for seed in seeds:
            path = upload(http, hostile_images.picture(seed))
            given = {"path": path, "meta": MARK}
            yield seed, HostileRequest("POST", "gradio_api/run/predict", {"data": [given, "", 3]})
        return
    config = http.get("config").json()
    if kind == "zips":
        dropped = listener(config, "vitviz-lesson", "upload")
        for seed in seeds:
            given = {"path": upload(http, hostile_zips.lesson(seed), "lesson.zip"), "meta": MARK}
            body = {"fn_index": dropped, "data": [None, given]}
            yield seed, HostileRequest("POST", "gradio_api/queue/join", body, event=True)
        return
    listeners = {one["id"]: len(one["inputs"]) for one in config["dependencies"] if one["backend_fn"]}
    if kind == "calls":
        named = http.get("gradio_api/info").json()["named_endpoints"]
        signatures = {name: one["parameters"] for name, one in named.items()}
        for seed in seeds:
            yield seed, hostile_calls.call(seed, signatures, listeners)
        return
    from vitviz.views import VIEWS

    items = [(view.slug, item.name) for view in VIEWS for item in view.items]
    key = _key(http, config)
    for seed in seeds:
        yield seed, hostile_calls.route(seed, key, items)


def _load(config: dict) -> int:
    """Return the listener that fills a page when it is opened."""
    return next(
        one["id"]
        for one in config["dependencies"]
        if one["backend_fn"] and "load" in [target[1] for target in one["targets"]]
    )


def _key(http: httpx.Client, config: dict) -> str:
    """Return the key of the image that a page shows."""
    _, text = queue_response(http, _load(config), [None, {}])
    values = json.loads(text)["output"]["data"]
    return next(one["key"] for one in values if isinstance(one, dict) and one.get("view") == "picture")


def _offered(names: Sequence[str], folder: Path) -> list[str]:
    """Return the faults of hostile checkpoints in the weights folder, opened by name and by link."""
    weights = folder / "weights"
    hostile.save_valid_checkpoint(weights / "vitviz-tiny")
    for number, name in enumerate(names):
        hostile.make(name, weights / f"hostile-{number}")
    with running_judge(folder, "--weights", str(weights)) as (judge, http):
        page = {"fn_index": _load(http.get("config").json()), "data": [None, {}]}
        judge.answer(HostileRequest("POST", "gradio_api/queue/join", page, event=True))
        for number, name in enumerate(names):
            body = {"data": ["coffee", f"hostile-{number}", 3]}
            judge.ask(name, HostileRequest("POST", "gradio_api/run/predict", body))
            join = f"gradio_api/queue/join?checkpoint=hostile-{number}"
            judge.ask(f"a link to {name}", HostileRequest("POST", join, page, event=True))
        return judge.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[*COUNTS, []], metavar="kind", help=", ".join(COUNTS))
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--count", type=int, default=0)
    given = parser.parse_args()
    all_faults = []
    for kind in given.kinds or COUNTS:
        start, count = time.monotonic(), given.count or COUNTS[kind]
        with tempfile.TemporaryDirectory() as folder:
            faults_found = faults_of_kind(kind, given.first, count, Path(folder))
        print(
            f"{kind}: {count} inputs, {len(faults_found)} faults, {time.monotonic() - start:.0f} s",
            flush=True,
        )
        print(*faults_found, sep="\n", end="\n" if faults_found else "", flush=True)
        all_faults += faults_found
    return int(bool(all_faults))


if __name__ == "__main__":
    sys.exit(main())
