"""What looking costs: trace + distance + rollout beside the same model's plain fused forward.

    python tests/benchmarks/cost.py             # both models, median of 15
    python tests/benchmarks/cost.py --smallest  # seconds; only to see that it works

Both sides run as in the app, which keeps freed memory (`record.heap`). Prints ratios, because times on
shared machines are noise. Random weights serve. Each way's peak memory is read in a process of its own.
"usual" is what other tools do: attention computed in the open and kept for all layers by hooks.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

CASES = {
    "ViT-B/16 at 224, 197 tokens": ("vit_base_patch16_224", 224, {}),
    "ViT-S/8 at 384, 2305 tokens": ("vit_small_patch8_224", 384, {}),
}
SMALLEST = {"ViT-Ti/16 at 96, 37 tokens, 2 layers": ("vit_tiny_patch16_224", 96, {"depth": 2})}
TARGETS = {"ViT-B/16 at 224, 197 tokens": (1.10, None), "ViT-S/8 at 384, 2305 tokens": (1.5, 250)}


def ways(case: tuple[str, int, dict], check: bool = True) -> dict:
    """The three ways of running one picture through a model: name -> a function without arguments."""
    import numpy as np
    import timm
    import torch

    from vitviz import analyses
    from vitviz.engine.checkpoint import Checkpoint, Loaded
    from vitviz.engine.images.opening import open_image
    from vitviz.engine.images.preprocess import Preprocessing, prepare
    from vitviz.engine.inspector import Inspector

    name, size, options = case
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, img_size=size, **options).eval()
    preprocessing = Preprocessing((size, size), (0.5,) * 3, (0.5,) * 3)
    inspector = Inspector(Loaded(Checkpoint(name, name, "local", ""), model, preprocessing), "cpu")
    prepared = prepare(
        open_image(np.random.default_rng(0).integers(0, 255, (size, size, 3), dtype=np.uint8)), preprocessing
    )

    def plain():
        with torch.no_grad():
            return model(prepared.tensor[None])

    def vitviz():
        trace = inspector.traces([prepared], (size, size))[0]
        return trace, analyses.sweep(trace)

    def usual():
        kept, handles = [], []
        for block in model.blocks:
            block.attn.fused_attn = False
            handles.append(
                block.attn.attn_drop.register_forward_hook(
                    lambda module, args, output: kept.append(output.detach().clone())
                )
            )
        with torch.no_grad():
            model(prepared.tensor[None])
            rolled = torch.eye(kept[0].shape[-1])
            for attention in kept:
                fused = attention[0].mean(0) + torch.eye(attention.shape[-1])
                rolled = (fused / fused.sum(-1, keepdim=True)) @ rolled
        for handle, block in zip(handles, model.blocks, strict=True):
            handle.remove()
            block.attn.fused_attn = True
        return kept, rolled

    if check:  # once for each checkpoint, so it is no part of what a picture costs
        inspector.forward._check_truth(model, prepared.tensor[None], (size, size))
    inspector.forward.truthful.add((size, size))
    return {"plain": plain, "vitviz": vitviz, "usual": usual}


def seconds(case: tuple[str, int, dict], runs: int) -> dict[str, float]:
    """Median seconds of each way; the ways take turns, so that a slow moment hits all of them."""
    from vitviz.traces.allocator import keep_freed_memory

    keep_freed_memory()
    running = ways(case)
    taken: dict[str, list[float]] = {name: [] for name in running}
    for run in range(runs + 1):
        for name, way in running.items():
            start = time.perf_counter()
            way()
            if run:  # the first round warms up
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in taken.items()}


def peak(case: tuple[str, int, dict], way: str) -> float:
    """Megabytes that one way adds to the peak of a process that has the model loaded."""
    code = (
        "import sys; sys.argv = ['cost']; import runpy;"
        f" print(runpy.run_path({__file__!r})['own_peak']({case!r}, {way!r}))"
    )
    return float(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()[-1]
    )


def own_peak(case: tuple[str, int, dict], way: str) -> float:
    from vitviz.traces.allocator import keep_freed_memory

    keep_freed_memory()
    run = ways(case, check=False)[way]  # its memory would hide in every way's peak
    result = run()  # kept, as a cache would
    status = Path("/proc/self/status")
    if status.exists():  # there ru_maxrss would still hold the peak of the process that started this one
        megabytes = int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1000
    else:
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    del result
    return megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--smallest", action="store_true", help="a tiny model, once: to see that the script works"
    )
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON as well")
    given = parser.parse_args()
    cases, runs = (SMALLEST, 1) if given.smallest else (CASES, given.runs)
    print(
        f"{'model':40} {'plain':>9} {'vitviz':>8} {'usual':>8}   peak above plain: {'vitviz':>8} {'usual':>8}"
    )
    figures = {}
    for name, case in cases.items():
        taken = seconds(case, runs)
        memory = {way: peak(case, way) for way in taken}
        ratios = {way: taken[way] / taken["plain"] for way in taken}
        extra = {way: memory[way] - memory["plain"] for way in taken}
        print(
            f"{name:40} {1000 * taken['plain']:6.0f} ms {ratios['vitviz']:7.2f}x {ratios['usual']:7.2f}x"
            f" {'':18} {extra['vitviz']:5.0f} MB {extra['usual']:5.0f} MB"
        )
        if name in TARGETS:
            ratio, limit = TARGETS[name]
            print(f"{'  wanted at most':40} {'':9} {ratio:7.2f}x {'':28} {f'{limit} MB' if limit else '':>8}")
        figures[name] = {"ratios": ratios, "extra_megabytes": extra}
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
