"""Speed of traces and surveys on a GPU as ratios to the same model's plain pass, and equality with the CPU.

    python tests/benchmarks/gpu.py                       # needs CUDA; at most four minutes with imports
    python tests/benchmarks/gpu.py --device cpu --quick  # runs every line; no ratio is required

Images are decoded beforehand and weights are random. The ways of computing take turns, and the fastest of
several rounds counts. The exit status is 1 if a ratio of `LIMITS` is missed, if a result differs from the
CPU's, or if the run takes too long. The script is a process of its own, because the tests check shapes at
every call.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

START = time.perf_counter()
sys.path.insert(0, str(Path(__file__).parents[2]))

THREE = ("distance", "entropy", "prefix_mass")
SURVEYS = {"distance": THREE[:1], "three": THREE, "five": (*THREE, "ledger", "lens")}
TINY, BASE, LARGE = "vit_tiny_patch16_224", "vit_base_patch16_224", "vit_large_patch16_384"
# architecture: images per pass, at most what `vitviz.survey` takes, and passes of a survey
CASES = {TINY: (512, 8), BASE: (256, 6), LARGE: (64, 3)}
# (architecture, precision, column): at most for ratios of time, at least for ratios of throughput
LIMITS = {
    **{(name, kind, "traces"): 1.1 for name in (BASE, LARGE) for kind in ("float32", "bfloat16")},
    **{(TINY, kind, "traces"): 1.5 for kind in ("float32", "bfloat16")},
    (BASE, "float32", "three"): 0.85, (LARGE, "float32", "three"): 0.85, (BASE, "bfloat16", "three"): 0.75,
    (TINY, "float32", "three"): 0.6, (TINY, "bfloat16", "three"): 0.6,
    **{(BASE, kind, "one"): 1.5 for kind in ("float32", "bfloat16")},
}  # fmt: skip
NEAR, ROUNDING = 1e-3, 1e-5  # of the largest number: of means from the CPU's, of row sums from float64
SPARE, SECONDS = 0.5e9, 240  # bytes of memory beside the record; whole run


def failures(architecture: str, precision: str, row: dict[str, float]) -> list[str]:
    """Return the requirements that a row of the table misses.

    >>> failures(BASE, "float32", {"traces": 1.2, "three": 0.9, "one": 1.4, "differs": 0.0})
    ['vit_base_patch16_224 float32: traces is 1.20, required at most 1.1']
    """
    found, name = [], f"{architecture} {precision}"
    for (model, kind, column), limit in LIMITS.items():
        if (model, kind) == (architecture, precision):
            least = column in SURVEYS
            if not (row[column] >= limit if least else row[column] <= limit):
                bound = "at least" if least else "at most"
                found.append(f"{name}: {column} is {row[column]:.2f}, required {bound} {limit}")
    if not row["differs"] <= NEAR:
        found.append(f"{name}: results differ from the CPU's by {row['differs']:.1e}, allowed {NEAR:.0e}")
    if not row.get("kernel", 0) <= ROUNDING:
        found.append(f"{name}: row sums differ from float64 by {row['kernel']:.1e}, allowed {ROUNDING:.0e}")
    if row.get("memory", 0) > row.get("room", 0):
        found.append(f"{name}: peak of {row['memory']:.2f} GB, required at most {row['room']:.2f}")
    return found


def fastest(ways: dict[str, Callable[[], Any]], device: str, rounds: int) -> dict[str, float]:
    """Return the least seconds of every way; the first round warms up."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 + rounds):
        for name, way in ways.items():
            wait()
            start = time.perf_counter()
            way()
            wait()
            taken[name].append(time.perf_counter() - start)
    return {name: min(seconds[1:]) for name, seconds in taken.items()}


def inspector_of(architecture: str, device: str, precision: str, quick: bool):
    import timm
    import torch

    import vitviz

    torch.manual_seed(0)
    options = {"depth": 2, "img_size": 64, "embed_dim": 48, "num_heads": 3} if quick else {}
    model = timm.create_model(architecture, num_classes=10, **options).eval()
    return vitviz.Inspector.of(model, mean=0.5, std=0.5, device=device, dtype=precision)


