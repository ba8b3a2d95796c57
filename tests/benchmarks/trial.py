"""What a trial of all methods on one picture costs: python -m tests.benchmarks.trial.

Wall-clock and processor seconds as the page asks, one method after the other, and all at once; beside one
plain pass, because a machine that does something else meanwhile makes both slower.
"""

from __future__ import annotations

import time
from functools import partial

import torch

import vitviz
from vitviz.server.services.cache import Cache
from vitviz.views import ViewContext
from vitviz.views.trial import ORDER, compute


def timed(make) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    make()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    picture = vitviz.sample_image("coffee")
    trace = inspector.trace(picture)
    target = int(trace.logits.argmax())
    kept: Cache = Cache(500, lambda entry: 1)
    subject = ViewContext(inspector, trace, once=kept.get)
    pixels = torch.zeros(32, 3, *trace.grid.pixels)
    with torch.no_grad():
        inspector.model(pixels)
        wall, cpu = timed(lambda: inspector.model(pixels))
    print(f"one plain pass, of 32: {1000 * wall / 32:.1f} ms, processor {1000 * cpu / 32:.1f} ms")
    total = [0.0, 0.0]
    for method in ORDER:
        wall, cpu = timed(partial(compute.evaluate_method, subject, target, "dropped", method))
        total = [total[0] + wall, total[1] + cpu]
        print(f"{method:22} {wall:6.2f} s, processor {cpu:6.2f} s")
    print(f"one after the other    {total[0]:6.2f} s, processor {total[1]:6.2f} s")
    wall, cpu = timed(lambda: vitviz.faithfulness(inspector, trace, target))
    print(f"all at once            {wall:6.2f} s, processor {cpu:6.2f} s; {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
