"""Sentences on genuine weights, and what they cost.

    python -m tests.benchmarks.text voc my-clip VOCdevkit/VOC2012  # mIoU on VOC20, by method
    python -m tests.benchmarks.text voc --smallest                 # made up, to see that it works
    python -m tests.benchmarks.text cost                           # 100 sentences, ViT-B/16, random weights

VOC20: the 20 classes on the pixels that have one (background and borders do not count), by the cosines of
patches with class names in OpenAI's 80 templates. The shorter side is 1.5 times the model's input (336 for
224), windows of the input's size stand half of it apart, their maps are enlarged bilinearly and averaged.
ClearCLIP's table 2 has for ViT-B/16 of OpenAI: CLIP 41.8, MaskCLIP 74.9, SCLIP 78.2, ClearCLIP 80.9; NACLIP's
own 83.0 is with PAMR, which is not here. Names of classes and windows move these by several points.

"cost": process time of a prediction and of maps with 100 sentences, from a trace that is there, beside the
same model's plain forward; they take turns. The text pass is no part of it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import vitviz

NAMES = (
    "aeroplane,bicycle,bird,boat,bottle,bus,car,cat,chair,cow,table,dog,horse,motorbike,person,potted plant,"
    "sheep,sofa,train,television monitor"
).split(",")
METHODS = {"CLIP": "own_patches", "MaskCLIP": "maskclip", "MaskCLIP, residual and MLP kept": "maskclip_kept",
           "SCLIP": "sclip", "ClearCLIP": "clearclip", "NACLIP": "naclip"}  # fmt: skip
MOST = 0.3  # of a plain forward


def pairs_of(folder: Path, limit: int | None) -> Iterator[tuple[Image.Image, np.ndarray]]:
    """Pictures of VOC's validation list with the class of every pixel, from 0; -1 where it has none."""
    listed = (folder / "ImageSets" / "Segmentation" / "val.txt").read_text(encoding="utf-8").split()
    for name in listed[:limit]:
        truth = np.asarray(Image.open(folder / "SegmentationClass" / f"{name}.png"), dtype=np.int64)
        yield (
            Image.open(folder / "JPEGImages" / f"{name}.jpg").convert("RGB"),
            np.where(truth == 255, 0, truth) - 1,
        )


def starts(length: int, window: int) -> list[int]:
    """Where windows begin, half a window apart, the last at the end.

    >>> starts(336, 224), starts(500, 224)
    ([0, 112], [0, 112, 224, 276])
    """
    return [*range(0, length - window, window // 2), length - window]


def scores_of(asked: vitviz.Inspector, picture: Image.Image) -> dict[str, torch.Tensor]:
    """By method the mean of the windows' cosines: (class, row, col) of the resized picture's pixels."""
    window = asked.preprocessing.size[0]
    factor = 1.5 * window / min(picture.size)
    width, height = (max(round(factor * side), window) for side in picture.size)
    resized = picture.resize((width, height), Image.Resampling.BICUBIC)
    sums = {name: torch.zeros(len(asked.labels), height, width) for name in METHODS}
    counts = torch.zeros(height, width)
    for top in starts(height, window):
        for left in starts(width, window):
            trace = asked.trace(resized.crop((left, top, left + window, top + window)))
            place = (..., slice(top, top + window), slice(left, left + window))
            counts[place] += 1
            for name, method in METHODS.items():
                small = vitviz.patch_scores(asked, trace, method)[None].float()
                large = torch.nn.functional.interpolate(small, (window, window), mode="bilinear")[0]
                sums[name][place] += large / asked.classes.scale
    return {name: one / counts for name, one in sums.items()}


def counted(scores: torch.Tensor, truth: np.ndarray, classes: int) -> np.ndarray:
    """Pixels by true class and by the likeliest one."""
    enlarged = torch.nn.functional.interpolate(scores[None], truth.shape, mode="bilinear")[0]
    found, known = enlarged.argmax(dim=0).numpy(), truth >= 0
    pairs = truth[known] * classes + found[known]
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def mean_iou(counts: np.ndarray) -> float:
    """Over the classes that there are, in %.

    >>> mean_iou(np.array([[3, 1], [0, 4]]))  # 3 / 4 and 4 / 5
    77.5
    """
    both = np.diag(counts)
    either = counts.sum(axis=0) + counts.sum(axis=1) - both
    there = counts.sum(axis=1) > 0
    return 100 * float(np.mean(both[there] / either[there]))


def voc(inspector: vitviz.Inspector, folder: Path, limit: int | None, names: list[str]) -> dict[str, float]:
    """Mean IoU by method; a line a hundred pictures."""
    from open_clip import OPENAI_IMAGENET_TEMPLATES

    templates = [one("{}") for one in OPENAI_IMAGENET_TEMPLATES]
    asked = inspector.with_classes(vitviz.text(inspector, names, templates))
    counts = {name: np.zeros((len(names), len(names)), dtype=np.int64) for name in METHODS}
    for number, (picture, truth) in enumerate(pairs_of(folder, limit), start=1):
        for name, scores in scores_of(asked, picture).items():
            counts[name] += counted(scores, truth, len(names))
        if number % 100 == 0:
            print(number, {name: round(mean_iou(one), 1) for name, one in counts.items()}, flush=True)
    return {name: mean_iou(one) for name, one in counts.items()}


def made_up(folder: Path) -> Path:
    """Two pictures in VOC's form: noise, with a class and a border."""
    rng = np.random.default_rng(0)
    for part in ("ImageSets/Segmentation", "SegmentationClass", "JPEGImages"):
        (folder / part).mkdir(parents=True)
    (folder / "ImageSets" / "Segmentation" / "val.txt").write_text("a\nb\n")
    for name, size in (("a", (100, 80)), ("b", (70, 90))):
        Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8)).save(
            folder / f"JPEGImages/{name}.jpg"
        )
        truth = np.zeros(size, dtype=np.uint8)
        truth[10:40, 20:60], truth[40:50], truth[50:, :30] = 8, 255, 15
        Image.fromarray(truth, "P").save(folder / f"SegmentationClass/{name}.png")
    return folder