def surveyor(inspector, images: Iterable, measures: tuple[str, ...], batch: int) -> Callable[[], Any]:
    """Return a survey of images that are decoded already, without the files that it writes."""
    from vitviz.surveys.result import Survey
    from vitviz.surveys.rows import SurveyPart
    from vitviz.surveys.run import PART, measuring_of
    from vitviz.surveys.sources import ImageList

    measuring = measuring_of(inspector, measures, None, batch, None)
    begun = Survey.begun(inspector, measuring.measures, measuring.size, {})
    decoded = list(measuring.ahead(enumerate(ImageList(images))))

    def survey() -> Any:
        measured = measuring.measured(iter(decoded), PART)
        parts = groupby(measured, key=lambda one: one.first // PART)
        return begun.with_parts(SurveyPart.join(some) for _, some in parts)

    return survey


def kernel_error(batch) -> float:
    """Return the largest error of row sums of attention, relative to float64; 0 where no kernel applies."""
    import torch

    from vitviz.analyses import attention_kernel
    from vitviz.analyses.distance import token_distances

    layers = getattr(batch.layers, "stored", batch.layers)
    if not attention_kernel.applies(layers):
        return 0.0
    largest, prefix, lengths = 0.0, batch.grid.prefix, token_distances(batch).double()
    for layer, sums in zip(layers[:2], attention_kernel.row_sums(layers[:2], lengths, prefix), strict=True):
        q, k = (one[:2].double() for one in (layer.q, layer.k))
        weights = torch.softmax(layer.scale * (q @ k.mT), dim=-1)
        rows = [weights[..., prefix:].sum(-1), weights[..., :prefix].sum(-1)]
        rows += [(weights * lengths.to(weights)).sum(-1), torch.special.entr(weights).sum(-1)]
        wanted = torch.stack(rows, dim=-1)
        errors = (sums[:2].double() - wanted).abs().amax((0, 1, 2)) / wanted.amax((0, 1, 2))
        largest = max(largest, errors.max().item())
    return largest


def record_bytes(batch) -> int:
    """Return the bytes of all tensors of a batch of traces; views share a storage."""
    import torch

    storages, seen, waiting = {}, set(), [batch]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif id(value) not in seen:
            seen.add(id(value))
            waiting += value if isinstance(value, tuple | list) else getattr(value, "__dict__", {}).values()
    return sum(storages.values())


def peak(way: Callable[[], Any]) -> tuple[int, Any]:
    """Return the most memory allocated on the GPU while a way runs, and its result."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    result = way()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated(), result


def difference(found, wanted) -> float:
    """Return the largest difference of the means of two surveys, relative to the largest mean."""
    import numpy as np

    pairs = [(found.sums[name].mean, one.mean) for name, one in wanted.sums.items()]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def measured(architecture: str, precision: str, device: str, quick: bool) -> dict[str, float]:
    """Return one row of the table."""
    import numpy as np
    import torch

    import vitviz
    from vitviz import analyses
    from vitviz.engine.images.opening import open_image
    from vitviz.engine.images.preprocess import prepare

    inspector = inspector_of(architecture, device, precision, quick)
    (count, batches), size = (4, 2) if quick else CASES[architecture], inspector.preprocessing.size
    drawn = np.random.default_rng(0)
    images = [drawn.integers(0, 255, (*size, 3), dtype=np.uint8) for _ in range(count)]
    prepared = [prepare(open_image(one), inspector.preprocessing, normalise=False) for one in images]
    pixels, model = inspector.forward.pixels(prepared), inspector.model

    def plain(some=pixels):
        with torch.no_grad():
            return model(some)

    def uploaded():
        return plain(inspector.forward.pixels(prepared))

    def traces():
        return inspector.batch(prepared, size, keep_on_device=True)

    def one():
        trace = inspector.traces(prepared[:1], size, keep_on_device=True)[0]
        return trace, vitviz.logit_attribution(inspector, trace, 0), analyses.sweep(trace)

    surveys = {name: surveyor(inspector, images * batches, some, count) for name, some in SURVEYS.items()}
    ways = {
        "plain": plain,
        "uploaded": uploaded,
        "traces": traces,
        "alone": lambda: plain(pixels[:1]),
        "one": one,
        **surveys,
    }
    taken = fastest(ways, device, 1 if quick else 2)
    row = {
        "plain": count / taken["plain"], "traces": taken["traces"] / taken["uploaded"],
        **{name: batches * taken["plain"] / taken[name] for name in SURVEYS},
        "one": taken["one"] / taken["alone"],
    }  # fmt: skip
    cpu, few, exact = inspector.on("cpu"), 2, precision == "float32"
    found = surveyor(inspector, images[:few], SURVEYS["five"], few)()
    row["differs"] = difference(found, surveyor(cpu, images[:few], SURVEYS["five"], few)()) if exact else 0.0
    row["kernel"] = kernel_error(traces())
    if device == "cuda":
        least, _ = peak(plain)
        most, batch = peak(traces)
        row |= {"memory": most / 1e9, "room": (least + record_bytes(batch) + SPARE) / 1e9}
    else:
        row |= {"memory": 0.0, "room": record_bytes(traces()) / 1e9}
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true", help="small models, once; ratios are not required")
    given = parser.parse_args()
    import timm
    import torch

    from vitviz.engine.device import device_name
    from vitviz.traces.allocator import keep_freed_memory

    keep_freed_memory()  # as the app does
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{device_name(torch.device(given.device))}, torch {torch.__version__}, timm {timm.__version__}")
    print(
        "Plain: images/s of the model alone, its input on the device. Traces: times of a plain pass that, as"
        " they do, begins with bytes on the host.\nSurveys: of the plain throughput. One image: times of its"
        " plain pass. Memory: peak, allowed, GB."
    )
    columns = ("plain", "traces", *SURVEYS, "one", "differs", "kernel", "memory", "room")
    print(f"{'model':22} {'precision':9}" + "".join(f"{name:>10}" for name in columns), flush=True)
    missed = []
    for architecture in CASES:
        for precision in ("float32", "bfloat16"):
            row = measured(architecture, precision, given.device, given.quick)
            cells = "".join(f"{row[name]:10.3g}" for name in columns)
            print(f"{architecture:22} {precision:9}{cells}", flush=True)
            missed += failures(architecture, precision, row)
    if given.quick:
        missed = [one for one in missed if "differ" in one]
    seconds = time.perf_counter() - START
    print(f"{seconds:.0f} s")
    if seconds > SECONDS:
        missed.append(f"The run took {seconds:.0f} s, allowed {SECONDS}")
    print(*missed, sep="\n", end="\n" * bool(missed))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
