"""Run checkpoints one after the other in a process of its own and print the outcome, seconds and memory of
each.

If a checkpoint takes longer than SECONDS, the process exits with a traceback. Memory is the peak of resident
memory above the initial value. The address space is limited as well, so that a fault cannot exhaust the
machine.
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


def outcomes_of(module: str, names: list[str], folder: Path) -> list[dict]:
    """Return the outcomes of the checkpoints that `module.make(name, folder)` writes, in order.

    The last outcome may be that of a checkpoint that ended the process.
    """
    call = [sys.executable, "-m", "tests.engine.models.probe", module, str(folder)]
    done = subprocess.run(
        call, input=json.dumps(names), cwd=ROOT, capture_output=True, text=True, timeout=60 + 8 * len(names)
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(outcomes) < len(names):
        outcomes.append(
            {
                "name": names[len(outcomes)],
                "end": f"the process ended with {done.returncode}",
                "text": done.stderr[-3000:],
            }
        )
    return outcomes


def faults(outcomes: list[dict], folder: Path) -> list[str]:
    """Return a description of each unacceptable outcome."""
    descriptions = []
    for outcome in outcomes:
        problems = [outcome["end"]] if outcome["end"] not in ("trace", "refused") else []
        problems += [f"{outcome['seconds']:.1f} s"] if outcome.get("seconds", 0) > SECONDS else []
        problems += [f"{outcome['bytes'] / 1e6:.0f} MB"] if outcome.get("bytes", 0) > BYTES else []
        problems += (
            [f"names a path or torch's allocator: {outcome['text']}"]
            if re.search(rf"{re.escape(str(folder))}|alloc", outcome["text"])
            else []
        )
        if problems:
            descriptions.append(f"{outcome['name']}: {', '.join(problems)}; {outcome['text']}")
    return descriptions


def _resident(field: str) -> int:
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def _load_and_trace(location: Path | str) -> None:
    """Load a checkpoint and trace an image."""
    import numpy as np

    import vitviz

    image = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    vitviz.load(str(location), device="cpu").trace(image)


def _outcomes(make: Callable, action: Callable, names: list[str], folder: Path) -> Iterator[dict]:
    from vitviz.errors import VitvizError

    _load_and_trace("vitviz-tiny")  # imports and caches of the first pass must not count
    limit = _resident("VmSize") + 4 * BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for index, name in enumerate(names):
        location = folder / str(index)
        make(name, location)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before, start = _resident("VmRSS"), time.monotonic()
        faulthandler.dump_traceback_later(4 * SECONDS, exit=True)
        try:
            action(location)
            end, text = "trace", ""
        except VitvizError as error:
            end, text = "refused", str(error)
        except Exception as error:  # reported to the test
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
    action = getattr(module, "tried", _load_and_trace)
    for line in _outcomes(module.make, action, json.load(sys.stdin), Path(sys.argv[2])):
        print(json.dumps(line), flush=True)
