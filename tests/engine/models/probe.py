"""Runs checkpoints (or what else a module tries) one after the other and prints for each how it ended, its
seconds and the memory it took; a process of its own.

The process is ended where one takes longer than SECONDS, with a trace of where it stood. Memory is the peak
of what the process has resident above what it had; addresses are bounded besides, so that a fault does not
take the machine along.
"""

import faulthandler
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SECONDS, BYTES = 5, 10**9
ROOT = Path(__file__).resolve().parents[3]


def probed(module: str, names: list[str], folder: Path) -> list[dict]:
    """How the checkpoints ended that `module`'s function `make(name, folder)` writes, in order; the last may
    be the one that did not.
    """
    call = [sys.executable, "-m", "tests.engine.models.probe", module, str(folder)]
    done = subprocess.run(
        call, input=json.dumps(names), cwd=ROOT, capture_output=True, text=True, timeout=60 + 8 * len(names)
    )
    ended = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(ended) < len(names):
        ended.append(
            {
                "name": names[len(ended)],
                "end": f"the process ended with {done.returncode}",
                "text": done.stderr[-3000:],
            }
        )
    return ended


def faults(ended: list[dict], folder: Path) -> list[str]:
    """What is wrong with how they ended."""
    found = []
    for one in ended:
        wrong = [one["end"]] if one["end"] not in ("trace", "refused") else []
        wrong += [f"{one['seconds']:.1f} s"] if one.get("seconds", 0) > SECONDS else []
        wrong += [f"{one['bytes'] / 1e6:.0f} MB"] if one.get("bytes", 0) > BYTES else []
        wrong += (
            [f"names a path or torch's allocator: {one['text']}"]
            if re.search(rf"{re.escape(str(folder))}|alloc", one["text"])
            else []
        )
        if wrong:
            found.append(f"{one['name']}: {', '.join(wrong)}; {one['text']}")
    return found


def _resident(field: str) -> int:
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def _traced(place: Path | str) -> None:
    """A checkpoint, loaded and looked into."""
    import numpy as np

    import vitviz

    picture = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    vitviz.load(str(place), device="cpu").trace(picture)


def _ended(make: Callable, tried: Callable, names: list[str], folder: Path) -> Iterator[dict]:
    from vitviz.errors import VitvizError

    _traced("vitviz-tiny")  # whatever is imported and kept by the first
    most = _resident("VmSize") + 4 * BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for index, name in enumerate(names):
        place = folder / str(index)
        make(name, place)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, start = _resident("VmRSS"), time.monotonic()
        faulthandler.dump_traceback_later(4 * SECONDS, exit=True)
        try:
            tried(place)
            end, text = "trace", ""
        except VitvizError as error:
            end, text = "refused", str(error)
        except Exception as error:  # told to the test
            end, text = f"raised {type(error).__name__}", str(error)[:300]
        faulthandler.cancel_dump_traceback_later()
        yield {
            "name": name,
            "end": end,
            "text": text,
            "seconds": time.monotonic() - start,
            "bytes": _resident("VmHWM") - before,
        }


if __name__ == "__main__":
    import importlib

    module = importlib.import_module(sys.argv[1])
    tried = getattr(module, "tried", _traced)
    for line in _ended(module.make, tried, json.load(sys.stdin), Path(sys.argv[2])):
        print(json.dumps(line), flush=True)
