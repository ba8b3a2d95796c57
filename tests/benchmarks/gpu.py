"""What looking costs on a GPU, beside the same model's plain pass there: see `tests/gpu.md`.

    python tests/benchmarks/gpu.py    # a minute; needs CUDA

A process of its own: the tests' checks of shapes at every call would be most of what is measured. Random
weights serve. Pictures are decoded already, as disks and decoders are not ours.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

CASES = ("vit_tiny_patch16_224", 224), ("vit_base_patch16_224", 224), ("vit_large_patch16_384", 384)
BATCH, TRACE, SURVEY = 32, 1.15, 0.8  # pictures, at most this often the plain time, at least this throughput


def seconds(run, times=10) -> float:
    import torch

    run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def measured(architecture: str, size: int) -> str:
    import numpy as np
    import timm
    import torch

    import vitviz
    from vitviz import analyses

    torch.manual_seed(0)
    model = timm.create_model(architecture, num_classes=10).eval()
    inspector = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cuda")
    picture = np.random.default_rng(0).integers(0, 255, (size, size, 3), dtype=np.uint8)
    prepared = [inspector.forward.prepare(picture, None)[0]] * BATCH
    pixels, model = inspector.forward.pixels(prepared), inspector.forward.placed.model
    with torch.no_grad():
        plain, alone = seconds(lambda: model(pixels)), seconds(lambda: model(pixels[:1]))
    on_gpu = seconds(lambda: inspector.traces(prepared, (size, size), keep_on_device=True))
    surveyed = seconds(lambda: vitviz.survey([picture] * BATCH, inspector, ["distance"], batch=BATCH), 3)
    one, trace = seconds(lambda: inspector.trace(picture)), inspector.trace(picture)
    there = inspector.traces(prepared[:1], (size, size), keep_on_device=True)[0]
    swept, swept_there = seconds(lambda: analyses.sweep(trace), 3), seconds(lambda: analyses.sweep(there))
    return (
        f"{BATCH} traces that stay there {on_gpu / plain:.2f} x plain (wanted {TRACE}); survey of distances"
        f" {plain / surveyed:.2f} of the plain throughput (wanted {SURVEY}), {BATCH / surveyed:.0f} a second;"
        f" one picture's trace {1000 * one:.1f} ms, {one / alone:.1f} x plain; its distances and rollout"
        f" {1000 * swept:.0f} ms on the CPU, {1000 * swept_there:.1f} there"
    )


if __name__ == "__main__":
    import torch

    from vitviz.traces.allocator import keep_freed_memory

    keep_freed_memory()  # as the app does
    print(torch.__version__, torch.cuda.get_device_name())
    for case in CASES:
        print(*case, measured(*case), flush=True)