def cost(runs: int) -> dict[str, float]:
    """Medians of process time, as shares of a plain forward's."""
    import timm

    from tests.engine.random_inspectors import inspect, noise

    model = timm.create_model("vit_base_patch16_clip_224", pretrained=False).eval()
    inspector, rng = inspect(model), torch.Generator().manual_seed(0)
    pixels = torch.zeros(1, 3, 224, 224)
    traces = [inspector.trace(noise(seed)) for seed in range(runs)]

    def plain(trace):
        with torch.no_grad():
            model(pixels)

    def asked_about():
        vectors = torch.randn(100, model.num_classes, generator=rng)
        return inspector.with_classes(vitviz.Classes([f"sentence {one}" for one in range(100)], vectors))

    def predicted(trace):
        asked_about().answered(trace).top(100)

    def accounted(trace):
        asked = asked_about()
        vitviz.logit_attribution(asked, trace, int(asked.answered(trace).logits.argmax()))

    def mapped(trace):
        asked = asked_about()
        asked.answered(trace).top(100)
        vitviz.patch_scores(asked, trace, "naclip")

    ways = {"plain": plain, "prediction": predicted, "prediction and account": accounted,
            "prediction and map": mapped}  # fmt: skip
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for trace in traces:
        for name, way in ways.items():
            before = time.process_time()
            way(trace)
            spent[name].append(time.process_time() - before)
    medians = {name: statistics.median(one[1:]) for name, one in spent.items()}  # the first are checked
    return {name: one / medians["plain"] for name, one in medians.items()}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = asked.add_subparsers(dest="way", required=True)
    one = ways.add_parser("voc")
    one.add_argument("checkpoint", nargs="?", help="a folder with both towers, or a name of timm's")
    one.add_argument("folder", nargs="?", type=Path, help="VOCdevkit/VOC2012")
    one.add_argument("--limit", type=int, help="so many pictures")
    one.add_argument("--names", type=Path, help="the 20 classes in other words, one a line")
    one.add_argument("--smallest", action="store_true")
    ways.add_parser("cost").add_argument("--runs", type=int, default=16)
    given = asked.parse_args()
    if given.way == "cost":
        for name, share in cost(given.runs).items():
            much = " (too much)" if name != "plain" and share > MOST else ""
            print(f"{name}: {share:.3f} of a plain forward{much}")
        return
    names = given.names.read_text(encoding="utf-8").split("\n")[:20] if given.names else NAMES
    with tempfile.TemporaryDirectory() as place:
        checkpoint, folder = given.checkpoint, given.folder
        if given.smallest:
            from tests.engine import contrastive

            contrastive.clip(Path(place))
            checkpoint, folder = place, made_up(Path(place) / "voc")
        if not checkpoint or not folder:
            asked.error("give a checkpoint and VOC's folder, or --smallest")
        found = voc(vitviz.load(checkpoint), Path(folder), given.limit, names)
    for name, share in found.items():
        print(f"{name}: {share:.1f}")


if __name__ == "__main__":
    main()
