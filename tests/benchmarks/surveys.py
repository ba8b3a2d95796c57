"""What a survey costs: its throughput beside the same model's plain fused forward on tensors that are ready.

    python tests/benchmarks/surveys.py             # ViT-B/16, 128 JPEGs, attention distance; about 3 minutes
    python tests/benchmarks/surveys.py --memory    # the most memory over 1,000 and over 10,000 small pictures
    python tests/benchmarks/surveys.py --cluster   # the same pictures by one process and by two actors
    python tests/benchmarks/surveys.py --smallest  # seconds; only to see that it works

Prints ratios, because times on shared machines are noise. The two take turns, so that what else the machine
does weighs on both. Random weights serve.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

BATCH = 8


def inspector_of(name: str, **options):
    import timm
    import torch

    from vitviz.engine.checkpoint import Checkpoint, Loaded
    from vitviz.engine.images.preprocess import Preprocessing
    from vitviz.engine.inspector import Inspector

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, **options).eval()
    size = model.patch_embed.img_size
    return Inspector(
        Loaded(
            Checkpoint(name, name, "local", ""),
            model,
            Preprocessing(size, (0.5,) * 3, (0.5,) * 3, crop_pct=0.9),
        ),
        "cpu",
    )


def photographs(folder: Path, count: int, size: tuple[int, int]) -> None:
    """JPEGs with the detail of photographs: decoding noise, or one colour, costs something else."""
    import numpy as np

    from vitviz.traces.samples import sample_image, samples

    folder.mkdir(exist_ok=True)
    names, random = [sample.name for sample in samples()], np.random.default_rng(0)
    for number in range(count):
        image = sample_image(names[number % len(names)]).convert("RGB")
        width = int(random.integers(image.width // 2, image.width))
        height = min(image.height, width * size[1] // size[0])
        left, top = (
            int(random.integers(0, most + 1)) for most in (image.width - width, image.height - height)
        )
        image.crop((left, top, left + width, top + height)).resize(size).save(
            folder / f"{number:05d}.jpg", quality=90
        )


def throughput(inspector, folder: Path) -> dict[str, float]:
    """Seconds of plain forwards and of surveys over the same number of pictures, decoding included, and their
    ratio.

    They take turns, 32 pictures each. Nothing of a survey runs during a forward, which would decode for it.
    """
    import torch

    import vitviz

    vitviz.keep_freed_memory()
    pixels, paths = torch.randn(BATCH, 3, *inspector.preprocessing.size), sorted(folder.iterdir())

    def plain(batches: int) -> float:
        begun = time.perf_counter()
        with torch.no_grad():
            for _ in range(batches):
                inspector.model(pixels)
        return time.perf_counter() - begun

    def surveyed(some: list[Path]) -> float:
        begun = time.perf_counter()
        assert vitviz.survey(some, inspector, ["distance"], batch=BATCH).images == len(some)
        return time.perf_counter() - begun

    surveyed(paths[:BATCH]), plain(1)  # truth checks, first allocations
    forwards, surveys = [], []
    for first in range(0, len(paths), 4 * BATCH):
        some = paths[first : first + 4 * BATCH]
        forwards.append(plain(len(some) // BATCH))
        surveys.append(surveyed(some))
    ratio = statistics.median(one / other for one, other in zip(forwards, surveys, strict=True))
    return {
        "plain_s": sum(forwards),
        "survey_s": sum(surveys),
        "ratio": sum(forwards) / sum(surveys),
        "median_ratio": ratio,
    }


def clustered(inspector, folder: Path) -> dict[str, float]:
    """Seconds of one survey by one process and by two of Ray's actors, which are started within them."""
    import vitviz

    found = {}
    for workers in (0, 2):
        begun = time.perf_counter()
        vitviz.survey(folder, inspector, ["distance"], batch=BATCH, part=2 * BATCH, workers=workers)
        found["cluster_s" if workers else "alone_s"] = time.perf_counter() - begun
    return {**found, "cluster_ratio": found["alone_s"] / found["cluster_s"]}


def peak(count: int, folder: Path) -> int:
    """The most memory of a survey over so many pictures, in bytes; called in a process of its own."""
    import vitviz

    inspector = inspector_of("vit_tiny_patch16_224", img_size=32, depth=2)
    vitviz.survey(
        folder, inspector, ["distance"], batch=BATCH, limit=count, out=folder.parent / f"out-{count}"
    )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peaks(counts: tuple[int, ...]) -> dict[int, int]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "pictures"
        photographs(folder, max(counts), (40, 40))
        found = {}
        for count in counts:
            command = [sys.executable, __file__, "--peak", str(count), str(folder)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found[count] = int(said.split()[-1])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--pictures", type=int, default=128)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        print(peak(int(given.peak[0]), Path(given.peak[1])))
        return
    if given.memory or given.smallest:
        few, many = (64, 256) if given.smallest else (1_000, 10_000)
        found = peaks((few, many))
        print(
            f"memory: {found[few] / 2**20:.0f} MiB over {few} pictures, {found[many] / 2**20:.0f} over"
            f" {many}: ratio {found[many] / found[few]:.3f} (target 0.95 to 1.05)"
        )
    if given.memory:
        return
    inspector = (
        inspector_of("vit_tiny_patch16_224", img_size=96, depth=2)
        if given.smallest
        else inspector_of("vit_base_patch16_224")
    )
    with tempfile.TemporaryDirectory() as place:
        photographs(Path(place) / "pictures", 32 if given.smallest else given.pictures, (500, 375))
        if given.cluster:
            print(json.dumps(clustered(inspector, Path(place) / "pictures")))
            return
        found = throughput(inspector, Path(place) / "pictures")
    print(
        f"survey's throughput of the plain forward's: {found['ratio']:.3f}, median of turns"
        f" {found['median_ratio']:.3f} (target 0.85)"
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
