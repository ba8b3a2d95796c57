"""What the account of a logit costs beside the same model's plain fused forward, and what another class
costs.

    python tests/benchmarks/ledger.py             # ViT-B/16, class token and average pooling, median of 15
    python tests/benchmarks/ledger.py --smallest  # seconds; only to see that it works

"account" is the whole ledger of a first class with every head's patch map, from a trace that is there;
"another class" is the next one of the same trace, in milliseconds. Random weights serve. The check on a
checkpoint's first use is no part of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

CASES = {
    "ViT-B/16 at 224, class token": (("vit_base_patch16_224", 224, {}), 0.05),
    "ViT-B/16 at 224, average then norm": (("vit_base_patch16_224", 224, {"global_pool": "avg"}), 0.12),
    "ViT-B/16 at 224, norm then average": (
        ("vit_base_patch16_224", 224, {"global_pool": "avg", "fc_norm": False}),
        0.12,
    ),
    "ViT-B/16 at 224, attention pooling": (
        ("vit_base_patch16_224", 224, {"global_pool": "map", "class_token": False}),
        None,
    ),
}
SMALLEST = {"ViT-Ti/16 at 96, 2 layers": (("vit_tiny_patch16_224", 96, {"depth": 2}), None)}
ANOTHER = 20  # ms for another class


def measured(case: tuple[str, int, dict], runs: int) -> tuple[float, float, float]:
    """Median seconds of a plain pass, an account of a trace, and an account of another class; they take
    turns.
    """
    import numpy as np
    import timm
    import torch

    import vitviz
    from vitviz.engine.checkpoint import Checkpoint, Loaded
    from vitviz.engine.images.opening import open_image
    from vitviz.engine.images.preprocess import Preprocessing, prepare
    from vitviz.engine.inspector import Inspector
    from vitviz.engine.studies import attribution
    from vitviz.traces.allocator import keep_freed_memory

    keep_freed_memory()
    name, size, options = case
    model = timm.create_model(name, pretrained=False, img_size=size, **options).eval()
    preprocessing = Preprocessing((size, size), (0.5,) * 3, (0.5,) * 3)
    inspector = Inspector(Loaded(Checkpoint(name, name, "local", ""), model, preprocessing), "cpu")
    pixels = np.random.default_rng(0).integers(0, 255, (size, size, 3), dtype=np.uint8)
    prepared = prepare(open_image(pixels), preprocessing)
    trace = inspector.traces([prepared], (size, size))[0]
    vitviz.logit_attribution(inspector, trace, 0)  # the first use of a checkpoint is checked
    taken: list[list[float]] = [[], [], []]
    for run in range(runs + 1):
        attribution._carried.clear()
        start = time.perf_counter()
        with torch.no_grad():
            model(prepared.tensor[None])
        ran = time.perf_counter()
        vitviz.logit_attribution(inspector, trace, 1 + run)
        first = time.perf_counter()
        vitviz.logit_attribution(inspector, trace, 101 + run)
        if run:  # the first round warms up
            for times, seconds in zip(
                taken, (ran - start, first - ran, time.perf_counter() - first), strict=True
            ):
                times.append(seconds)
    plain, account, another = (statistics.median(times) for times in taken)
    return plain, account, another


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--smallest", action="store_true", help="a tiny model, once: to see that the script works"
    )
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    cases, runs = (SMALLEST, 1) if given.smallest else (CASES, given.runs)
    print(
        f"{'model':36} {'plain':>9} {'account':>9} {'wanted':>7} {'another class':>14}   wanted {ANOTHER} ms"
    )
    for name, (case, wanted) in cases.items():
        plain, account, another = measured(case, runs)
        limit = "" if wanted is None else f"{wanted:.2f}x"
        print(
            f"{name:36} {1000 * plain:6.0f} ms {account / plain:8.3f}x {limit:>7} {1000 * another:11.1f} ms"
        )


if __name__ == "__main__":
    main()
