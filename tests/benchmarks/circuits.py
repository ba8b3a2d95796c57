"""What the page of a head costs beside the same model's plain fused forward: its writers, a score's account,
and what flows along all edges, with the peak of the last.

    python tests/benchmarks/circuits.py             # ViT-B/16 and 2305 tokens, median of 7
    python tests/benchmarks/circuits.py --smallest  # seconds; only to see that it works

From a trace whose writings have been recorded, which takes one pass a picture, "recording". Random weights
serve. The peaks are what a process needs more than for the plain forward: for the trace, which has a budget
of its own (cost.py), and for recording and all edges beyond that.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

CASES = {
    "ViT-B/16 at 224, 197 tokens": ("vit_base_patch16_224", 224, {}),
    "ViT-S/8 at 384, 2305 tokens": ("vit_small_patch8_224", 384, {"num_classes": 1000}),
}
SMALLEST = {"ViT-Ti/16 at 96, 37 tokens, 2 layers": ("vit_tiny_patch16_224", 96, {"depth": 2})}
WANTED = {"recording": None, "writers": 0.15, "score": 0.05, "all edges": 3.0}
PEAK = 250  # MB


def ways(case: tuple[str, int, dict]) -> dict:
    """Name -> a function without arguments; they take turns in this order."""
    import numpy as np
    import timm
    import torch

    import vitviz
    from vitviz.analyses import sufficient_edges
    from vitviz.engine.checkpoint import Checkpoint, Loaded
    from vitviz.engine.images.opening import open_image
    from vitviz.engine.images.preprocess import Preprocessing, prepare
    from vitviz.engine.inspector import Inspector
    from vitviz.engine.studies import circuits

    name, size, options = case
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, img_size=size, **options).eval()
    preprocessing = Preprocessing((size, size), (0.5,) * 3, (0.5,) * 3)
    inspector = Inspector(Loaded(Checkpoint(name, name, "local", ""), model, preprocessing), "cpu")
    pixels = np.random.default_rng(0).integers(0, 255, (size, size, 3), dtype=np.uint8)
    prepared = prepare(open_image(pixels), preprocessing)
    kept = {}

    def plain():
        with torch.no_grad():
            model(prepared.tensor[None])

    def trace():  # whose writings nobody has recorded
        kept["trace"] = inspector.traces([prepared], (size, size))[0]
        kept["ledger"] = circuits.checked_logit_terms(inspector, kept["trace"])

    def recording():
        circuits.record_stream(inspector, kept["trace"])

    def writers():
        last = len(kept["trace"].layers) - 1
        vitviz.upstream_contributions(inspector, kept["trace"], 0, last, 1)

    def score():
        last = len(kept["trace"].layers) - 1
        vitviz.attention_score_attribution(inspector, kept["trace"], last, 1, 0, 7)

    def edges():
        basis = circuits._resolve_target(inspector, kept["trace"], 0, False)[1]
        for _ in sufficient_edges.edge_flows(
            kept["ledger"], circuits.record_stream(inspector, kept["trace"]), basis
        ):
            pass

    named = {"recording": recording, "writers": writers, "score": score, "all edges": edges}
    return {"plain": plain, "trace": trace, **named}


def seconds(case: tuple[str, int, dict], runs: int) -> dict[str, float]:
    """Median seconds of each."""
    from vitviz.traces.allocator import keep_freed_memory

    keep_freed_memory()
    running = ways(case)
    taken: dict[str, list[float]] = {name: [] for name in running}
    for run in range(runs + 1):
        for name, way in running.items():
            start = time.perf_counter()
            way()
            if run:  # the first round warms up, and checks the checkpoint
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in taken.items()}


def own_peak(case: tuple[str, int, dict], names: list[str]) -> float:
    """The peak, in MB, of a process that has done these."""
    from vitviz.traces.allocator import keep_freed_memory

    keep_freed_memory()
    running = ways(case)
    for name in names:
        running[name]()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1000


def peak(case: tuple[str, int, dict], names: list[str]) -> float:
    """The same of a process of its own."""
    code = (
        "import sys; sys.argv = ['circuits']; import runpy;"
        f" print(runpy.run_path({__file__!r})['own_peak']({case!r}, {names!r}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(ran.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--smallest", action="store_true", help="a tiny model, once: to see that the script works"
    )
    parser.add_argument("--runs", type=int, default=7)
    given = parser.parse_args()
    cases, runs = (SMALLEST, 1) if given.smallest else (CASES, given.runs)
    for name, case in cases.items():
        taken = seconds(case, runs)
        print(f"{name}: plain {1000 * taken['plain']:.0f} ms")
        for way, wanted in WANTED.items():
            limit = "" if wanted is None else f"   wanted {wanted:.2f}x"
            print(f"    {way:10} {taken[way] / taken['plain']:6.3f}x{limit}")
        named = ["plain", "trace", "recording", "all edges"]
        plain, traced, whole = (peak(case, some) for some in (named[:1], named[:2], named))
        print(
            f"    peak: trace {traced - plain:.0f} MB, edges {whole - traced:.0f} MB more   wanted {PEAK} MB"
        )


if __name__ == "__main__":
    main()
